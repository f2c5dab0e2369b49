# Included by the Makefile. `make show-N` proves item N of what the first release must show; each
# prints its figures, writes bench/results/, and fails if the claim does not hold.

SHOWS := show-1 show-2 show-3 show-4 show-5 show-6 show-7 show-8 show-9

.PHONY: bench shows $(SHOWS)

bench: show-5  ## Pages a second and CPU a page beside Scrapy, in one interleaved run

shows: $(SHOWS)  ## Prove each claim of the release: show-1 … show-9

$(SHOWS): show-%: setup-dev packages
	@$(PYTHON) -m bench $*

.PHONY: bench-frontier
bench-frontier: setup-dev  ## Memory, ingest, lease + finish and admission of the frontier
	@$(PYTHON) -m bench.frontier

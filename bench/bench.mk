# Included by the Makefile. Benchmarks print their figures, write bench/results/, and fail if a claim
# does not hold.

.PHONY: setup-bench bench bench-full bench-lasting bench-pages bench-frontier bench-replay bench-monitor bench-seen suites extract playback faults cluster-faults attacks traps

setup-bench:
	@sh .ci/setup requirements-bench.txt

bench: setup-bench packages  ## A short form of all of docs/benchmarks.md, in under ten minutes
	@$(PYTHON) -m bench.all --short $(ARGS)

bench-full: setup-bench packages  ## Their full forms, and the benchmarks of the parts: hours
	@$(PYTHON) -m bench.all $(ARGS)
	@$(MAKE) bench-lasting bench-frontier bench-replay bench-pages
	@$(PYTHON) -m bench.store.mysql
	@$(PYTHON) -m bench.store.calendar
	@$(PYTHON) -m bench.store.again
	@$(PYTHON) -m bench.scale.memory
	@$(PYTHON) -m bench.scale.scaling  # it also shows figures of the parts

bench-lasting: setup-bench packages  ## A node away, idle crawls, recovery, memory, growth; ARGS=--short
	@$(PYTHON) -m bench.all --lasting $(ARGS)

bench-frontier: setup-dev  ## Memory, ingest, lease + finish and admission of the frontier
	@$(PYTHON) -m bench.frontier.speed

bench-replay: setup-dev  ## Links a second of a full replay into an empty Redis
	@$(PYTHON) -m bench.frontier.replay $(ARGS)

suites: setup-bench  ## Cases of other projects, ours beside the best libraries; ARGS="urls FOLDER"
	@$(PYTHON) -m bench.suites $(ARGS)

extract: setup-bench  ## Main text beside other libraries; ARGS="FOLDER" has labelled pages
	@$(PYTHON) -m bench.extract $(ARGS)

playback: setup-dev packages  ## Whether an archive with requisites plays back whole, in pywb and Chromium
	@$(PYTHON) -m bench.playback $(ARGS)
	@$(PYTHON) -m bench.playback.revisits

faults: setup-dev packages  ## Kill, cut off, empty and fill everything under a crawl; ROWS="1 5"
	@$(PYTHON) -m bench.faults.table $(ROWS)

attacks: setup-dev packages  ## One bad host beside ten good ones, one attack after the other; ROWS="silent farm"
	@$(PYTHON) -m bench.faults.attacks $(ROWS)

bench-pages: setup-dev packages  ## A million pages: lists and export in constant memory; both stores
	@$(PYTHON) -m bench.store.million

bench-monitor: setup-dev packages  ## A hundred open pages of the Monitor beside leases; a first visit
	@$(PYTHON) -m bench.scale.monitor $(ARGS)

bench-seen: setup-dev packages  ## CPU a page with members, logger and metrics, and without: ten pairs
	@$(PYTHON) -m bench.peers.seen $(ARGS)

cluster-faults: setup-dev packages  ## The same for a cluster of five MariaDB servers; ROWS="1 5"
	@$(PYTHON) -m bench.faults.cluster $(ROWS)

traps: setup-dev  ## What share of a crawl goes to traps; SITES="six wiki", ARGS="--traps off"
	@$(PYTHON) -m bench.traps $(SITES) $(ARGS)

# Targets for people. Each sets up what it needs; all work offline once .venv is complete.

PYTHON := .venv/bin/python
SEED ?=
MINUTES ?=
STORE ?=
REPLAY ?=
export PYTHON3

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev packages crawl cluster cluster-stop test nightly test-weights test-cluster nemesis guards lint screenshots docs package clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 14

setup:  ## Make .venv and install the pinned requirements; does nothing if that is done
	@sh .ci/setup requirements.txt

setup-dev:
	@sh .ci/setup requirements-dev.txt

packages:
	@sh .ci/packages

crawl: setup  ## Crawl the shipped site, or SEED="https://…"
	@./greencrawl crawl $(if $(SEED),"$(SEED)",--demo)

cluster: setup  ## Start two masters and three replicas of MariaDB in data/cluster
	@./greencrawl store local

cluster-stop: setup  ## Stop them; their data stays
	@./greencrawl store local --stop

test: setup-dev packages  ## Run all tests, side by side; ARGS="…" goes to one plain pytest
	@sh .ci/setup requirements-dev.txt  # the compiler may be new
	@$(PYTHON) -m $(if $(ARGS),pytest $(ARGS),tests.support.lanes)

nightly: setup-bench packages  ## All tests with many times the examples; faults, attacks, nemesis
	@TESTS_LONG=1 $(PYTHON) -m tests.support.lanes
	@$(MAKE) faults cluster-faults attacks
	@$(MAKE) nemesis STORE=sqlite
	@$(MAKE) nemesis STORE=mysql

test-weights: setup-dev packages  ## Run all tests and note how long each file takes
	@$(PYTHON) -m tests.support.lanes --weigh

test-cluster: setup-dev packages  ## Tests on five servers only; ARGS="…" goes to pytest
	@$(PYTHON) -m pytest tests/store/mysql/cluster tests/faults/test_cluster_faults.py $(ARGS)

nemesis: setup-dev packages  ## Harm a whole system: SEED=… MINUTES=… STORE=sqlite|mysql, or REPLAY=FILE
	@$(PYTHON) -m tests.nemesis $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(STORE),--store $(STORE)) $(if $(REPLAY),--replay $(REPLAY)) $(ARGS)

guards: setup-dev packages  ## Take guards out of a copy one by one: tests must miss each; ARGS="D1 V3"
	@$(PYTHON) -m tests.guards $(ARGS)

lint: setup-dev  ## ruff, mypy --strict, import-linter
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@PYTHONPATH=src .venv/bin/lint-imports

screenshots: setup-dev packages  ## Draw the pictures of docs/monitor.md anew
	@$(PYTHON) -m tests.monitor.screenshots

docs: setup  ## Write the generated tables of the docs and .env.example again
	@$(PYTHON) -m greencrawl.cli.tables

package: setup-dev  ## Build the sdist and the wheel into dist/
	@$(PYTHON) -m build --no-isolation

clean:  ## Remove caches and the demo's data; .venv and your data stay
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache data/demo
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

-include bench/bench.mk

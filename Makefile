# The commands of the house; CONTRIBUTING.md explains them, `.ci/run` calls them.

# Tests start our programs a thousand times; each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The demo needs a fraction of what development needs, and pip is most of its time.
READY := $(VENV)/.ready-dev
READY_LAB := $(VENV)/.ready-lab
PYTEST := $(BIN)/python -m pytest
SUITE := $(BIN)/python tools/suite.py
PEERS_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/umbilical/peers
# One group of peers, or all: make peers GROUP=konnectivity
GROUP ?=
# More for pytest: make test ARGS="-k drain -x"
ARGS ?=
# Which tests by their marks: make test ONLY="not real"
ONLY ?= not soak
# More for the demo: make demo DEMO_ARGS="--breakage agent-kill"
DEMO_ARGS ?=
# Parts of the proof on a bare machine: make fresh FRESH_ARGS=--demo
FRESH_ARGS ?=
# More for the bench: make bench BENCH_ARGS=--smoke
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup check docs test peers test-real bench demo demo-real fresh soak compiled wheels clean clean-peers

help: ## say what each command does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything that development needs (Python 3.11 or newer, nothing else)

$(READY) $(READY_LAB): pyproject.toml setup.py tools/environment.py
	@command -v $(PYTHON) >/dev/null || { printf '%s\n' 'UMB911 no Python' \
	  '  why: there is no program `$(PYTHON)` on PATH' \
	  '  next: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv), or: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) tools/environment.py $(VENV) $(patsubst .ready-%,%,$(@F))

check: setup ## lint, format, types and the rules of the house; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -q tests/architecture

test: setup ## the suite on all cores; tests against real programs run only where those are in the cache already
	$(SUITE) '$(ONLY)' $(ARGS)

peers: ## build the real programs, pinned, into the cache outside the tree [GROUP=konnectivity|bench|kubernetes|ignition|crds]
	$(PYTHON) tools/peers.py build $(if $(GROUP),--group $(GROUP))

test-real: setup peers ## build what is missing, then test against real programs; a skip is a failure
	UMBILICAL_REQUIRE_PEERS=1 $(SUITE) 'real and not soak' $(ARGS)

bench: setup ## our tunnel beside upstream's and our proxies beside ssh -D and tinyproxy, as ratios; bootstrap.ign; the hard way
	$(PYTHON) tools/peers.py build --group konnectivity
	$(PYTHON) tools/peers.py build --group bench
	python=$$($(BIN)/python tools/bench_python.py) && $$python tools/bench.py $(BENCH_ARGS) && \
	  $$python tools/bench_bootstrap.py $(BENCH_ARGS) && $$python tools/bench_hardway.py $(BENCH_ARGS) && \
	  $$python tools/bench_proxies.py $(BENCH_ARGS)

demo: $(READY_LAB) ## a cluster being born on this machine: blocked, tunnelled, cut; told live, with a report; no root needed
	@$(BIN)/umbilical lab demo $(DEMO_ARGS)

demo-real: $(READY_LAB) ## the same with Kubernetes' own programs or not at all; builds them first
	$(PYTHON) tools/peers.py build --group kubernetes
	@$(BIN)/umbilical lab demo --real $(DEMO_ARGS)

fresh: ## both commands of the README on a bare Debian with Python and make: root, user, no namespaces; needs root [FRESH_ARGS=--demo]
	$(PYTHON) tools/fresh.py $(FRESH_ARGS)

soak: setup ## the long forms of the tests that look for leaks and drift, minutes each
	UMBILICAL_SOAK=1 $(PYTEST) -m soak --timeout=1800 $(ARGS)
	$(MAKE) fresh

compiled: setup ## the suite once more, with the data path compiled by mypyc in a scratch copy
	$(BIN)/python tools/compiled.py $(ARGS)

wheels: setup ## build the pure wheel and the compiled one into dist/, install each and try it
	rm -rf dist
	$(BIN)/python tools/wheels.py --out dist
	UMBILICAL_WHEELS=$(CURDIR)/dist $(PYTEST) -q tests/tools/test_wheels.py

docs: setup ## write the pages and the table of codes that are made from texts beside the code
	$(BIN)/python tools/hardway_docs.py

clean: ## remove what the other commands left in the tree
	rm -rf $(VENV) .venv-bench build dist out src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find src tests tools -type d -name __pycache__ -prune -exec rm -rf {} +

clean-peers: ## remove the peers' cache
	rm -rf $(PEERS_CACHE)

# Commands for development; CONTRIBUTING.md explains them, `.ci/run` runs them.

# Tests start our programs a thousand times; without bytecode each start would compile the package.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The demo needs few of the packages for development, and pip takes most of its time.
READY := $(VENV)/.ready-dev
READY_LAB := $(VENV)/.ready-lab
READY_FUZZ := $(VENV)/.ready-fuzz
READY_RELEASE := $(VENV)/.ready-release
PYTEST := $(BIN)/python -m pytest
SUITE := $(BIN)/python tools/suite.py
COMPILED := build/compiled/.built
WHEELS := dist/.built
IMAGE := dist/.image
IMAGE_TESTS := tests/tools/test_image.py tests/tools/test_image_sbom.py tests/manifests/test_image_programs.py tests/lab/scenarios/test_built_image.py
# What a compiled build depends on.
SOURCES := setup.py tools/compiled.py tools/wheels.py $(shell find src tests/support -name '*.py' 2>/dev/null)
PEERS_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/umbilical/peers
# One group of peers; default: all. Example: make peers GROUP=konnectivity
GROUP ?=
# Arguments for pytest: make test ARGS="-k drain -x"
ARGS ?=
# Tests to run, by their marks: make test ONLY="not real"
ONLY ?= not soak
# Arguments for the demo: make demo DEMO_ARGS="--breakage agent-kill"
DEMO_ARGS ?=
# Time for all targets of the fuzzer together, and which to run: make fuzz FUZZ_SECONDS=600 FUZZ_TARGETS="http2 session"
FUZZ_SECONDS ?= 20
FUZZ_TARGETS ?=
# Arguments for make fresh: make fresh FRESH_ARGS=--demo
FRESH_ARGS ?=
# Arguments for the conformance run: make conformance CONFORMANCE_ARGS="--run parallel --focus sig-network --minutes 60"
CONFORMANCE_ARGS ?=
# Arguments for the compatibility run: make compatibility COMPATIBILITY_ARGS="--only kube-apiserver --print"
COMPATIBILITY_ARGS ?=
# Arguments for the benchmark: make bench BENCH_ARGS=--smoke
BENCH_ARGS ?=
# How long seeds of the simulation run, or the one seed to run: make simulate SEED=7
SIMULATE_SECONDS ?= 60
SEED ?=

.DEFAULT_GOAL := help
.PHONY: help setup check docs test peers test-real bench demo demo-real fresh fuzz simulate soak chart conformance compatibility builds compiled wheels image lock release clean clean-peers

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with all packages for development (needs Python 3.11 or newer)

$(READY) $(READY_LAB) $(READY_FUZZ) $(READY_RELEASE): pyproject.toml setup.py tools/environment.py
	@command -v $(PYTHON) >/dev/null || { printf '%s\n' 'UMB911 Python is missing' \
	  '  why: `$(PYTHON)` is not on PATH' \
	  '  next: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv), or: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) tools/environment.py $(VENV) $(patsubst .ready-%,%,$(@F))

check: setup ## check lint, format, types and architecture rules; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -q tests/architecture

test: setup ## run the tests on all cores; tests with real programs run only if these are in the cache
	$(SUITE) '$(ONLY)' $(ARGS)

peers: ## build the pinned real programs into the cache outside the tree [GROUP=konnectivity|h2spec|bench|kubernetes|ignition|crds|conformance|compatibility|helm|kubeadm|kubernetes-1.36]
	$(PYTHON) tools/peers.py build $(if $(GROUP),--group $(GROUP))

test-real: setup peers ## build missing real programs, then run the tests with them; a skipped test is a failure
	UMBILICAL_REQUIRE_PEERS=1 $(SUITE) 'real and not soak and not image' $(ARGS)

bench: setup ## measure our tunnel and proxies against upstream, ssh -D and tinyproxy; also bootstrap and hard way
	$(PYTHON) tools/peers.py build --group konnectivity
	$(PYTHON) tools/peers.py build --group bench
	python=$$($(BIN)/python tools/bench_python.py) && $$python tools/bench.py $(BENCH_ARGS) && \
	  $$python tools/bench_bootstrap.py $(BENCH_ARGS) && $$python tools/bench_hardway.py $(BENCH_ARGS) && \
	  $$python tools/bench_strangers.py $(BENCH_ARGS) && $$python tools/bench_fleet.py $(BENCH_ARGS) && \
	  $$python tools/bench_transfers.py $(BENCH_ARGS) && $$python tools/bench_proxies.py $(BENCH_ARGS) && \
	  $$python tools/bench_workers.py $(BENCH_ARGS)

demo: $(READY_LAB) ## run control plane, tunnel and webhook on this machine, with a report; needs no root
	@$(BIN)/umbilical lab demo $(DEMO_ARGS)

demo-real: $(READY_LAB) ## run the demo with the real Kubernetes programs; builds them first
	$(PYTHON) tools/peers.py build --group kubernetes
	@$(BIN)/umbilical lab demo --real $(DEMO_ARGS)

fresh: ## run both commands of the README on a bare Debian, as root and as a user; needs root [FRESH_ARGS=--demo]
	$(PYTHON) tools/fresh.py $(FRESH_ARGS)

fuzz: $(READY_FUZZ) ## fuzz parsers and a server session from tests/fuzz/corpus, on all cores [FUZZ_SECONDS=20 FUZZ_TARGETS=http2]
	$(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

simulate: setup ## run seeds of the simulated network on all cores [SIMULATE_SECONDS=60] [SEED=7]
	$(BIN)/python tools/simulate.py $(if $(SEED),--seed $(SEED),--seconds $(SIMULATE_SECONDS))

chart: setup ## write the chart's generated files and its renderings; builds Helm once, five minutes (needs Go)
	$(PYTHON) tools/peers.py build --group helm
	$(BIN)/python tools/chart.py

soak: setup ## run the long tests for leaks, drift and the chart in a cluster, and an hour each of fuzz and simulate
	$(PYTHON) tools/peers.py build --group helm
	$(PYTHON) tools/peers.py build --group kubeadm
	$(PYTHON) tools/peers.py build --group kubernetes-1.36
	@$(BIN)/python tools/image.py --check
	@$(MAKE) --no-print-directory $(IMAGE)
	UMBILICAL_SOAK=1 UMBILICAL_IMAGE=$(CURDIR)/dist $(PYTEST) -m soak --timeout=1800 $(ARGS)
	$(MAKE) fuzz FUZZ_SECONDS=3600
	$(MAKE) simulate SIMULATE_SECONDS=3600
	$(MAKE) fresh

conformance: setup ## run Kubernetes' own conformance specs on a cluster in the lab; needs root, hours [CONFORMANCE_ARGS="--run tunnel"]
	$(BIN)/python tools/conformance.py $(CONFORMANCE_ARGS)

compatibility: setup ## test with other versions of upstream, Kubernetes and Python; needs root, an hour [COMPATIBILITY_ARGS="--only Python"]
	$(BIN)/python tools/compatibility.py $(COMPATIBILITY_ARGS)

builds: $(COMPILED) $(WHEELS) ## compile for `make compiled` and `make wheels`; with -j2 both at once, on a core each

$(COMPILED): $(READY) $(SOURCES)
	$(BIN)/python tools/compiled.py --build $(@D)
	@touch $@

$(WHEELS): $(READY) $(SOURCES)
	rm -rf dist
	$(BIN)/python tools/wheels.py --out dist
	@touch $@

compiled: $(COMPILED) ## run the tests with the data path compiled by mypyc, in a scratch copy
	$(BIN)/python tools/compiled.py $(<D) $(ARGS)

wheels: $(WHEELS) ## build the pure and the compiled wheel into dist/, then install and test both
	UMBILICAL_WHEELS=$(CURDIR)/dist $(PYTEST) -q tests/tools/test_wheels.py

image: setup ## build the image into dist/ as an OCI archive and test it
	@$(BIN)/python tools/image.py --check
	@$(MAKE) --no-print-directory $(IMAGE)
	UMBILICAL_IMAGE=$(CURDIR)/dist $(PYTEST) -q -m 'not soak' $(IMAGE_TESTS) $(ARGS)

$(IMAGE): $(WHEELS) tools/image.py tools/image_root.py tools/debian.py requirements.lock pyproject.toml
	$(BIN)/python tools/image.py --wheels dist --out dist
	@touch $@

lock: $(READY_RELEASE) ## write requirements.lock: the newest packages that pyproject.toml allows, with their hashes
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --extra hosted --extra lab \
	  --extra hardway --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml

release: setup ## build the files of a release into dist/, reproducibly, and install each into an empty environment
	$(BIN)/python tools/release.py --out dist

docs: setup ## write the generated pages below docs/
	$(BIN)/python tools/hardway_docs.py

clean: ## remove files of the other commands from the tree
	rm -rf $(VENV) .venv-bench build dist out src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find src tests tools -type d -name __pycache__ -prune -exec rm -rf {} +

clean-peers: ## remove the cache of real programs
	rm -rf $(PEERS_CACHE)

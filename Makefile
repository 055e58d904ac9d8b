# The commands of this repository. Everything is installed into .venv (and .venv-bench) from the pinned versions under
# requirements/; a stamp file in each remembers which pins it was made from, so a second call installs nothing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
BENCH_STAMP := $(BENCH_VENV)/.stamp

# Tests and fault runs start hundreds of processes: each would compile everything anew where nothing may be kept.
unexport PYTHONDONTWRITEBYTECODE

# How many processes pytest may use.
JOBS ?= 3
# Where the tests keep their files: in memory, if there are 4 GB and programs may run from there, since SQLite waits for
# a disk after each transaction; empty means the usual place.
TEST_FILES ?= $(shell [ -w /dev/shm ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts && \
  [ "$$(df -Pk /dev/shm | awk 'NR == 2 { print $$4 }')" -gt 4000000 ] && echo /dev/shm)
# Where `make run` keeps its database, and where it listens.
RUN_DB ?= var/noonbell.db
PORT ?= 8765
# An interpreter to build the environments with; empty means: look for one.
PYTHON ?=

# Folders that hold Python; mypy does not take one that holds none.
SOURCES := $(foreach dir,src tests benchmarks examples,$(if $(shell find $(dir) -name '*.py' 2>/dev/null),$(dir)))

# The pins are resolved for 3.11, so that one is asked first. A name on PATH may be a shim that leads nowhere: each
# candidate has to answer before it is taken.
define find_python
found=; \
for name in $(if $(PYTHON),'$(PYTHON)',python3.11 python3 python3.12 python3.13 python3.14 python); do \
  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$name; break; fi; \
done; \
if [ -z "$$found" ]; then \
  echo 'Noonbell needs Python 3.11 or newer, and none was found$(if $(PYTHON), at PYTHON=$(PYTHON)).' >&2; \
  echo 'Install one, or name it: make PYTHON=/path/to/python3.11 setup' >&2; exit 1; \
fi
endef

# $(1): the environment's folder, $(2): its list of pins.
define build_venv
$(find_python); \
if ! $(1)/bin/python -c 'import pip' >/dev/null 2>&1; then \
  echo "making $(1) with $$("$$found" --version)"; \
  rm -rf $(1); \
  "$$found" -m venv $(1) || { echo 'python -m venv failed; Debian has it in the package python3-venv' >&2; exit 1; }; \
fi; \
$(1)/bin/python -m pip install --quiet --disable-pip-version-check -r $(2); \
$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation -e .
endef

.PHONY: help setup run test lint format types imports check bench bench-cron bench-engine bench-schedules bench-http \
  bench-delivery bench-serve bench-web bench-cluster bench-scale faults faults-cluster lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Make .venv from the pinned versions (nothing to do the second time)

run: $(STAMP) ## Start the service with demo schedules, on an embedded database in var/
	@mkdir -p $(dir $(RUN_DB))
	@exec $(BIN)/noonbell serve --demo --store sqlite:///$(RUN_DB) --port $(PORT)

test: check ## The whole gate: check, then the fast tests
	PYTEST_DEBUG_TEMPROOT=$(TEST_FILES) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal \
	  -o tmp_path_retention_policy=failed tests

check: lint types imports ## Lint, types and import contracts

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

format: $(STAMP) ## Let ruff rewrite what it can mend
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy $(SOURCES)

imports: $(STAMP) ## The import contracts between the layers
	$(BIN)/lint-imports

bench: bench-cron bench-engine bench-schedules bench-http bench-delivery bench-serve bench-web ## All benchmarks
bench: bench-cluster bench-scale

bench-cron: $(BENCH_STAMP) ## Occurrences and parses per second, beside other cron libraries
	$(BENCH_VENV)/bin/python benchmarks/bench_cron.py

bench-engine: $(BENCH_STAMP) ## Tasks due in the same minute, up to a million, beside APScheduler
	$(BENCH_VENV)/bin/python benchmarks/bench_engine.py

bench-schedules: $(BENCH_STAMP) ## A million durable schedules on SQLite and PostgreSQL, beside bare statements
	$(BENCH_VENV)/bin/python benchmarks/bench_schedules.py

bench-http: $(STAMP) ## HTTP jobs through the whole path, beside bare aiohttp
	$(BIN)/python benchmarks/bench_http.py

bench-delivery: $(STAMP) ## Messages into Redis, PostgreSQL and Celery, beside bare clients
	$(BIN)/python -m benchmarks.bench_delivery

bench-serve: $(STAMP) ## How long the service takes to be ready, with a thousand schedules and with a million
	$(BIN)/python benchmarks/bench_serve.py

bench-web: $(STAMP) ## How long the pages of the dashboard take, with a thousand schedules and with a million
	$(BIN)/python -m benchmarks.bench_web

bench-cluster: $(STAMP) ## One, two and three instances on PostgreSQL, with and without Redis, beside Celery beat
	$(BIN)/python -m benchmarks.bench_cluster

bench-scale: $(STAMP) ## Bytes of a schedule, of a fire and of a member of the timeline, for docs/scale.md
	$(BIN)/python -m benchmarks.bench_scale

faults: $(STAMP) ## The long runs: every zone, the fuzz, the simulation, random histories, real crashes, clusters
	$(BIN)/python -m tests.faults.cron_zones
	$(BIN)/python -m tests.faults.cron_fuzz
	$(BIN)/python -m tests.faults.simulation --seeds 10000
	$(BIN)/python -m tests.faults.histories
	$(BIN)/python -m tests.faults.crashes
	$(BIN)/python -m tests.faults.schedules_crashes
	$(BIN)/python -m tests.faults.api_schema
	$(BIN)/python -m tests.faults.hostile_targets
	$(MAKE) --no-print-directory faults-cluster

faults-cluster: $(STAMP) ## Of these the runs of several instances: kills, pauses, cut connections, restarts, clocks
	$(BIN)/python -m tests.faults.cluster.burst
	$(BIN)/python -m tests.faults.cluster.kills
	$(BIN)/python -m tests.faults.cluster.pauses
	$(BIN)/python -m tests.faults.cluster.long_jobs
	$(BIN)/python -m tests.faults.cluster.connections
	$(BIN)/python -m tests.faults.cluster.restarts
	$(BIN)/python -m tests.faults.cluster.timeline_faults
	$(BIN)/python -m tests.faults.cluster.clock_steps
	$(BIN)/python -m tests.faults.cluster.terms
	$(BIN)/python -m tests.faults.cluster.upgrades
	$(BIN)/python -m tests.faults.cluster.poison

lock: ## Renew the pins in requirements/*.txt from requirements/*.in (needs the network)
	@$(find_python); \
	scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	for list in dev bench; do \
	  "$$found" -m venv "$$scratch/$$list"; \
	  "$$scratch/$$list/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements/$$list.in; \
	  "$$scratch/$$list/bin/python" -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==' \
	    > "$$scratch/$$list.txt"; \
	  mv "$$scratch/$$list.txt" requirements/$$list.txt; \
	  echo "requirements/$$list.txt: $$(wc -l < requirements/$$list.txt) pins"; \
	done

clean: ## Remove the environments, caches and build results
	rm -rf $(VENV) $(BENCH_VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements/dev.txt pyproject.toml
	@$(call build_venv,$(VENV),requirements/dev.txt)
	@touch $@

$(BENCH_STAMP): requirements/bench.txt pyproject.toml
	@$(call build_venv,$(BENCH_VENV),requirements/bench.txt)
	@touch $@

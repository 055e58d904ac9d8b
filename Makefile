# The commands of this repository. Everything is installed into .venv (and .venv-bench, .venv-lowest, ...) from the pinned
# versions under requirements/. A stamp file in each environment records that its pins are installed, so a second call
# installs nothing. `make run` needs run.txt alone; the other commands add dev.txt to the same .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.run-stamp
STAMP := $(VENV)/.stamp
BENCH_VENV := .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.stamp
LOWEST_VENV := .venv-lowest
LOWEST_STAMP := $(LOWEST_VENV)/.stamp
MUTANTS_VENV := .venv-mutants
MUTANTS_STAMP := $(MUTANTS_VENV)/.stamp

# Tests and fault runs start hundreds of processes: each would compile everything anew where nothing may be kept.
unexport PYTHONDONTWRITEBYTECODE

# How many processes pytest may use: more than two processors, since tests of real servers and processes wait a lot.
JOBS ?= 5
# Where the tests keep their files: in memory, if there are 4 GB and programs may run from there, since SQLite waits for
# a disk after each transaction; empty means the usual place.
TEST_FILES ?= $(shell [ -w /dev/shm ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts && \
  [ "$$(df -Pk /dev/shm | awk 'NR == 2 { print $$4 }')" -gt 4000000 ] && echo /dev/shm)
export PYTEST_DEBUG_TEMPROOT := $(TEST_FILES)
PYTEST = -m pytest -n $(JOBS) --dist worksteal
# Where `make run` keeps its database, and where it listens.
RUN_DB ?= var/noonbell.db
PORT ?= 8765
# An interpreter to build the environments with; empty means: look for one.
PYTHON ?=
# The interpreters of `make test-pythons`, separated by spaces; empty means: look for each supported version.
PYTHONS ?=
# The number of busy processes of `make test-busy`, and the command that runs beside them.
BUSY ?= 4
BUSY_COMMAND ?= $(MAKE) test

# Folders that hold Python; mypy does not take one that holds none.
SOURCES := $(foreach dir,src tests benchmarks examples requirements,$(if $(shell find $(dir) -name '*.py' 2>/dev/null),$(dir)))

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

# $(1): the environment's folder, $(2): its list of pins, $(3): the number of steps of the whole, $(4): its size in MB, if
# known. Reports one line for each step. pip's own output goes to a log file, which is shown when a step fails. The lists
# are complete, so pip has nothing to resolve.
define install_pins
$(find_python); \
log=$(1)/install.log; \
failed() { tail -n 30 "$$log" >&2; echo "Installation failed; the whole output is in $$log" >&2; exit 1; }; \
if $(1)/bin/python -c 'import pip' >/dev/null 2>&1; then \
  echo "[1/$(3)] using $(1) with $$($(1)/bin/python --version)"; \
else \
  echo "[1/$(3)] creating $(1) with $$("$$found" --version)"; \
  rm -rf $(1); \
  "$$found" -m venv $(1) || { echo 'python -m venv failed; on Debian, install the package python3-venv' >&2; exit 1; }; \
fi; \
echo "[2/$(3)] installing $$(wc -l < $(2)) packages from $(2)$(if $(4), (about $(4) MB))"; \
$(1)/bin/python -m pip install --disable-pip-version-check --no-deps -r $(2) >"$$log" 2>&1 || failed
endef

# $(1): the environment's folder, $(2): its list of pins, $(3): its size in MB.
define build_venv
$(call install_pins,$(1),$(2),3,$(3)); \
echo "[3/3] installing noonbell from this folder"; \
$(1)/bin/python -m pip install --disable-pip-version-check --no-index --no-deps --no-build-isolation -e . \
  >>"$$log" 2>&1 || failed
endef

.PHONY: help setup run test test-full test-pythons test-lowest test-busy test-mutants draw-mutants lint format types \
  imports check bench bench-cron bench-engine bench-schedules bench-http bench-delivery bench-serve bench-web \
  bench-cluster bench-scale call-paths faults faults-computed faults-processes faults-cluster lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Create .venv with everything that development needs (nothing to do the second time)

run: $(RUN_STAMP) ## Start the service with demo schedules, on an embedded database in var/
	@mkdir -p $(dir $(RUN_DB))
	@exec $(BIN)/noonbell serve --demo --store sqlite:///$(RUN_DB) --port $(PORT)

test: check ## Check, then run the tests, except those marked exhaustive
	$(BIN)/python $(PYTEST) tests

test-full: check ## Check, then run all tests, including those marked exhaustive, with all examples
	HYPOTHESIS_PROFILE=thorough $(BIN)/python $(PYTEST) -m "" tests

test-pythons: ## Run the tests on every supported Python that is installed (or on PYTHONS="...")
	@$(find_python); "$$found" -m tests.pythons --make '$(MAKE)' --jobs $(JOBS) $(PYTHONS)

test-lowest: $(LOWEST_STAMP) ## Run the tests with every direct dependency at its declared minimum
	$(LOWEST_VENV)/bin/python $(PYTEST) tests

test-busy: $(STAMP) ## Run the tests while BUSY=4 processes keep the processors busy
	$(BIN)/python -m tests.busy --processes $(BUSY) -- $(BUSY_COMMAND)

test-mutants: $(STAMP) ## Run the tests against the recorded mutants of the source
	$(BIN)/python -m tests.mutants.run

draw-mutants: $(MUTANTS_STAMP) ## Draw a new mutant for each that no longer applies
	$(MUTANTS_VENV)/bin/python -m tests.mutants.draw

check: lint types imports ## Lint, types and import rules

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

format: $(STAMP) ## Let ruff fix and reformat what it can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy $(SOURCES)

imports: $(STAMP) ## The import rules between the layers
	$(BIN)/lint-imports

bench: bench-cron bench-engine bench-schedules bench-http bench-delivery bench-serve bench-web ## All benchmarks
bench: bench-cluster bench-scale

bench-cron: $(BENCH_STAMP) ## Occurrences and parses per second, beside other cron libraries
	$(BENCH_VENV)/bin/python benchmarks/bench_cron.py

bench-engine: $(BENCH_STAMP) ## Tasks due in the same minute, up to a million, beside APScheduler
	$(BENCH_VENV)/bin/python -m benchmarks.bench_engine

bench-schedules: $(BENCH_STAMP) ## Durable schedules on SQLite and PostgreSQL, beside APScheduler and graphile-worker
	$(BENCH_VENV)/bin/python -m benchmarks.bench_schedules

bench-http: $(STAMP) ## HTTP jobs through the whole path, beside bare aiohttp
	$(BIN)/python benchmarks/bench_http.py

bench-delivery: $(STAMP) ## Messages into Redis, PostgreSQL and Celery, beside bare clients
	$(BIN)/python -m benchmarks.bench_delivery

bench-serve: $(STAMP) ## How long the service takes to be ready, with a thousand schedules and with a million
	$(BIN)/python benchmarks/bench_serve.py

bench-web: $(STAMP) ## How long the pages of the dashboard take, with a thousand schedules and with a million
	$(BIN)/python -m benchmarks.bench_web

call-paths: $(STAMP) ## The functions, modules and store calls of four requests
	$(BIN)/python -m benchmarks.call_paths

bench-cluster: $(STAMP) ## One, two and three instances on PostgreSQL, with and without Redis, beside Celery beat
	$(BIN)/python -m benchmarks.bench_cluster

bench-scale: $(STAMP) ## Bytes of a schedule, of a fire and of a member of the timeline, for docs/scale.md
	$(BIN)/python -m benchmarks.bench_scale

faults: $(STAMP) ## The long runs: exhaustive tests, attacks, every zone, fuzzing, simulation, crashes, clusters
	HYPOTHESIS_PROFILE=thorough $(BIN)/python $(PYTEST) -m "exhaustive or hypothesis" tests
	$(BIN)/python -m tests.faults.attacks
	$(MAKE) --no-print-directory -j 2 faults-computed faults-processes

# Of these the runs that compute, at a lower priority: they use the processor time that the other runs leave.
faults-computed: $(STAMP)
	nice -n 15 $(BIN)/python -m tests.faults.cron_zones
	nice -n 15 $(BIN)/python -m tests.faults.cron_fuzz
	nice -n 15 $(BIN)/python -m tests.faults.simulation --seeds 10000
	nice -n 15 $(BIN)/python -m tests.faults.histories

faults-processes: $(STAMP)
	$(BIN)/python -m tests.faults.crashes
	$(BIN)/python -m tests.faults.schedules_crashes
	$(BIN)/python -m tests.faults.api_schema
	$(BIN)/python -m tests.faults.hostile_targets
	$(MAKE) --no-print-directory faults-cluster

faults-cluster: $(STAMP) ## Of these the runs of several instances: kills, pauses, cut connections, restarts, clocks
	$(BIN)/python -m tests.faults.cluster.burst
	$(BIN)/python -m tests.faults.cluster.kills
	$(BIN)/python -m tests.faults.cluster.pauses
	$(BIN)/python -m tests.faults.cluster.gaps
	$(BIN)/python -m tests.faults.cluster.long_jobs
	$(BIN)/python -m tests.faults.cluster.connections
	$(BIN)/python -m tests.faults.cluster.restarts
	$(BIN)/python -m tests.faults.cluster.timeline_faults
	$(BIN)/python -m tests.faults.cluster.clock_steps
	$(BIN)/python -m tests.faults.cluster.terms
	$(BIN)/python -m tests.faults.cluster.upgrades
	$(BIN)/python -m tests.faults.cluster.poison

# dev is resolved first: the other lists take its versions. The tool that draws mutants needs packages without wheels.
# $(1): the list, $(2): the options and requirements of pip.
define lock_list
echo "resolving requirements/$(1).txt"; \
"$$found" -m venv "$$scratch/$(1)"; \
"$$scratch/$(1)/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: $(2); \
"$$scratch/$(1)/bin/python" -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==' > "$$scratch/$(1).txt"; \
mv "$$scratch/$(1).txt" requirements/$(1).txt
endef

lock: ## Renew the pins in requirements/*.txt (needs the network)
	@$(find_python); \
	scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(call lock_list,dev,-r requirements/dev.in); \
	$(call lock_list,run,-r requirements/run.in -c requirements/dev.txt); \
	$(call lock_list,bench,-r requirements/bench.in -c requirements/dev.txt); \
	"$$found" requirements/lowest.py > "$$scratch/lowest.in"; \
	$(call lock_list,lowest,-r "$$scratch/lowest.in"); \
	$(call lock_list,mutants,--only-binary :none: -r requirements/mutants.in); \
	wc -l requirements/*.txt

clean: ## Remove the environments, caches and build results
	rm -rf $(VENV) .venv-* dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN_STAMP): requirements/run.txt pyproject.toml
	@$(call build_venv,$(VENV),requirements/run.txt,130)
	@touch $@

# dev.txt contains run.txt, so the environment for development is ready for `make run` as well.
$(STAMP): requirements/dev.txt pyproject.toml
	@$(call build_venv,$(VENV),requirements/dev.txt,570)
	@touch $(RUN_STAMP) $@

$(BENCH_STAMP): requirements/bench.txt pyproject.toml
	@$(call build_venv,$(BENCH_VENV),requirements/bench.txt,580)
	@touch $@

$(LOWEST_STAMP): requirements/lowest.txt pyproject.toml
	@$(call build_venv,$(LOWEST_VENV),requirements/lowest.txt,470)
	@touch $@

# The tool that draws the mutants reads the source; it does not import the package.
$(MUTANTS_STAMP): requirements/mutants.txt
	@$(call install_pins,$(MUTANTS_VENV),requirements/mutants.txt,2)
	@touch $@

# The environments of `make test-pythons`: .venv-3.12/.stamp and so on, with PYTHON=... for the interpreter.
.venv-3.%/.stamp: requirements/dev.txt pyproject.toml
	@$(call build_venv,.venv-3.$*,requirements/dev.txt,570)
	@touch $@

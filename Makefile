# Two commands for a new machine with Python 3.11 or newer: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
# Python keeps compiled modules: otherwise, each of the processes that tests start would compile them again
unexport PYTHONDONTWRITEBYTECODE

# One page of short measurements of speed, beside the last commit: make bench BASE=main DATA=../data
BASE ?= HEAD

.PHONY: bench counts gallery kills mutants run screenshots terminal test test-all test-slurm test-deploy test-slow fuzz check format lint types imports coverage docs clean

run: .venv/installed
	$(BIN)/bbkb run configs/quickstart.yaml

# Every test that is not marked `thorough`, with fewer examples of each property.
test: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --quick

# Also the tests marked `thorough` and those on clusters, with all examples.
test-all: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

# On two Slurm clusters of three namespaces each, at the same time: needs root, Debian's slurm-wlm and munge, and a machine
# without much other load.
test-slurm: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 -m slurm tests/deploy

# The image, built with buildah from Debian's packages; TLS between three machines; a running Prometheus. Needs root.
test-deploy: .venv/installed-dev
	$(BIN)/python -m pytest -n 0 -m deploy tests/deploy

# Complete benchmarks on few problems, clusters of several nodes whose processes are killed, and trainers of Ray Train.
test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 -m slow

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks.bench --base $(BASE) $(if $(DATA),--data $(DATA))

# The sizes of the project beside their goals, and how far three stories travel through its code.
counts: .venv/installed
	$(BIN)/python -m benchmarks.counts

# Mutation testing of campaign and bandit: 200 changes of the code, and those that no test notices. Takes an hour.
mutants: .venv/installed-dev
	$(BIN)/python -m benchmarks.mutants

# A hundred SIGKILLs of workers, coordinators, drivers and nodes on a Ray cluster: nothing is lost or counted twice, nothing hangs.
kills: .venv/installed-dev
	$(BIN)/python -m benchmarks.chaos --kills 100 --no-network

# Ten thousand examples of campaign files, tables, logs and returned values.
fuzz: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 -m fuzz tests/fuzz

# Coverage is reported and has no minimum. It is measured from Python 3.12 on (sys.monitoring); before, tests take twice as long.
check: format lint types imports
	$(MAKE) $$($(BIN)/python -c 'import sys; print("coverage" if sys.version_info >= (3, 12) else "test-all")')

coverage: .venv/installed-dev
	COVERAGE_CORE=$$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")') \
	  $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The campaigns of the documentation's gallery that have no report yet: half an hour on two idle cores. PyTorch is
# installed, and BBKB_DATA may name a folder with data; otherwise scikit-learn downloads them.
gallery: .venv/installed-dev
	$(PIP_INSTALL) --quiet "torch>=2.4,<3"
	$(BIN)/python docs/extensions/gallery.py

# The terminal at the top of README: the real output of the quickstart.
terminal: .venv/installed-dev
	$(PIP_INSTALL) --quiet "pyte>=0.8,<1"
	$(BIN)/python docs/extensions/terminal.py

# The pictures of report and live page in the documentation, of a run: make screenshots RUN=/tmp/gallery/classifier/runs/classifier
screenshots: .venv/installed-dev
	$(BIN)/python docs/extensions/screenshots.py $(RUN)

format: .venv/installed-dev
	$(BIN)/ruff format --check .

lint: .venv/installed-dev
	$(BIN)/ruff check .

types: .venv/installed-dev
	$(BIN)/mypy

imports: .venv/installed-dev
	$(BIN)/lint-imports

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site *.egg-info

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "bbkb needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml
	@echo "Installing bbkb and the packages that it needs into .venv. This takes a few minutes, once."
	$(PIP_INSTALL) --no-compile --editable .  # modules are compiled when they are imported: few are
	@touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml
	@echo "Installing bbkb and the tools of its developers into .venv. This takes a few minutes, once."
	$(PIP_INSTALL) --no-compile --editable '.[dev]'
	@touch $@ .venv/installed

.venv/installed-docs: .venv/bin/python pyproject.toml
	@echo "Installing what builds the documentation into .venv."
	$(PIP_INSTALL) --editable '.[docs]'
	@touch $@ .venv/installed

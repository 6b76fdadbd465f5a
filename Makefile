# Everything is installed into .venv beside this file, nothing globally.
# Another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# pyright is a Node program: the node on the PATH is used if there is one, else one is fetched.
# What it fetches stays in the virtual environment.
export PYRIGHT_PYTHON_CACHE_DIR := $(CURDIR)/$(VENV)/pyright
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types spec spec-write mutants model bench crash scale soak conformance impostors node-peer enumeration autobahn fuzz fuzz-guided clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.product  ## a relay, a listener and a caller, and two attacks refused
	$(BIN)/ringline demo

# Bytecode is kept, whatever the environment says: the suite starts hundreds of processes, and without it each
# of them compiles the product anew. One worker more than the two cores, because many tests wait for others.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.developer  ## the whole test suite; make test TESTS=tests/unit/relay for a part
	$(BIN)/python -m pytest -n 3 $(TESTS)

lint: $(VENV)/.developer  ## style, formatting, and which package may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(VENV)/.developer  ## rewrite the files as `make lint` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.developer  ## mypy and pyright, both strict
	$(BIN)/mypy
	$(BIN)/pyright

spec: $(VENV)/.developer  ## fail if a generated page of spec/ is stale
	$(BIN)/python spec/build.py --check

spec-write: $(VENV)/.developer  ## generate the pages of spec/ again
	$(BIN)/python spec/build.py

mutants: $(VENV)/.developer  ## take each rule of the seal away in turn: a test must notice
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

model:  ## search the life of a durable call with Spin; make model MODEL=--short for a minute
	@$(PYTHON) spec/model/check.py $(MODEL)

bench: $(VENV)/.developer  ## speed as ratios: store and relay beside raw SQLite; make bench BENCH=--short
	$(BIN)/python bench/store.py $(BENCH)
	$(BIN)/python bench/relay.py $(BENCH)

crash: $(VENV)/.developer  ## kill every party at each step it stores; make crash CRASH="--rounds 20"
	$(BIN)/python tests/crash/run.py $(CRASH)

scale: $(VENV)/.developer  ## what a relay does with 100,000 queued calls, counted in instructions
	RINGLINE_SCALE=100000 $(BIN)/python -m pytest -q -n 0 tests/unit/relay/test_durable_scale.py

conformance: $(VENV)/.developer  ## the conformance suite against a relay, on both edges
	$(BIN)/python tests/conformance/run.py $(CONFORMANCE)

impostors: $(VENV)/.developer  ## relays, listeners and callers that break one rule each: exactly its cases must fail; IMPOSTORS=--short
	$(BIN)/python tests/impostors/run.py $(IMPOSTORS)

soak: $(VENV)/.developer  ## an hour of load in simulated time: nothing may grow; make soak SOAK=--short
	$(BIN)/python tests/soak/run.py $(SOAK)

node-peer: $(VENV)/.developer  ## build the TypeScript implementation, replay the vectors, call both ways
	cd spec/peers/node && npm ci --no-audit --no-fund --silent && npm test --silent
	$(BIN)/python -m pytest tests/system/test_node_peer.py

enumeration: $(VENV)/.developer  ## ask 10,000 times whether a handle exists: no answer may tell
	$(BIN)/python tests/enumeration/run.py $(ENUMERATION)

autobahn: $(VENV)/.developer  ## the Autobahn cases against both WebSocket edges
	$(BIN)/python tests/compliance/autobahn.py $(AUTOBAHN)

fuzz: $(VENV)/.developer  ## damaged input to everything that reads any; make fuzz FUZZ=--short
	$(BIN)/python fuzz/run.py $(FUZZ)

fuzz-guided: $(VENV)/.fuzz  ## one target led by coverage; make fuzz-guided GUIDED="frame -runs=200000"
	$(BIN)/python fuzz/guided.py $(GUIDED)

clean:  ## remove what was built and cached; .venv stays
	rm -rf build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# What `make demo` needs: the product and nothing else.
$(VENV)/.product: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Ringline needs Python 3.11 or later; '$(PYTHON)' is `$(PYTHON) --version 2>&1`." >&2; \
	  echo "Name a newer one: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

# Where there is no wheel for this Python, the program says that it was skipped.
$(VENV)/.fuzz: $(VENV)/.developer
	$(BIN)/python -m pip install --quiet --only-binary atheris --group fuzz && touch $@ || true

# What everything else needs. `--group` is why pip is brought up to date first.
$(VENV)/.developer: $(VENV)/.product
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

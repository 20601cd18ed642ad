# Everything runs in .venv, which is made on first use and again when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROCESSORS := $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
# One more than there are processors: a test that starts a session mostly waits for one process after another.
WORKERS ?= $(shell expr $(PROCESSORS) + 1)

.PHONY: help setup demo test check format schemas bench soak clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    the main job on the embedded Messages API server, without a key"
	@echo "make test    the tests"
	@echo "make check   formatting, lint, types, direction of imports"
	@echo "make schemas writes docs/*.schema.json anew, after events, records or scenarios have changed"
	@echo "make bench   what is measured, as ratios in one run"
	@echo "make soak    the long versions of the slow suites, and which broken promises no test notices"

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Coterie needs Python >= 3.11; set PYTHON=..." >&2; exit 2; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/coterie demo

# Compile once: with PYTHONDONTWRITEBYTECODE set, every process that a test starts would compile all modules again.
test: $(READY)
	@$(BIN)/python -m compileall -q src agents orchestrator mailbox memory scenarios
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy --num-workers $(PROCESSORS)
	@$(BIN)/python -m pytest -q tests/test_imports.py

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

schemas: $(READY)
	@$(BIN)/python -m coterie.orchestrator.events.json_schemas docs
	@$(BIN)/python -m coterie.scenarios.runner.parsing.schema docs

bench: $(READY)
	@$(BIN)/python -m benchmarks $(ARGS)

soak: $(READY)
	@COTERIE_COLD_START=1 $(BIN)/python -m pytest -m soak --timeout 3600
	@COTERIE_COLD_START=1 HYPOTHESIS_PROFILE=exploring $(BIN)/python -m pytest -n $(WORKERS)
	@$(BIN)/python -m tests.run_mutations

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

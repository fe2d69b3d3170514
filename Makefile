# One environment in .venv, built by what a target needs: `matrix` takes the library alone, the others the tools as well.
# Installing happens again only after pyproject.toml changed. Another Python: make PYTHON=python3.12 test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BFCL := bfcl-eval==2026.3.23
EXTRAS := otel,postgres,report,sign
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The modules whose branches must all be covered.
CORE := capstate/errors.py,capstate/digest.py,capstate/names.py,capstate/capabilities.py,capstate/grants.py
CORE := $(CORE),capstate/authority.py,capstate/loads.py,capstate/surface.py,capstate/projection.py,capstate/rows.py
CORE := $(CORE),capstate/receipts.py,capstate/archive.py,capstate/epochs.py

# Arguments for pytest, such as PYTEST='-k compaction -x'.
PYTEST ?=
SEED ?= 0

.PHONY: matrix test check bench bfcl soak lint types imports coverage scenarios wheel mutation mutation-sample format clean help
.DELETE_ON_ERROR:

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

matrix: $(VENV)/.run ## Install, and run the main job: nine scenarios against every design
	$(BIN)/capstate matrix

test: $(VENV)/.dev ## Run the suite
	$(BIN)/python -m pytest -n auto --dist loadfile $(PYTEST)

check: lint types imports coverage scenarios mutation-sample wheel ## All that must hold before a change lands

lint: $(VENV)/.dev ## Ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy, strict
	$(BIN)/mypy

imports: $(VENV)/.dev ## Contracts on who may import whom
	$(BIN)/lint-imports --no-cache

coverage: $(VENV)/.dev ## The suite with branch coverage: a floor for all, a higher one for the core
	rm -f .coverage .coverage.*
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report= --cov-fail-under=0 $(PYTEST)
	$(BIN)/coverage report --include='$(CORE)' --fail-under=100
	$(BIN)/coverage report

scenarios: $(VENV)/.dev ## The cases, by the runner that takes anybody's cases
	$(BIN)/python -m tests.scenarios tests/scenarios/cases

mutation: $(VENV)/.dev ## Every mutant of the core
	$(BIN)/python -m tests.mutation

mutation-sample: $(VENV)/.dev ## Some mutants of the core, the same ones for the same SEED
	$(BIN)/python -m tests.mutation --sample 30 --seed $(SEED)

# The suite against what users install: the built wheel, without extras, in a folder without the source.
OUT := build/wheel
wheel: $(VENV)/.dev $(VENV)-wheel/.test ## Build the wheel, and run the suite against it from another folder
	rm -rf $(OUT) && mkdir -p $(OUT)
	$(BIN)/python -m build --no-isolation --wheel --outdir $(OUT) . > $(OUT)/log 2>&1 || { cat $(OUT)/log; exit 1; }
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(OUT)/*.whl
	$(VENV)-wheel/bin/python -m pip check
	elsewhere=$$(mktemp -d) && trap 'rm -rf "$$elsewhere"' EXIT && \
	cp -R $(wildcard tests docs experiments benchmarks README.md CHANGELOG.md CONTRIBUTING.md pyproject.toml) "$$elsewhere" && cd "$$elsewhere" && \
	$(CURDIR)/$(VENV)-wheel/bin/python -c 'import capstate, sys; sys.exit("$(CURDIR)/capstate" in capstate.__file__)' && \
	$(CURDIR)/$(VENV)-wheel/bin/python -m pytest -n 2 --dist loadfile --hypothesis-profile=quick $(PYTEST)

bench: $(VENV)/.dev ## Ratios to floors measured in the same run, as JSON
	$(BIN)/python -m benchmarks --json

soak: $(VENV)/.dev ## Hours: many more worlds, then every mutant
	$(BIN)/python -m pytest --soak --timeout=0 $(PYTEST)
	$(BIN)/python -m tests.mutation

bfcl: $(VENV)/.dev ## BFCL's cases with a late function, an event before every turn
	$(BIN)/python experiments/bfcl/replay.py | tee experiments/bfcl/results.json

format: $(VENV)/.dev ## Let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what was built
	rm -rf $(VENV) $(VENV)-wheel build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A venv that cannot be finished is removed, so that the next try starts anew. Groups need pip 25.1.
define venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "capstate needs Python 3.11 or newer as '$(PYTHON)'; choose one with make PYTHON=..." >&2; exit 1; }
	@echo "making $(1) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(1) || { rm -rf $(1); echo "python's venv module is missing; on Debian: python3-venv" >&2; exit 1; }
	@$(1)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' || { rm -rf $(1); exit 1; }
endef

$(VENV)/bin/pip:
	$(call venv,$(VENV))

$(VENV)-wheel/bin/pip:
	$(call venv,$(VENV)-wheel)

$(VENV)/.run: pyproject.toml | $(VENV)/bin/pip
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/pip
	$(PIP) --editable '.[$(EXTRAS)]' --group dev
	$(PIP) --no-deps '$(BFCL)' # its data files are read; none of its code is run, so nothing that it needs is there
	@touch $@ $(VENV)/.run

# Dependencies come with the wheel's own list; the wheel itself is put in anew on each run.
$(VENV)-wheel/.test: pyproject.toml | $(VENV)-wheel/bin/pip
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check . --group test
	@touch $@

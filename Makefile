# Makes an environment in .venv and hands over to nox: what is checked, and how, is in noxfile.py.
# Needs python3 (3.11 or newer, with venv) and make; everything else comes pinned and hashed from requirements/dev.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
NOX := $(BIN)/python -m nox

# The number of examples a property is tried with (tests/conftest.py). `make test` is what CI runs, so it counts as CI.
HYPOTHESIS_PROFILE ?= ci
export HYPOTHESIS_PROFILE

.PHONY: test demo lint bench clean

test: $(VENV)/.ready
	$(NOX)

demo: $(VENV)/.ready
	$(BIN)/kai simulate examples/lab
	@echo "next: $(BIN)/kai demo    the same lab over a day, live in this terminal"

lint: $(VENV)/.ready
	$(NOX) --session lint contracts types

bench: $(VENV)/.ready
	$(NOX) --session bench

clean:
	rm -rf $(VENV) .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* build dist htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two stamps, because they change for different reasons: the packages with the pins, the editable install (scripts and
# entry points) with pyproject.toml. The second takes a second.
$(VENV)/.packages: requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("kai needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0])'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing the pinned packages into $(VENV) (once; a minute or two)"
	@$(PIP) install --use-pep517 --require-hashes --requirement requirements/dev.txt
	@touch $@

$(VENV)/.ready: $(VENV)/.packages pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

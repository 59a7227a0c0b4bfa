# Two commands for everyone: `make demo` runs the main job, `make test` passes the tests. Each installs what it needs, once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: demo test check install clean

demo: install
	$(BIN)/coreshot demo

test: install
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/pytest -n 2

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "coreshot needs Python 3.11 or newer with the venv module; found $$($(PYTHON) --version). Set PYTHON=..." >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache

# `make demo` runs the main job, `make quick` the tests of at most two minutes, `make test` all tests.
# Each installs what it needs, once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
# Several processes share the cores: BLAS threads of each would wait for the others' cores, spinning.
quick test: export OPENBLAS_NUM_THREADS = 1
quick test: export OMP_NUM_THREADS = 1

.PHONY: demo docs quick test checks types tests bench install clean

demo: install
	$(BIN)/coreshot demo

# The documentation's site in site/, offline; a warning or a dead link is an error.
docs: install
	DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

# Both print their wall time and the peak memory of all their processes at the end.
quick: install
	$(BIN)/python benchmarks/watch.py $(BIN)/pytest -n 2 -m "not slow" \
	  tests/contract tests/byhand tests/truth tests/wire

test: install
	$(BIN)/python benchmarks/watch.py $(MAKE) --no-print-directory checks

checks: install
	$(BIN)/ruff format --check src tests benchmarks examples docs/site
	$(BIN)/ruff check src tests benchmarks examples docs/site
	$(MAKE) --no-print-directory --jobs=2 types tests

types: install
	$(BIN)/mypy

# Three workers on two cores: the one that has the federations waits much of its time.
tests: install
	$(BIN)/pytest -n 3

# coreshot beside its peers, each peer in an environment of its own; writes bench.json.
# About ten minutes on two idle cores; `python benchmarks/run.py --only fkl_update` runs a part.
bench: install .venv-fedjax/installed .venv-torch/installed
	$(BIN)/python benchmarks/run.py

.venv-%/installed: benchmarks/%-requirements.txt
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "coreshot needs Python 3.11 or newer with the venv module; found $$($(PYTHON) --version). Set PYTHON=..." >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf .venv .venv-fedjax .venv-torch .mypy_cache .ruff_cache .pytest_cache

# make demo: the main job. make test: everything that a fresh clone can prove. make check: lint, types, layers, tests.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check lint bench clean data

demo: .venv/installed
	$(BIN)/vgrads demo

test: .venv/developed
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered

check: lint test

lint: .venv/developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/developed
	$(BIN)/python scripts/bench.py

data: .venv/installed
	$(BIN)/python scripts/make_data.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/developed: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

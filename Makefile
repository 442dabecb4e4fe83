# make demo: the main job. make test: the tests that a newcomer needs, in minutes. make check: lint, types, layers, tests.
# make test-more: the rest of the tests, with real services; make test-long: those that are run by hand,
# and all examples of properties.
# make docs: the documents as a site. make wheel: what is installed elsewhere. make snakemake: a Snakemake with the plugin.
# make coverage: the tests, with what they reach, which takes longer.
PYTHON ?= python3
BIN := .venv/bin

# tests wait more than they compute, those with services most: more of them at a time than there are
# processors
WORKERS ?= $(if $(filter test-more,$@),5,4)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations 10 -rs

# and begin hundreds of processes, which need not compile every module anew
unexport PYTHONDONTWRITEBYTECODE

# make shell: a prompt with sites, a planned set and a run half way.
# make pictures: docs/pictures, every page of the portal in every state
.PHONY: interfaces shell pictures demo environments test test-more test-long coverage check lint bench docs wheel licences audit clean data snakemake

demo: .venv/installed
	$(BIN)/vgrads demo

test: .venv/developed .venv/snakemake/ready
	$(PYTEST) -m "not more and not services and not long"

test-more: .venv/developed .venv/snakemake/ready .venv/portals/ready .venv/slurm-clients/ready
	$(PYTEST) --second-try -m "(more or services) and not long"

# all that is installed for the tests and the documents, without running them
environments: .venv/developed .venv/snakemake/ready .venv/portals/ready .venv/slurm-clients/ready .venv/documented

test-long: .venv/developed .venv/snakemake/ready .venv/slurm-clients/ready
	VGRADS_EXAMPLES=1 $(BIN)/python -m pytest -m "long or hypothesis" --durations 10

coverage: .venv/developed .venv/snakemake/ready .venv/portals/ready .venv/slurm-clients/ready
	$(PYTEST) -m "not long" --cov --cov-report=term:skip-covered

check: lint test

lint: .venv/developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/interface/client_program.py
	$(BIN)/lint-imports
	$(BIN)/ast-grep scan --error=unused-suppression
	$(BIN)/ast-grep test
	$(BIN)/python -m scripts.interfaces --check

# commands, functions, the client's methods and docs/reference.md, from vgrads/operations
interfaces: .venv/developed
	$(BIN)/python -m scripts.interfaces

# a Python prompt with sites, a planned set and a run half way
shell: .venv/installed
	$(BIN)/python -m scripts.shell

bench: .venv/developed
	$(BIN)/python scripts/bench.py

pictures: .venv/developed
	$(BIN)/python -m tests.portal.pages.pictures docs/pictures

docs: .venv/documented
	rm -rf docs/api  # pages of packages that are gone
	$(BIN)/sphinx-build -q -W --keep-going -j auto $(SPHINXOPTS) -b html docs docs/site
	@echo "docs/site/index.html"

# LICENSES-dependencies.md, from what the installed packages state
licences: .venv/developed .venv/documented
	$(BIN)/python scripts/licences.py

# asks the registry's advisories, which not every machine reaches
audit: .venv/developed
	$(BIN)/pip-audit -r constraints.txt --no-deps --disable-pip

# wheels and archive, judged by twine
wheel: .venv/developed
	$(BIN)/python scripts/release.py --build

data: .venv/installed
	$(BIN)/python scripts/make_data.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml studies/pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e . -e studies
	touch $@

.venv/developed: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e studies
	touch $@

snakemake: .venv/snakemake/ready

# an environment of its own: this one's pinned versions exclude Snakemake's
.venv/snakemake/ready: .venv/bin/python pyproject.toml constraints-snakemake.txt plugins/snakemake-executor-plugin-vgrads/pyproject.toml
	$(PYTHON) -m venv .venv/snakemake
	.venv/snakemake/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-snakemake.txt \
	  -e . -e plugins/snakemake-executor-plugin-vgrads snakemake pytest
	touch $@

# programs that show forecasts, for the tests of deploy/, and those that read the description of the
# service: their pinned versions differ too
.venv/portals/ready: .venv/bin/python constraints-portals.txt
	$(PYTHON) -m venv .venv/portals
	.venv/portals/bin/python -m pip install --quiet --disable-pip-version-check -r constraints-portals.txt
	touch $@

# programs that call Slurm's commands, for the tests of vgrads slurm
.venv/slurm-clients/ready: .venv/bin/python constraints-slurm-clients.txt
	$(PYTHON) -m venv .venv/slurm-clients
	.venv/slurm-clients/bin/python -m pip install --quiet --disable-pip-version-check -r constraints-slurm-clients.txt
	touch $@

.venv/documented: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf .venv dist docs/site docs/api .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

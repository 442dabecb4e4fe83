"""Imports: the layers hold, and no modules or folders import each other in a circle."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.house.test_house import PROJECT

SETTINGS = PROJECT["tool"]["importlinter"]
(NO_CIRCLES,) = [c for c in SETTINGS["contracts"] if c["type"] == "acyclic_siblings"]
AT_ONCE = "from sample.pages.page import x\n"
LATE = f"def load():\n    {AT_ONCE}    return x\n"
FOR_TYPES = f"from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    {AT_ONCE}"


def lint(folder):
    """Check the contracts of the project in a folder: the exit code and the report."""
    call = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def as_toml(table):
    """The keys of a table without tables in it, as lines."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def write_sample(folder, service):
    """Write a package of a page and the service below it, with our settings and our contract."""
    pages = folder / "sample" / "pages"
    pages.mkdir(parents=True)
    for package in (pages.parent, pages):
        (package / "__init__.py").write_text("")
    (pages / "page.py").write_text("from sample.service import load\n\nx = load\n")
    (pages.parent / "service.py").write_text(service)
    ours = {k: v for k, v in SETTINGS.items() if k != "contracts"} | {"root_packages": ["sample"]}
    contract = NO_CIRCLES | {"ancestors": ["sample"]}
    (folder / "pyproject.toml").write_text(
        f"[tool.importlinter]\n{as_toml(ours)}\n"
        f"[[tool.importlinter.contracts]]\n{as_toml(contract)}"
    )


def test_layers_hold_and_there_is_no_circle():
    code, report = lint(ROOT)
    assert code == 0, report


@pytest.mark.parametrize("back", [AT_ONCE, LATE, FOR_TYPES])
def test_a_circle_is_reported_with_the_import_to_cut(tmp_path, back):
    write_sample(tmp_path, back)
    code, report = lint(tmp_path)
    assert code == 1
    assert "No cycles are allowed in sample." in report
    assert ".pages -> .service" in report or ".service -> .pages" in report


def test_imports_in_one_direction_are_no_circle(tmp_path):
    write_sample(tmp_path, "def load():\n    return 1\n")
    code, report = lint(tmp_path)
    assert code == 0, report

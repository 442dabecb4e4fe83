"""The rules of the house that a machine can hold: layers, sizes, no addresses of this machine, no
stubs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = (
    "kernel",
    "traces",
    "workflows",
    "simulator",
    "drivers",
    "qbets",
    "runtimes",
    "vgrid",
    "planner",
    "bags",
    "execmgr",
    "dispatch",
    "desk",
    "portal",
    "studies",
)
LONG = {"run_manager"}  # compiled loops that say why they are one
SOURCES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))


def test_layers_hold():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_are_small_and_say_what_they_are(path):
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= 400
    assert path.name == "__main__.py" or ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60 or node.name in LONG, node.name


def test_no_registry_and_no_path_of_a_machine_is_named():
    words = [
        "py" + r"pi\.org",
        "python" + "hosted",
        r"registry\.npm" + "js",
        "/" + "work/main",
        "/" + "root/",
    ]
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    names = [ROOT / name for name in tracked] or SOURCES
    for path in names:
        if path.is_file() and path.suffix not in (".gz", ".png"):
            found = re.search("|".join(words), path.read_text(errors="replace"))
            assert not found, f"{path}: {found}"


def test_every_package_is_shipped():
    listed = (ROOT / "pyproject.toml").read_text()
    for package in PACKAGES:
        assert f'"{package}"' in listed
        assert (ROOT / package / "__init__.py").exists()
        assert Path(ROOT / package).is_dir()

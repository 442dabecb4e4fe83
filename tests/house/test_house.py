"""The rules of the code that a machine can check: layers, sizes, no names of this machine."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
(TOP,) = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PACKAGES = tuple(sorted(p.parent.name for p in (ROOT / TOP).glob("*/__init__.py")))
LINKED = ("vgrid", "planner", "qbets", "drivers", "execmgr")
TRACKED = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
]
PRODUCT = (TOP, *LINKED, "plugins")
SOURCES = sorted(
    {
        path
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if path.is_file() and ".venv" not in path.parts and "tests" not in path.parts
    }
)
SCRIPTS = sorted(path for path in (ROOT / TOP).rglob("*.js"))
LONG_FUNCTIONS = {"run_manager", "replay_compiled"}  # compiled loops that say why they are one
MOST_LINES, MOST_FILES, MOST_LINES_OF_A_FUNCTION = 400, 25, 60
MOST_LINES_OF_A_CLASS, MOST_ANY = 200, 150


def shown(path):
    return str(path.relative_to(ROOT))


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


@pytest.mark.parametrize("path", SOURCES, ids=shown)
def test_files_and_functions_are_small_and_documented(path):
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= MOST_LINES
    assert path.name == "__main__.py" or ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.body[0].lineno + 1
            assert lines <= MOST_LINES_OF_A_FUNCTION or node.name in LONG_FUNCTIONS, node.name


def test_classes_are_small():
    long = {
        f"{shown(path)}: {node.name}": node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.end_lineno - node.lineno >= MOST_LINES_OF_A_CLASS
    }
    assert long == {}


def test_signatures_name_their_types():
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "ANN401", "--output-format", "concise"]
        + [str(path) for path in SOURCES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("ANN401") <= MOST_ANY, done.stderr


@pytest.mark.parametrize("path", SCRIPTS, ids=shown)
def test_scripts_of_pages_are_small(path):
    assert path.read_text().count("\n") <= MOST_LINES


def test_the_formatter_is_never_switched_off():
    switch = "fmt" + ": "
    assert not [shown(p) for p in TRACKED if p.suffix == ".py" and switch in p.read_text()]


def test_no_folder_holds_more_files_than_a_person_can_survey():
    counts = {}
    for path in TRACKED:
        if path.suffix == ".py" and path.is_file():
            counts[path.parent] = counts.get(path.parent, 0) + 1
    assert {shown(p): n for p, n in counts.items() if n > MOST_FILES} == {}


def test_no_registry_and_no_path_of_a_machine_is_named():
    words = [
        "py" + r"pi\.org",
        "python" + "hosted",
        r"registry\.npm" + "js",
        "/" + "work/main",
        "/" + "root/",
    ]
    for path in TRACKED or SOURCES:
        if path.is_file() and path.suffix not in (".gz", ".xz", ".png"):
            match = re.search("|".join(words), path.read_text(errors="replace"))
            assert not match, f"{path}: {match}"


def test_packages_are_links_to_the_top_level_or_folders_of_their_own():
    for name in PACKAGES:
        assert (ROOT / TOP / name).is_symlink() == (name in LINKED)
    assert set(LINKED) <= set(PACKAGES)

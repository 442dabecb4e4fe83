"""The rules of the code that a machine can check: documented modules, no names of this machine."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache

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
PRODUCT = (TOP, *LINKED, "plugins", "studies")
SOURCES = sorted(
    {
        path
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if path.is_file() and ".venv" not in path.parts and "tests" not in path.parts
    }
)
MOST_ANY = 150
MOST_WIDE = 120


def shown(path):
    return str(path.relative_to(ROOT))


@cache
def nodes_of(path):
    """All nodes of a program; to walk the trees takes as long as to parse them."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def test_every_module_says_what_it_is():
    undocumented = [shown(path) for path in SOURCES if not ast.get_docstring(nodes_of(path)[0])]
    assert [name for name in undocumented if not name.endswith("__main__.py")] == []


def test_lines_of_pages_are_short():
    """Templates, scripts and styles; Python's are limited by ruff."""
    kinds = (".html", ".js", ".css")
    long = {
        f"{shown(path)}:{number}": len(line)
        for path in TRACKED
        if path.suffix in kinds and TOP in path.parts and path.is_file()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MOST_WIDE
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


def test_the_formatter_is_never_switched_off():
    switch = "fmt" + ": "
    assert not [shown(p) for p in TRACKED if p.suffix == ".py" and switch in p.read_text()]


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


def module_file(name):
    """The file of a module of the product or the studies; None of anything else, and of ``vgrads``
    itself, whose names are loaded when they are used."""
    if not name.startswith(("vgrads.", "vgrads_studies.")):
        return None
    folder = (
        ROOT / ("studies" if name.startswith("vgrads_studies") else "") / name.replace(".", "/")
    )
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


@cache
def names_in(path):
    """What a module defines or imports at its top level, within conditions too."""
    bound = set()
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return bound


def test_benchmarks_and_scripts_import_what_exists():
    """Nobody runs all of them at each change, and no types are checked in them."""
    missing = []
    for path in TRACKED:
        if path.suffix != ".py" or path.relative_to(ROOT).parts[0] not in ("benchmarks", "scripts"):
            continue
        for node in nodes_of(path):
            file = module_file(node.module or "") if isinstance(node, ast.ImportFrom) else None
            if file is None:
                continue
            known = names_in(file) if file.is_file() else set()
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if alias.name not in known and not module_file(name).is_file():
                    missing.append(f"{shown(path)}: {name}")
    assert missing == []

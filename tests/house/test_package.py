"""What is installed: one name in site-packages, the same from a checkout and from an archive."""

import ast
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.conftest import ROOT
from tests.house.test_house import LINKED, TOP
from vgrads.exchange.agent_file import pilot_command


def built(project, target, out):
    subprocess.run(
        [sys.executable, "-P", "-m", "hatchling", "build", "-t", target, "-d", str(out)],
        cwd=project,
        check=True,
        capture_output=True,
    )
    (result,) = out.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return result


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_a_single_name_apart_from_its_metadata(wheel):
    names = {name.split("/")[0] for name in contents(wheel)}
    assert {name for name in names if not name.endswith(".dist-info")} == {TOP}


def test_every_package_is_in_the_wheel(wheel):
    names = set(contents(wheel))
    expected = {
        f"{TOP}/{path.relative_to(ROOT / TOP)}"
        for folder in (ROOT / TOP, *(ROOT / TOP / name for name in LINKED))
        for path in folder.rglob("*.py")
    }
    assert expected <= names
    assert f"{TOP}/api/embedded/sites.toml" in names
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_of_the_archive_is_the_wheel_of_the_checkout(wheel, tmp_path):
    archive = built(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (project,) = tmp_path.glob("vgrads-*")
    assert contents(built(project, "wheel", tmp_path / "again")) == contents(wheel)


def test_no_module_is_loaded_under_two_names(tmp_path):
    """Every module is imported, from a folder of its own; no file may then be there twice."""
    code = (
        "import importlib, os, pkgutil, sys, vgrads\n"
        "for module in pkgutil.walk_packages(vgrads.__path__, 'vgrads.'):\n"
        "    if module.name.rpartition('.')[2] not in"
        " ('__main__', 'block_runner', 'snakemake_child')"
        " and '.migrations.' not in module.name:\n"
        "        importlib.import_module(module.name)\n"
        "files = {}\n"
        "for name, module in list(sys.modules.items()):\n"
        "    file = getattr(module, '__file__', None)\n"
        "    if file and name != '__main__':\n"
        "        files.setdefault(os.path.realpath(file), set()).add(name)\n"
        "root = os.path.dirname(os.path.dirname(os.path.realpath(vgrads.__file__)))\n"
        "own = {f: n for f, n in files.items() if f.startswith(root) and '.venv' not in f}\n"
        "assert len(own) > 400, len(own)\n"
        "print([sorted(n) for n in own.values() if len(n) > 1])\n"
        "print([n for n in own.values() for n in n if not n.startswith('vgrads')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("[]\n[]\n", 0), done.stderr[-2000:]


def test_the_agent_imports_the_standard_library_and_itself():
    for path in (ROOT / TOP / "agent").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            else:
                continue
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names | {"fsspec"}, path.name


def test_files_in_the_home_folder_harm_no_agent(tmp_path):
    for name in ("drivers", "planner", "pool", "kernel", "json", "vgrads"):
        (tmp_path / f"{name}.py").write_text('raise SystemExit("harmed")\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def run(*command):
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    agent = run("/bin/sh", "-c", pilot_command(sys.executable))
    assert agent.returncode != 0  # nobody said where its manager is
    assert "VGRADS_" in agent.stderr and "harmed" not in agent.stderr


def test_pilots_of_slots_start_with_nothing_of_their_folder_on_the_path():
    """The command that a job carries."""
    words = '[sys.executable, "-I", "-X", "vgrads-agent", "/proc/self/fd/%d" % number]'
    assert words in (ROOT / TOP / "exchange" / "agent_file.py").read_text()

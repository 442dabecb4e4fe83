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
from vgrads.exchange.agent_file import write_agent_command


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
    assert {f"{TOP}/api/embedded/sites.toml", f"{TOP}/py.typed"} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_of_the_archive_is_the_wheel_of_the_checkout(wheel, tmp_path):
    archive = built(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (project,) = tmp_path.glob("vgrads-*")
    assert contents(built(project, "wheel", tmp_path / "again")) == contents(wheel)


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

    agent = run("/bin/sh", "-c", write_agent_command(sys.executable))
    assert agent.returncode != 0  # nobody said where its manager is
    assert "VGRADS_" in agent.stderr and "harmed" not in agent.stderr


def test_pilots_of_slots_start_with_nothing_of_their_folder_on_the_path():
    """The command that a job carries."""
    words = '[sys.executable, "-I", "-X", "vgrads-agent", "/proc/self/fd/%d" % number]'
    assert words in (ROOT / TOP / "exchange" / "agent_file.py").read_text()

"""An environment with the plugin: other Snakefiles work as before, wrong versions say so."""

import os
import subprocess

import pytest

from tests.snakemake.snakemakes import HERE, PYTHON, SNAKEMAKE, needed

pytestmark = pytest.mark.usefixtures("snakemake")


@pytest.fixture
def snakemake():
    needed()


def plain(folder, *options, **more):
    environment = {**os.environ, **more}
    command = [SNAKEMAKE, "--cores", "1", *options]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("file", "imported"),
    [
        ("workflows/samples.py", "from workflows.samples import NAMES"),
        ("kernel.py", "from kernel import NAMES"),
        ("planner.py", "from planner import NAMES"),
    ],
)
def test_a_snakefile_imports_what_lies_next_to_it(tmp_path, file, imported):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text('NAMES = ["a", "b"]\n')
    (tmp_path / "Snakefile").write_text(
        f"{imported}\nrule all:\n    input: NAMES\n"
        'rule one:\n    output: "{name}"\n    shell: "echo {wildcards.name} > {output}"\n'
    )
    done = plain(tmp_path, "-n")
    assert done.returncode == 0, done.stderr
    assert plain(tmp_path, "-q", "all").returncode == 0
    assert (tmp_path / "b").read_text() == "b\n"


def test_a_vgrads_of_another_version_is_a_single_clear_error(tmp_path):
    """Plain runs go on; only ``--executor vgrads`` says what is wrong."""
    other = tmp_path / "site" / "vgrads-99.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: vgrads\nVersion: 99.0\n")
    (tmp_path / "sites.toml").write_text(HERE)
    (tmp_path / "Snakefile").write_text('rule all:\n    output: "a"\n    shell: "touch {output}"\n')
    path = {"PYTHONPATH": str(tmp_path / "site")}
    assert plain(tmp_path, "-q", "all", **path).returncode == 0
    (tmp_path / "a").unlink()
    done = plain(
        tmp_path, "-j", "1", "--executor", "vgrads", "--vgrads-sites", "sites.toml", **path
    )
    assert done.returncode != 0
    assert "vgrads itself: 99.0. Install both in the same version" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a").exists()


def test_the_plugin_adds_a_single_name_next_to_vgrads(tmp_path):
    code = (
        "from importlib.metadata import files\n"
        "names = {f.parts[0] for f in files('snakemake-executor-plugin-vgrads') or ()}\n"
        "print(*sorted(n for n in names if not n.endswith(('.dist-info', '.pth'))))\n"
    )
    done = subprocess.run(
        [*PYTHON, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= {"snakemake_executor_plugin_vgrads"}

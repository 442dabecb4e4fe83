"""The folders of examples/ run as they are, by the commands of their READMEs."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.slurm.installed import installed
from tests.snakemake.snakemakes import BIN, needed

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
MOST_LINES = 14


def commands(name):
    """What a README has a reader type, without comments."""
    lines = (EXAMPLES / name / "README.md").read_text().splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.startswith("    ")]


@pytest.fixture
def example(request, tmp_path):
    """A copy of a folder: nothing is left in the checkout."""
    return shutil.copytree(
        EXAMPLES / request.param, tmp_path / request.param, ignore=shutil.ignore_patterns("nights")
    )


@pytest.fixture
def around(tmp_path):
    """The environment of somebody who has installed vgrads."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vgrads"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m vgrads "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "VGRADS_HOME": str(tmp_path / "home")}


def run(line, folder, environment):
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_has_a_short_readme_and_is_listed(name):
    text = (EXAMPLES / name / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_LINES and text.startswith("# ")
    assert commands(name)
    assert f"({name}/README.md)" in (EXAMPLES / "README.md").read_text()
    for page in re.findall(r"`(docs/[\w.]+)`", text):
        assert (ROOT / page).is_file(), page


@pytest.mark.more
@pytest.mark.parametrize("example", ["nightly-forecast"], indirect=True)
def test_a_night_keeps_its_promise(example, around):
    assert "./nightly.sh; cat nights/*/run.txt" in commands(example.name)
    told = run("./nightly.sh; cat nights/*/run.txt", example, around)
    assert "the promise was KEPT" in " ".join(told.split())
    (night,) = (example / "nights").iterdir()
    assert {path.name for path in night.iterdir()} == {
        *("plan.txt", "run.txt", "plan.html", "run.html")
    }


@pytest.mark.more
@pytest.mark.parametrize("example", ["nightly-forecast"], indirect=True)
def test_a_night_that_cannot_be_promised_ends_with_3(example, around):
    file = example / "forecast.yaml"
    file.write_text(file.read_text().replace("deadline: 4h", "deadline: 30m"))
    done = subprocess.run([example / "nightly.sh"], env=around, capture_output=True, check=False)
    assert done.returncode == 3
    (night,) = (example / "nights").iterdir()
    assert not (night / "run.txt").exists()


def test_timer_and_crontab_start_the_script_at_one_oclock():
    folder = EXAMPLES / "nightly-forecast"
    assert os.access(folder / "nightly.sh", os.X_OK)
    assert "ExecStart=%h/nightly-forecast/nightly.sh\n" in (folder / "nightly.service").read_text()
    assert "OnCalendar=*-*-* 01:00:00\n" in (folder / "nightly.timer").read_text()
    (line,) = (
        line for line in (folder / "crontab").read_text().splitlines() if not line.startswith("#")
    )
    assert line.split()[:5] == ["0", "1", "*", "*", "*"]
    assert line.endswith("$HOME/nightly-forecast/nightly.sh")


@pytest.mark.more
@pytest.mark.parametrize("example", ["sweep-20-dollars"], indirect=True)
def test_the_sweep_has_a_plan_for_20_dollars(example, around):
    plan = json.loads(run(f"{commands(example.name)[0]} --json", example, around))
    assert plan["chosen"]["probability"] >= 0.9


@pytest.mark.long
@pytest.mark.parametrize("example", ["sweep-20-dollars"], indirect=True)
def test_the_sweep_ends_in_time_and_costs_at_most_20_dollars(example, around):
    bag, status = commands(example.name)[1:3]
    told = " ".join(run(bag, example, around).split())
    assert "400 of 400 tasks done" in told and "the goal was reached in time" in told
    (spent,) = re.findall(r"\$([\d.]+) spent", told)
    assert 0 < float(spent) <= 20
    assert "sweep" in run(status, example, around)


@pytest.mark.more
@pytest.mark.parametrize("example", ["sbatch-unchanged"], indirect=True)
def test_the_pipeline_of_sbatch_runs_unchanged(example, tmp_path):
    assert "./pipeline.sh" in commands(example.name)
    group = {"SBATCH_COMMENT": "vgrads:sums", "SBATCH_DEADLINE": "now+10minutes"}
    with installed(tmp_path / "slurm") as slurm:
        told = slurm.run("./pipeline.sh", cwd=example, env={**slurm.environment, **group})
        parts, total = re.findall(r"\d{10}", told)
        assert slurm.wait(parts, total) == ["COMPLETED"] * 5
        assert (example / "total.txt").read_text() == "5050\n"
        assert slurm.run(*slurm.vgrads, "gantt", "sums", tmp_path / "sums.html")


@pytest.mark.more
@pytest.mark.parametrize("example", ["snakefile-deadline"], indirect=True)
def test_the_snakefile_runs_with_a_deadline(example, around):
    needed()
    (line,) = (line for line in commands(example.name) if line.startswith("snakemake"))
    environment = {**around, "PATH": f"{BIN}:{around['PATH']}"}
    told = run(f"{line} 2>&1", example, environment)
    assert re.search(r"vgrads: done by .* with probability", told), told
    assert (example / "counts.txt").read_text().split()[:2] == ["2", "east"]
    assert len((example / "counts.txt").read_text().splitlines()) == 16


@pytest.mark.more
def test_the_cells_of_the_notebook_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "notebook" / "deadline.ipynb").read_text())
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            exec(compile("".join(cell["source"]), "cell", "exec"), names)
    assert names["bound"].bound_s > 0
    assert names["plan"].feasible and names["run"].verdict == "kept"

"""`vgrads init`: three questions, two files, nothing overwritten; what it writes can be planned."""

import os
import pty
import shutil
import subprocess
import sys

import pytest

from tests.conftest import DATA
from vgrads.vgrid.catalog import load_catalog

JX = '{"rules": [{"command": "date > a.txt", "outputs": ["a.txt"]}]}'


@pytest.mark.parametrize("workflow", ["example", "flow.jx"])
@pytest.mark.parametrize("sites", ["here", "waits.swf.gz"])
def test_what_is_written_can_be_planned(vgrads, tmp_path, workflow, sites):
    (tmp_path / "flow.jx").write_text(JX)
    shutil.copy(DATA / "histories" / "kittyhawk.swf.gz", tmp_path / "waits.swf.gz")
    options = ("--workflow", workflow, "--sites", sites, "--deadline", "20h")
    answer = vgrads("init", tmp_path, *options)
    assert (answer.code, answer.err) == (0, "")
    assert "vgrads plan set.yaml" in answer.out
    planned = vgrads("plan", tmp_path / "set.yaml", "--json")
    assert planned.code == 0, planned.err
    assert planned.json["deadline_s"] == 20 * 3600.0
    site = "here" if sites == "here" else "simulated"
    assert {slot["site"] for slot in planned.json["slots"]} == {site}


def test_without_a_terminal_the_first_that_is_found_is_taken(vgrads, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # without Snakemake
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow" / "Snakefile").write_text("rule all:\n")
    (tmp_path / "z.cwl").write_text("cwlVersion: v1.2\n")
    answer = vgrads("init", tmp_path, "--sites", "here")
    steps = answer.out.replace("\n", " ")
    assert steps.index("pip install vgrads snakemake") < steps.index("snakemake --executor vgrads")
    assert 'file: "workflow/Snakefile"' in (tmp_path / "set.yaml").read_text()


@pytest.mark.parametrize("name", ["set.yaml", "sites.toml"])
def test_no_file_is_overwritten_and_nothing_is_half_written(vgrads, tmp_path, name):
    (tmp_path / name).write_text("mine")
    answer = vgrads("init", tmp_path, "--sites", "here")
    assert (answer.code, f"{name}: exists already" in answer.err) == (2, True)
    assert {path.name: path.read_text() for path in tmp_path.glob("s*.*")} == {name: "mine"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workflow", "none.cwl"), "--workflow: there is no file 'none.cwl'"),
        (("--sites", "none.swf"), "--sites: there is no file 'none.swf'"),
        (("--deadline", "soon"), "--deadline"),
    ],
)
def test_a_wrong_answer_writes_nothing(vgrads, tmp_path, options, message):
    fixed = () if "--sites" in options else ("--sites", "here")
    answer = vgrads("init", tmp_path, *options, *fixed)
    assert (answer.code, message in answer.err) == (2, True), answer.err
    assert not list(tmp_path.glob("s*.*"))
    missing = vgrads("init", tmp_path / "nowhere")
    assert (missing.code, "is not a folder" in missing.err) == (2, True)


def test_a_bare_number_is_no_deadline(vgrads, tmp_path):
    answer = vgrads("init", tmp_path, "--sites", "here", "--deadline", "90")
    assert (answer.code, "'90' has no unit (write 90s, 90m or 90h)" in answer.err) == (2, True)
    assert not list(tmp_path.glob("s*.*"))


def test_three_questions_at_a_terminal(tmp_path):
    (tmp_path / "flow a b.jx").write_text(JX)
    shutil.copy(DATA / "histories" / "mercury.swf.gz", tmp_path / "waits.swf.gz")
    here, there = pty.openpty()
    command = [sys.executable, "-m", "vgrads", "init", str(tmp_path)]
    with subprocess.Popen(command, stdin=there, stdout=there, stderr=there) as process:
        os.close(there)
        os.write(here, b"1\nwaits.swf.gz\n90\n\n")  # the question of the unit: 90m
        written = b""
        try:
            while more := os.read(here, 4096):
                written += more
        except OSError:  # the terminal was closed
            os.close(here)
    text = written.decode()
    assert process.returncode == 0, text
    questions = ("What is to be run?", "Where?", "By when", "90 of which unit: 90s, 90m or 90h?")
    assert [q in text for q in questions] == [True] * 4
    chosen = (tmp_path / "set.yaml").read_text()
    assert 'file: "flow a b.jx"' in chosen
    assert 'deadline: "90m"' in chosen
    assert 'history = "waits.swf.gz"' in (tmp_path / "sites.toml").read_text()


@pytest.mark.services
def test_the_partitions_of_a_real_slurm(slurm_site, vgrads, tmp_path):
    answer = vgrads("init", tmp_path)  # Slurm is the first that is found
    assert answer.code == 0, answer.err
    (site,) = load_catalog(tmp_path / "sites.toml").sites
    assert (site.driver, site.procs > 0, bool(site.queues)) == ("slurm", True, True)
    checked = vgrads("sites", "check", tmp_path / "sites.toml")
    assert checked.code == 0, checked.out

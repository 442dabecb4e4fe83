"""Columns as wide as a format states: the service's memory does not depend on it."""

import pytest

from tests.slurm.http_service import answering
from tests.slurm.test_program import call, place  # noqa: F401
from tests.slurm.test_service import Slurm
from vgrads.slurm.errors import SlurmError
from vgrads.slurm.text.hostlist import expand_hostlist
from vgrads.slurm.text.padding import MAX_WIDTH, expanded, pad_left, pad_right, run_of

WIDE = {
    "squeue": [("-o", "%.{}i"), ("-o", "%{}i|%j"), ("-O", "JobID:.{}"), ("-O", "JobID:{}|,Name")],
    "sacct": [("-o", "jobid%{}"), ("-o", "jobid%-{},State")],
    "sinfo": [("-o", "%{}P"), ("-O", "partition:{}")],
    "sacctmgr": [("show", "user", "format=user%{}")],
}


@pytest.fixture
def slurm(tmp_path):
    slurm = Slurm(tmp_path)
    slurm.submit("-H", "--array=0-9", "--wrap=true")
    yield slurm
    slurm.end()


def forms():
    return [(name, words) for name, several in WIDE.items() for words in several]


@pytest.mark.parametrize(("command", "words"), forms())
def test_a_wide_column_is_padded_by_the_program(slurm, command, words):
    words = [word.format(MAX_WIDTH) for word in words]
    sent = slurm.ask(command, *words, pads=True)
    assert sent["code"] == 0, sent
    assert len(expanded(sent["out"], 10**9)) > MAX_WIDTH
    assert len(sent["out"]) < 10_000
    assert slurm.ask(command, *words)["out"] == expanded(sent["out"], 10**9)  # an older program


@pytest.mark.parametrize("width", [MAX_WIDTH + 1, 99999999999, "9" * 5000, "0" * 5000 + "9" * 9])
@pytest.mark.parametrize(("command", "words"), forms())
def test_a_column_that_is_too_wide_is_refused(slurm, command, words, width):
    answer = slurm.ask(command, *[word.format(width) for word in words], pads=True)
    assert (answer["code"], answer["out"]) == (1, "")
    assert f"{MAX_WIDTH} at most" in answer["err"] and len(answer["err"]) < 200


def test_a_table_that_is_too_long_for_an_older_program_is_refused(slurm):
    answer = slurm.ask("squeue", "-r", "-o", f"%{MAX_WIDTH}i" * 20)
    assert answer["code"] == 1
    assert "vgrads slurm install" in answer["err"]


def test_the_program_writes_columns_out(place):  # noqa: F811
    text = f"{pad_right('a', 300_000)}|{pad_left('é', 500)}|{pad_left('b', 3)}{run_of('-', 600)}\n"
    with answering(str(place / "s"), [{"out": text, "err": "", "code": 0}]):
        done = call(place, "squeue")
    padded = f"{'a'.ljust(300_000)}|{'é'.rjust(500)}|  b{'-' * 600}\n"
    assert done.stdout.decode() == expanded(text, 10**6) == padded


@pytest.mark.parametrize(
    "text", ["n[1-65537]", "n[0-999999999999]", "n[1-300]x[1-300]", "a,n[1-65536]"]
)
def test_a_list_of_too_many_hosts_is_refused(text):
    with pytest.raises(SlurmError, match="65536 at most"):
        expand_hostlist(text)
    assert len(expand_hostlist("n[1-65536]")) == 65536

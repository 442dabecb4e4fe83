"""What is said to people: everything that is wrong at once, what was meant, what was counted, whose
fault it is."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from vgrads.api.queues.forecast_cache import cached
from vgrads.kernel.documents import parse_mapping, validate
from vgrads.kernel.errors import InputError
from vgrads.portal.cli.completion import (
    complete_policies,
    complete_runs,
    complete_sets,
    complete_sites,
)
from vgrads.portal.main import _report_own_fault
from vgrads.qbets.arrays import count_distinct_starts
from vgrads.traces.history import read_history
from vgrads.vgrid.documents import SitesDocument
from vgrads.workflows.sets import SetDocument

SET = """\
name: x
deadine: 20m
fraction: 3/0
probability: high
workflows:
  - name: w
    count: 0
    taks: []
    tasks:
      - {id: a, runtime_s: -5, procs: 2.5, parents: b}
      - {id: "a/b", runtim_s: 5}
  - {}
"""
SET_WRONG = [
    "line 2: deadine: unknown key; did you mean 'deadline'?",
    "line 3: fraction: '3/0' is not a number",
    "line 4: probability: must be a number, is 'high'",
    "line 7: workflows.0.count: must be at least 1, is 0",
    "line 8: workflows.0.taks: unknown key; did you mean 'tasks'?",
    "line 10: workflows.0.tasks.0.runtime_s: must be at least 0, is -5",
    "line 10: workflows.0.tasks.0.procs: must be a whole number, is 2.5",
    "line 10: workflows.0.tasks.0.parents: must be a list, is 'b'",
    "line 11: workflows.0.tasks.1.id: 'a/b' contains characters that are not allowed here",
    "line 11: workflows.0.tasks.1.runtim_s: unknown key; did you mean 'runtime_s'?",
    "line 12: workflows.1: give either 'file' or 'tasks'",
]
SITES = """\
[[site]]
name = "a"
kind = "bath"
procs = 0
[[site.queue]]
nme = "q"
[[site]]
name = "b"
kind = "cloud"
procs = "many"
[site.access]
poll = true
"""
SITES_WRONG = [
    (
        "line 3: site.0.kind: 'bath' is none of batch, reservation, dedicated, cloud, local; "
        "did you mean 'batch'?"
    ),
    "line 4: site.0.procs: must be at least 1, is 0",
    "line 6: site.0.queue.0.nme: unknown key; did you mean 'name'?",
    "line 10: site.1.procs: must be a whole number, is 'many'",
    "line 12: site.1.access.poll: must not be true",
]


def test_everything_that_is_wrong_with_a_document_is_reported_at_once(vgrads, write):
    answer = vgrads("plan", write("set.yaml", SET))
    assert answer.code == 2
    first, *rest = answer.err.splitlines()
    assert first.endswith("set.yaml: 11 errors")
    assert [line.strip() for line in rest] == SET_WRONG
    sites = vgrads("sites", "list", write("sites.toml", SITES))
    assert [line.strip() for line in sites.err.splitlines()[1:]] == SITES_WRONG


def test_a_single_thing_is_reported_in_a_line(vgrads, write):
    answer = vgrads("plan", write("set.yaml", "name: x\ndeadline: 1h\nworkflows: []\n"))
    assert answer.err.splitlines()[0].endswith(
        "set.yaml: line 3: workflows: needs at least 1 entry"
    )


def test_the_error_carries_them_in_sequence():
    with pytest.raises(InputError) as wrong:
        validate(SetDocument, parse_mapping(SET, "body"), "body")
    assert list(wrong.value.parts) == SET_WRONG
    assert str(wrong.value).startswith("body: 11 errors: line 2:")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
        ),
    )
)
def test_whatever_stands_in_a_document_is_reported_in_words(literal):
    for model in (SetDocument, SitesDocument):
        with pytest.raises(InputError) as wrong:
            validate(
                model,
                {"name": literal, "site": literal, "workflows": literal, "deadline": 1},
                "x",
            )
        assert "Input should" not in str(wrong.value)
        assert "Field required" not in str(wrong.value)


def test_probability_is_a_number_and_compute_a_rule(vgrads):
    existing = vgrads(
        "plan", DATA / "lead.yaml", "--probability", "0.5", "--promise-model", "paper", "--json"
    ).json
    assert existing["promise"]["requested"] == 0.5
    assert (
        vgrads("plan", DATA / "lead.yaml", "-p", "95%", "--json").json["promise"]["requested"]
        == 0.95
    )
    rule = vgrads("plan", DATA / "lead.yaml", "--probability", "paper")
    assert (rule.code, "--probability" in rule.err) == (2, True)
    assert vgrads("plan", DATA / "lead.yaml", "--probability", "2").code == 2


PADDED = """\
JobID             User  Partition              Submit               Start                 End      State      NCPUS  Timelimit
------------ --------- ---------- ------------------- ------------------- ------------------- ---------- ---------- ----------
1                  ann      batch 2024-01-01T00:00:00 2024-01-01T00:01:00 2024-01-01T00:10:00  COMPLETED          4   01:00:00
2                  bob      batch 2024-01-01T00:05:00 2024-01-01T00:07:00 2024-01-01T00:20:00  COMPLETED          8 1-00:00:00
3                  bob      batch 2024-01-01T00:06:00             Unknown 2024-01-01T00:09:00 CANCELLED+          8   01:00:00
"""


def test_the_padded_form_of_sacct_is_read_too(write):
    log = read_history(write("padded.txt", PADDED))
    assert log.wait_s.tolist() == [60.0, 120.0, 180.0]
    assert log.procs.tolist() == [4, 8, 8]
    assert log.request_s.tolist() == [3600.0, 86400.0, 3600.0]
    assert log.started.tolist() == [True, True, False]


def arrays_of_three(count):
    lines = [
        f"{3 * n + k} {3600 * n} 90 600 4 -1 -1 4 3600 -1 1 7 1 1 1 1 -1 -1"
        for n in range(count)
        for k in range(3)
    ]
    return "; MaxProcs: 64\n" + "\n".join(lines) + "\n"


def test_jobs_that_were_taken_together_are_reported(vgrads, write):
    path = write("arrays.swf", arrays_of_three(52))
    assert count_distinct_starts(read_history(path), np.inf) == (156, 52)
    message = vgrads("bound", path, "--procs", "4")
    assert "156 jobs, 52 of them distinct" in message.out
    assert "--no-arrays" in message.out
    assert vgrads("bound", path, "--procs", "4", "--json").json["history"] == {
        "jobs": 156,
        "distinct": 52,
    }
    each = vgrads("bound", path, "--procs", "4", "--no-arrays")
    assert "distinct" not in each.out
    assert "from 156 waits" in each.out


@pytest.mark.parametrize("command", ["bound", "probability", "trajectory", "backtest"])
def test_an_empty_history_is_reported_as_empty(vgrads, write, command):
    more = {"probability": ["--within", "1h"], "trajectory": ["--start-by", "1h"]}.get(command, [])
    answer = vgrads(command, write("empty.swf", "\n"), *more)
    assert (answer.code, "the history is empty" in answer.err) == (2, True)


@pytest.mark.parametrize("study", ["promises", "table1", "varq", "whatif"])
def test_studies_of_a_short_history_say_that_it_is_short(vgrads, write, study):
    answer = vgrads("study", study, write("arrays.swf", arrays_of_three(52)))
    assert (answer.code, "has 156 jobs, a study of promises needs 1000" in answer.err) == (2, True)


MANY_ARMS = """
name: s
deadline: 1h
container: {image: x, engine: rkt}
workflows:
  - name: w
    errors: [{exit: [300], retries: x}]
    tasks:
      - {id: a, runtime_s: 1, inputs: [{url: "ftp://x/a"}, {url: "http://x/b", sha256: "zz"}, 3], outputs: [{name: b}]}
"""


def test_where_several_kinds_of_value_may_stand_the_fault_is_reported_where_it_is(vgrads, write):
    answer = vgrads("plan", write("set.yaml", MANY_ARMS))
    assert [line.strip() for line in answer.err.splitlines() if line.startswith("  ")] == [
        "line 4: container.engine: 'rkt' is none of apptainer, singularity, docker, podman",
        "line 7: workflows.0.errors.0.exit: 300 is not an exit code (0 to 255)",
        "line 7: workflows.0.errors.0.retries: must be a whole number, is 'x'",
        "line 9: workflows.0.tasks.0.inputs.0.url: 'ftp://x/a' is not a URL of http, https, s3, file",
        "line 9: workflows.0.tasks.0.inputs.1.sha256: 'zz' contains characters that are not allowed here",
        "line 9: workflows.0.tasks.0.inputs.2: has none of the allowed types: 3",
        "line 9: workflows.0.tasks.0.outputs.0.url: is missing",
    ]


def test_a_fault_of_our_own_asks_to_be_reported(capsys):
    try:
        raise KeyError("workflows")
    except KeyError as error:
        assert _report_own_fault(error) == 70
    message = capsys.readouterr().err
    assert "KeyError: 'workflows'" in message
    assert "Traceback" not in message
    report = Path(message.split()[-1])
    assert "test_messages.py" in report.read_text()
    report.unlink()


@pytest.mark.more
def test_tab_offers_what_is_there(vgrads, tmp_path, monkeypatch):
    vgrads("plan", DATA / "lead.yaml")
    monkeypatch.chdir(DATA)
    assert "lead.yaml" in complete_sets("le")
    assert "local/" in complete_sets("lo")
    assert complete_sets("local/")
    assert complete_policies("no-") == ["no-replication"]
    assert "local" not in complete_policies("")
    assert complete_sites("") == sorted(complete_sites(""))
    assert complete_runs("run-") == []
    assert vgrads("run", DATA / "lead.yaml", "--json").code == 0
    (run,) = complete_runs("run-")
    assert run.startswith("run-")
    monkeypatch.setenv("VGRADS_DB", "nonsense")  # Tab must never fail
    assert complete_runs("run-") == []


def test_what_was_learned_is_stored_for_the_next_question_and_for_nobody_else(
    write, tmp_path, monkeypatch
):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VGRADS_LEARNED")
    file, created = write("h.txt", "one"), []

    def make():
        created.append(1)
        return len(created)

    assert [cached(file, "q", make), cached(file, "q", make), cached(file, "other", make)] == [
        1,
        1,
        2,
    ]
    file.write_text("two")  # another content
    assert cached(file, "q", make) == 3
    folder = tmp_path / "home" / "cache" / "learned"
    (retained,) = [p for p in folder.iterdir() if pickle.loads(p.read_bytes()) == 3]
    assert retained.stat().st_mode & 0o077 == 0
    retained.write_bytes(pickle.dumps(99))
    assert cached(file, "q", make) == 99
    retained.chmod(0o666)  # anybody could have written this
    assert cached(file, "q", make) == 4
    retained.write_bytes(b"damaged")
    retained.chmod(0o600)
    assert cached(file, "q", make) == 5
    assert folder.stat().st_mode & 0o077 == 0

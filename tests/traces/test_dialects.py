"""One log, every dialect: each reader returns the same jobs, and questions have the same answer."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vgrads
from tests.conftest import DATA, SHARED
from tests.traces.dialects import (
    DIALECTS,
    NUMBERS_ALONE,
    SINGLE_QUEUE,
    WITHOUT_REQUEST,
    in_minutes,
)
from vgrads.kernel.errors import InputError
from vgrads.traces.history import read_history

JOBS = 5000


@pytest.fixture(scope="module")
def log():
    """The first jobs of KTH-SP2, or of a shipped log, with different submissions; some of them are
    withdrawn."""
    recorded = SHARED / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz"
    shipped = DATA / "histories" / "mayhem.swf.gz"
    whole = read_history(recorded if recorded.exists() else shipped)
    whole = whole.select(np.arange(len(whole)) < JOBS)
    times = {name: np.floor(getattr(whole, name)) for name in ("submit_s", "wait_s", "run_s")}
    whole = replace(whole, **times)
    _, first = np.unique(whole.submit_s, return_index=True)
    whole = whole.select(first)
    withdrawn = np.arange(len(whole)) % 50 == 7
    return in_minutes(
        replace(
            whole,
            submit_s=whole.submit_s - whole.submit_s[0],
            unix_start_s=whole.unix_start_s + whole.submit_s[0],
            started=~withdrawn,
            run_s=np.where(withdrawn, -1.0, np.maximum(whole.run_s, 0.0)),
            max_procs=int(whole.procs.max()),
            user=np.maximum(whole.user, 1),
            queue_names={},
        )
    )


def table(log, dialect):
    """The jobs with the names of their users and queues."""
    prefix = "" if dialect in NUMBERS_ALONE else "u"
    users = [log.user_names.get(int(code), f"{prefix}{code}") for code in log.user]
    queues = [log.queue_names.get(int(code), str(code)) for code in log.queue]
    columns = (log.submit_s, log.wait_s, log.run_s, log.procs, log.request_s, log.started)
    return list(zip(*(column.tolist() for column in columns), users, queues, strict=True))


def expected(log, dialect):
    users = [f"u{code}" if dialect not in NUMBERS_ALONE else str(code) for code in log.user]
    queues = [f"q{code}" if dialect not in NUMBERS_ALONE else str(code) for code in log.queue]
    if dialect in SINGLE_QUEUE:
        queues = ["pool"] * len(log)
    request_s = np.full(len(log), -1.0) if dialect in WITHOUT_REQUEST else log.request_s
    columns = (log.submit_s, log.wait_s, log.run_s, log.procs, request_s, log.started)
    return list(zip(*(column.tolist() for column in columns), users, queues, strict=True))


@pytest.fixture(scope="module")
def answers(log, tmp_path_factory):
    """The bound by the log as SWF, with and without requested times."""
    folder = tmp_path_factory.mktemp("reference")
    results = {}
    for stated in (True, False):
        variant = log if stated else replace(log, request_s=np.full(len(log), -1.0))
        path = folder / f"{stated}.swf"
        path.write_text(DIALECTS["SWF"](variant))
        results[stated] = vgrads.bound(path, 16, "2h", method="qbets").bound_s
    return results


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_the_same_jobs_and_the_same_bound(log, answers, write, dialect):
    path = write("history", DIALECTS[dialect](log))
    result = read_history(path)
    result.check()
    assert table(result, dialect) == expected(log, dialect)
    assert result.unix_start_s == log.unix_start_s
    assert result.report.complete and result.report.jobs == len(log)
    bound = vgrads.bound(path, 16, "2h", method="qbets").bound_s
    assert bound == answers[dialect not in WITHOUT_REQUEST]


LINE_BY_LINE = [name for name in DIALECTS if "JSON" not in name and "json" not in name]
DAMAGE = st.sampled_from(["cut", "double", "drop a cell", "shift", "odd name", "bad time", "noise"])


def damaged(line, how, at):
    """A line with one fault at a place."""
    place = at % max(1, len(line))
    return {
        "cut": line[:place],
        "double": f"{line}\n{line}",
        "drop a cell": line[:place] + line[place + 7 :],
        "shift": f"{line[place:]}{line[:place]}",
        "odd name": f'{line[:place]}"|:;, {line[place:]}',
        "bad time": line.replace("1", "x", 3),
        "noise": "\x0b\x1c\u2028 # ?",
    }[how]


@given(
    st.sampled_from(LINE_BY_LINE),
    st.lists(st.tuples(st.integers(0, 10**6), DAMAGE, st.integers(0, 300)), max_size=8),
)
def test_every_line_is_a_job_a_known_other_record_or_reported(dialect, faults):
    lines = SMALL[dialect].split("\n")
    for line, how, at in faults:
        number = line % len(lines)
        lines[number] = damaged(lines[number], how, at)
    text = "\n".join(lines)
    PLACE.write_text(text, encoding="utf-8")
    try:
        report = read_history(PLACE).report
    except InputError as error:
        assert "\n" not in str(error)
        return
    others = sum(report.not_jobs.values()) + report.unused
    assert report.lines == sum(bool(line.strip()) for line in text.split("\n"))
    assert report.jobs + others == report.lines
    assert all(0 < bad.first_line <= text.count("\n") + 1 for bad in report.not_used.values())


@pytest.fixture(scope="module", autouse=True)
def small(log, tmp_path_factory):
    """Thirty jobs in every dialect, and a file for damaged ones."""
    global PLACE  # noqa: PLW0603 Hypothesis calls the test many times for one fixture
    PLACE = tmp_path_factory.mktemp("damaged") / "history"
    few = log.select(np.arange(len(log)) < 30)
    SMALL.update({name: DIALECTS[name](few) for name in LINE_BY_LINE})


SMALL = {}
PLACE = None

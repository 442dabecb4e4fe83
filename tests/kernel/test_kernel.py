"""The ground: units, errors, event order, streams, clocks."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.kernel.clock import SimClock, WallClock
from vgrads.kernel.errors import InfeasibleError, InputError, SiteError
from vgrads.kernel.events import EventQueue
from vgrads.kernel.files import replace_file, write_whole
from vgrads.kernel.streams import stream
from vgrads.kernel.units import (
    format_duration,
    parse_duration,
    parse_fraction,
    parse_instant,
    parse_probability,
)


@pytest.mark.parametrize("name", ["x" * 250, "folder"])
def test_a_draft_that_cannot_be_written_is_not_named(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as whole:
        write_whole(tmp_path / name, b"x")
    with pytest.raises(OSError) as replaced, replace_file(tmp_path / name) as file:
        file.write(b"x")
    for error in (whole.value, replaced.value):
        assert (error.filename, error.filename2) == (str(tmp_path / name), None)


def test_other_errors_while_a_file_is_replaced_keep_their_names(tmp_path):
    with pytest.raises(FileNotFoundError) as error, replace_file(tmp_path / "x"):
        (tmp_path / "other").read_text()
    assert error.value.filename == str(tmp_path / "other")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200),
        ("1h30m", 5400),
        ("90", 90),
        (45, 45),
        ("1-00:00:00", 86400),
        ("02:30", 9000),
        ("1.5 d", 129600),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "two hours", "-5", "5 parsecs", "nan", True, "1h-30m", "inf"])
def test_no_durations(text):
    with pytest.raises(InputError, match="duration"):
        parse_duration(text)


@given(st.integers(0, 10**7))
def test_formatted_durations_are_close(seconds):
    shown = format_duration(seconds)
    assert abs(parse_duration(shown.replace(" ", "")) - seconds) <= max(1, seconds * 0.05)


def test_fractions_and_probabilities():
    assert parse_fraction("3/4") == parse_fraction("75%") == parse_fraction(0.75) == 0.75
    assert parse_fraction(1) == 1
    for bad in ("5/4", 0, "1/0", "half"):
        with pytest.raises(InputError):
            parse_fraction(bad)
    for bad in (0, 1, 1.5, "x"):
        with pytest.raises(InputError):
            parse_probability(bad, "q")


def test_instants():
    assert parse_instant("1234.5") == 1234.5
    assert parse_instant("2009-11-14T18:00:00Z").timestamp() == 1258221600
    for bad in ("2009-11-14T18:00:00", "yesterday"):
        with pytest.raises(InputError):
            parse_instant(bad)


def test_errors_are_a_line_with_place_and_survive_pickling():
    errors = [
        InputError("is wrong", where="a.yaml: deadline", fix="write 2h"),
        InfeasibleError("no plan", lacking="time"),
        SiteError("is down", site="kth", transient=True),
    ]
    assert str(errors[0]) == "a.yaml: deadline: is wrong (write 2h)"
    for error in errors:
        replica = pickle.loads(pickle.dumps(error))
        assert (type(replica), str(replica), replica.__dict__) == (
            type(error),
            str(error),
            error.__dict__,
        )
    assert [e.exit_code for e in errors] == [2, 3, 4]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans())))
def test_events_come_by_time_priority_and_sequence(entries):
    queue = EventQueue()
    expected = []
    for number, (time_s, priority, cancelled) in enumerate(entries):
        ticket = queue.push(time_s, number, priority)
        if cancelled:
            queue.cancel(ticket)
        else:
            expected.append((time_s, priority, number))
        queue.check()
    assert [item for _, item in queue.pop_until(10)] == [
        number for _, _, number in sorted(expected)
    ]
    assert len(queue) == 0


def test_streams_depend_on_seed_and_name_only():
    assert stream(1, "a").random() == stream(1, "a").random()
    assert len({stream(1, "a").random(), stream(1, "b").random(), stream(2, "a").random()}) == 3


def test_clocks():
    clock = SimClock()
    clock.advance_to(10)
    clock.advance_to(5)
    assert clock.now() == 10
    assert WallClock(elapsed_s=100).now() >= 100

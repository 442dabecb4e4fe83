"""Tables as text: what is left out first, what is shortened, and what never is."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlmodel import insert

from tests.terminal.pseudo_terminal import in_terminal
from vgrads.kernel.text_table import Column, Row, TextTable, display_width, table_lines, wrap
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import RunRow, SetRow

COLUMNS = (
    Column("run"),
    Column("set", shorten=True),
    Column("promise", right=True, fold=1),
    Column("started", fold=2),
    Column("reason", below=True),
)
WORDS = st.text("ab\u0628\u064e作[]", min_size=1, max_size=12)
NAMES = st.text("x-/[]\u0628\u064e作", min_size=1, max_size=200)


def table_of(*names, reason="", promise="0.900"):
    row = ("run-0123456789", promise, "2026-11-22 07:32")
    return TextTable(COLUMNS, tuple(Row((row[0], name, row[1], row[2], reason)) for name in names))


@given(names=st.lists(NAMES, min_size=1, max_size=4), width=st.integers(26, 200))
def test_a_row_is_one_line_within_the_width_and_ids_are_whole(names, width):
    lines = table_lines(table_of(*names), width)
    rows = lines[2 : 2 + len(names)]
    assert all(line.startswith("run-0123456789") for line in rows)
    assert all(display_width(line) <= width for line in rows)


@given(words=st.lists(WORDS, min_size=1, max_size=30), width=st.integers(30, 100))
def test_a_reason_loses_no_word_wherever_it_is_placed(words, width):
    lines = table_lines(table_of("storm", reason=" ".join(words)), width)
    below = "\n".join(line for line in lines[2:] if "not shown" not in line)
    rest = below.split("(--wide")[0].replace("all)", "").split()
    missing = [word for word in words if word not in rest]
    assert missing == []


def test_columns_of_least_use_are_left_out_first_and_named():
    def header(width):
        return table_lines(table_of("storm"), width)[0].split()

    assert header(100) == ["run", "set", "promise", "started", "reason"]
    assert header(40) == ["run", "set", "promise", "reason"]
    assert header(25) == ["run", "set"]
    assert table_lines(table_of("storm"), 40)[-1] == "not shown: started (--wide shows all)"
    assert table_lines(table_of("storm"), 25, wide=True) == table_lines(table_of("storm"), 100)


def test_a_long_name_loses_its_middle_only_where_the_line_has_no_room_for_it():
    name = "storm-" + "x" * 180 + "-17"
    (row,) = table_lines(table_of(name), 80)[2:3]
    assert "storm-x" in row
    assert "x-17" in row
    assert "…" in row
    assert name in table_lines(table_of(name), 300)[2]
    assert name in table_lines(table_of(name), 40, wide=True)[2]


def test_columns_are_aligned_by_what_a_terminal_shows():
    lines = table_lines(table_of("storm", "محلّل", "作業", "two\nlines"), 100)
    starts = {display_width(line[: line.index("2026")]) for line in lines[2:]}
    assert len(starts) == 1
    assert len(lines) == 6


def test_a_command_to_type_is_not_broken_where_a_line_can_hold_it():
    text = "its manager has ended: 'vgrads resume run-0123456789' continues the run"
    assert "'vgrads resume run-0123456789' continues" in wrap(text, 40)
    assert all(len(line) <= 20 for line in wrap(text, 20) if " " in line)


# through the command, from the database


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")


NOW = datetime(2026, 11, 22, 7, 32, tzinfo=UTC)
SUMMARY = json.dumps(
    {"deadline_s": 7200.0, "promise": {"probability": 0.9}, "needed": 1, "cost_usd": 1.5}
)


def add_runs(names):
    """Write a kept run of each of these sets into the database, the newest last."""
    sets = [
        SetRow(
            **{"id": f"set-{n:010d}", "name": name, "created": NOW, "document": "{}"},
            **{"plan": "{}", "gantt": "{}", "summary": SUMMARY},
        )
        for n, name in enumerate(names)
    ]
    outcome = json.dumps({"in_time": 1, "needed": 1})
    runs = [
        RunRow(
            **{"id": f"run-{n:010d}", "set_id": f"set-{n:010d}", "state": "kept"},
            **{"started": NOW + timedelta(seconds=n), "outcome": outcome},
        )
        for n in range(len(names))
    ]
    with Store() as store, store.engine.begin() as connection:
        connection.execute(insert(SetRow), [row.model_dump() for row in sets])
        connection.execute(insert(RunRow), [row.model_dump() for row in runs])


@pytest.mark.usefixtures("home")
def test_status_without_runs_says_how_to_start():
    screen = in_terminal(40, "status")
    assert screen.code == 0
    assert "no runs yet" in screen.text
    assert screen.too_long(40) == []


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_names_with_markup_of_200_characters_and_in_arabic_are_a_line_each(columns):
    names = ["[red]<b>bold</b>[/red]", "s" * 200, "عاصفة الشمال", "\u202eesrever", "\x1b[2Jx"]
    add_runs(names)
    lines = in_terminal(columns, "status").lines
    rows = [line for line in lines if line.startswith("run-")]
    assert len(rows) == len(names)
    assert all(display_width(line) <= columns for line in lines)
    text = "\n".join(rows)
    assert "عاصفة الشمال" in text
    assert "\u202e" not in text
    assert "\x1b[2J" not in text
    assert in_terminal(400, "status").text.count("[red]<b>bold</b>[/red]") == 1


@pytest.mark.usefixtures("home")
def test_of_10_000_sets_the_newest_are_shown_and_the_others_counted():
    add_runs([f"storm-{n}" for n in range(10_000)])
    lines = in_terminal(80, "status").lines
    rows = [line for line in lines if line.startswith("run-")]
    assert (len(rows), rows[0].split()[1]) == (50, "storm-9999")
    assert "the newest 50 of 10,000 runs; --limit shows more" in lines
    every = in_terminal(80, "status", "--limit", 20_000).lines
    assert sum(line.startswith("run-") for line in every) == 10_000
    assert not any("the newest" in line for line in every)

"""``vgrads top``: active runs and bags with their current promise and progress, renewed until
Ctrl-C; without a terminal once, as plain text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_duration
from vgrads.portal.cli.bags.status_text import status_json
from vgrads.portal.cli.plans.run_text import details_of
from vgrads.portal.cli.terminal import printable
from vgrads.portal.records.reader import RecordReader
from vgrads.portal.records.reading.bags import ENDED, read_newest_bags
from vgrads.portal.records.reading.opening import open_reader
from vgrads.portal.records.reading.run_rows import run_rows
from vgrads.portal.records.reading.runs import RunReader

Json = dict[str, Any]
_PAUSES = 60.0  # pause between two readings, at least, in processor times of a reading
_RUNS = (
    Column("run"),
    Column("set", shorten=True),
    Column("state", fold=3),
    Column("due in", right=True),
    Column("promise", right=True, fold=1),
    Column("tasks", right=True, fold=2),
    Column("workflows", right=True, fold=4),
)
_BAGS = (
    Column("bag"),
    Column("name", shorten=True),
    Column("state", fold=2),
    Column("done", right=True),
    Column("failed", right=True, fold=3),
    Column("running", right=True, fold=4),
    Column("left", right=True, fold=1),
)


class ActivityReader:
    """Reads what is active, again and again; a run whose journal has not grown is not read anew,
    since its plan alone may take seconds."""

    def __init__(self) -> None:
        self._details: dict[str, tuple[Json, int, Json]] = {}  # of each run: row, events, details

    def read(self) -> Json:
        """Return the active runs, each with its progress and current promise, and the active
        bags."""
        with open_reader() as reader:
            runs = [self._read_run(reader, row) for row in run_rows(reader, active=True)]
            bags = [status_json(row) for row in read_newest_bags(reader) if row.state not in ENDED]
        # runs that have ended are forgotten
        self._details = {run["run"]: self._details[run["run"]] for run in runs}
        return {"at": datetime.now().astimezone().isoformat(), "runs": runs, "bags": bags}

    def _read_run(self, reader: RecordReader, row: Json) -> Json:
        events = RunReader(reader, row["run"]).count_events()
        before = self._details.get(row["run"])
        if before is None or before[:2] != (row, events):
            self._details[row["run"]] = (row, events, details_of(reader, row))
        return self._details[row["run"]][2]


def activity_text(payload: Json) -> list[TextTable | str]:
    """Return the activity as tables."""
    now = datetime.fromisoformat(payload["at"])
    runs, bags = payload["runs"], payload["bags"]
    summary = f"{now:%H:%M:%S}  active runs: {len(runs)}, active bags: {len(bags)}"
    if not runs and not bags:
        return [summary, "nothing is active: 'vgrads status' lists earlier runs"]
    parts: list[TextTable | str] = [summary]
    if runs:
        parts.append(TextTable(_RUNS, tuple(_run_row(row, now) for row in runs)))
    if bags:
        parts.append(TextTable(_BAGS, tuple(map(_make_bag_row, bags))))
    return parts


def watch(
    out: Console,
    interval_s: float,
    read: Callable[[], Json],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Show the activity until Ctrl-C, read again after ``interval_s`` seconds, or later where
    reading takes long."""
    with Live(console=out, auto_refresh=False, vertical_overflow="ellipsis") as live:
        try:
            while True:
                began_s = time.process_time()
                parts = [printable(part, out.width) for part in activity_text(read())]
                live.update(Group(*parts), refresh=True)
                pause(max(interval_s, _PAUSES * (time.process_time() - began_s)))
        except KeyboardInterrupt:
            return


def _run_row(row: Json, now: datetime) -> Row:
    tasks, chance = row.get("tasks"), row.get("promise_now")
    cells = (
        row["run"],
        row["name"],
        str(row.get("promise_state", row["state"])),
        _format_due(row["due"], now),
        "–" if chance is None else f"{chance:.3f}",
        f"{tasks['done']}/{tasks['of']}" if tasks else "–",
        f"{row['workflows_done']}/{row['needed']}" if tasks else "–",
    )
    return Row(cells, (row["hint"],) if row["hint"] else (), {"": "yellow"})


def _format_due(due: str | None, now: datetime) -> str:
    if due is None:
        return "–"
    seconds = (datetime.fromisoformat(due) - now).total_seconds()
    return f"late {format_duration(-seconds)}" if seconds < 0 else format_duration(seconds)


def _make_bag_row(bag: Mapping[str, Any]) -> Row:
    left_s = bag.get("left_s")
    cells = (
        bag["id"],
        bag["name"],
        bag["state"],
        f"{bag.get('done') or 0:,}/{bag['tasks']:,}",
        f"{bag.get('failed') or 0:,}",
        f"{bag.get('running') or 0:,}",
        "–" if left_s is None else format_duration(left_s),
    )
    return Row(cells, (bag["problem"],) if bag.get("problem") else (), {"": "yellow"})

"""Layout of a Gantt chart: a lane per slot, processors upwards, time to the right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bar:
    """A task's rectangle in units of time and processors; ``row`` is its lowest processor."""

    slot: str
    row: int
    procs: int
    start_s: float
    end_s: float
    item: Json


@dataclass(frozen=True, slots=True)
class Lane:
    """A slot's background."""

    slot: Json
    procs: int
    start_s: float
    end_s: float


def planned_bars(gantt: Json) -> list[Bar]:
    """Return every placement at its planned position."""
    return _stack_bars(gantt, ((p, p["start_s"], p["end_s"]) for p in gantt["placements"]))


def actual_bars(gantt: Json) -> list[Bar]:
    """Return every replica that ran, at its actual position; one still running ends now."""
    ran = (p for p in gantt["placements"] if p.get("actual"))
    now_s = gantt.get("now_s") or 0.0
    spans = ((p, p["actual"]["start_s"], p["actual"]["end_s"]) for p in ran)
    return _stack_bars(
        gantt, ((p, start, now_s if end is None else end) for p, start, end in spans)
    )


def planned_lanes(gantt: Json) -> list[Lane]:
    """Return the slots as planned."""
    return [Lane(s, s["procs"], _find_likely_start_s(s), s["end_s"]) for s in gantt["slots"]]


def _find_likely_start_s(slot: Json) -> float:
    """Return when a slot is ready with probability one half, if that is before its tasks start."""
    middle_s: float | None = slot.get("ready_p50_s")
    start_s: float = slot["start_s"]
    return start_s if middle_s is None else min(middle_s, start_s)


def actual_lanes(gantt: Json) -> list[Lane]:
    """Return the slots as they started; one that never did has no background (start = end)."""
    lanes = []
    for slot in gantt["slots"]:
        actual = slot.get("actual") or {}
        ready_s = actual.get("ready_s")
        ended_s = actual.get("ended_s")
        if ready_s is None:
            at_s = ended_s or slot["submit_s"]
            lanes.append(Lane(slot, slot["procs"], at_s, at_s))
        else:
            lanes.append(
                Lane(
                    slot,
                    slot["procs"],
                    ready_s,
                    gantt.get("now_s") or 0.0 if ended_s is None else ended_s,
                )
            )
    return lanes


def horizon(gantt: Json, lanes: Iterable[Lane], bars: Iterable[Bar]) -> float:
    """Return the end of the time axis: all lanes and bars; the deadline too, unless it is much
    later."""
    ends = [lane.end_s for lane in lanes] + [bar.end_s for bar in bars]
    # tasks that have not started yet are drawn at their planned times
    if gantt.get("state") in ("running", "interrupted"):
        ends += [p["end_s"] for p in gantt["placements"]]
    deadline_s: float = gantt["deadline_s"]
    return axis_end(max([0.0, *ends]), deadline_s)


def axis_end(observed_s: float, deadline_s: float) -> float:
    """Return the end of a time axis that shows what was observed, and the deadline unless it is
    much later."""
    # nothing was observed yet
    until_s = observed_s or deadline_s
    return 1.04 * until_s if deadline_s > 1.25 * until_s else 1.02 * max(until_s, deadline_s)


def _stack_bars(gantt: Json, spans: Iterable[tuple[Json, float, float]]) -> list[Bar]:
    """Place every bar on processors of its slot that are free for its whole time, lowest first."""
    heights = {slot["id"]: slot["procs"] for slot in gantt["slots"]}
    free_at: dict[str, list[float]] = {
        slot: [float("-inf")] * procs for slot, procs in heights.items()
    }
    bars = []
    for item, start_s, end_s in sorted(spans, key=lambda span: (span[1], span[2])):
        column, procs = free_at[item["slot"]], item["procs"]
        row = _find_lowest_room(column, procs, start_s)
        column[row : row + procs] = [end_s] * procs
        bars.append(Bar(item["slot"], row, procs, start_s, end_s, item))
    return bars


def _find_lowest_room(free_at: list[float], procs: int, start_s: float) -> int:
    """Return the lowest free run of processors; where only scattered ones are free, the bottom."""
    run = 0
    for index, busy_until in enumerate(free_at):
        # a task may begin when another ends, and both are known up to rounding only
        run = run + 1 if busy_until <= start_s + 1e-6 else 0
        if run == procs:
            return index - procs + 1
    return 0

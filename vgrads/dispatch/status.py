"""Status of a dispatcher and its bags, in numbers, for web pages and the command line."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vgrads.bags.node_history import NodeHistory
from vgrads.dispatch.core.state import BagState, State
from vgrads.dispatch.core.tasks import ASSIGNED, DONE, DROPPED, FAILED
from vgrads.exchange.values import AttemptEnd
from vgrads.kernel.units import format_count

_MAX_SAMPLES = 600
_LATEST = 25
_MOST_TEXT, _MOST_ERROR = 2000, 200
_PARTS = ("waited_s", "fetched_s", "ran_s", "sent_s", "cpu_s")


def name_state(bag: BagState) -> str:
    """Return the state of a bag as a word."""
    if bag.cancelled:
        return "cancelled"
    if bag.over:
        return "failed" if bag.fault or bag.tasks.counts[FAILED] else "done"
    return "running" if bag.first_s is not None else "waiting"


def bag_json(bag: BagState, rate: float) -> dict[str, Any]:
    """Return a bag as JSON. Times in seconds since the dispatcher started; ``rate``: recent ends
    per second."""
    counts = bag.tasks.counts
    left = bag.tasks.left
    return {
        "number": bag.number,
        "name": bag.name,
        "owner": bag.owner,
        "weight": bag.weight,
        "state": name_state(bag),
        "tasks": len(bag.tasks),
        "waiting": left - counts[ASSIGNED],
        "running": counts[ASSIGNED],
        "done": counts[DONE],
        "failed": counts[FAILED],
        "dropped": counts[DROPPED],
        "tried_again": bag.tried_again,
        "copied": bag.copied,
        "reused": bag.reused,
        "retried": bag.retried,
        "typical_s": bag.typical_s,
        "ran_s": bag.ran_s,
        "came_s": bag.came_s,
        "first_s": bag.first_s,
        "ended_s": bag.ended_s,
        "rate": rate,
        "left_s": left / rate if rate > 0 and left else None,
        "reason": bag.cancelled or bag.fault or _explain_drop(bag) or bag.why_closed,
    }


def _explain_drop(bag: BagState) -> str:
    """Return the reason for tasks that can never be ready, empty where there are none."""
    dropped, failed = bag.tasks.counts[DROPPED], bag.tasks.counts[FAILED]
    if bag.tasks.order is None or not dropped:
        return ""
    return (
        f"{format_count(dropped, 'task')} can never be ready, because they need {failed:,} that "
        "failed, the "
        f"first task {bag.tasks.status.find(FAILED)}"
    )


def agents_json(state: State) -> list[dict[str, Any]]:
    """Return the connected agents and their results."""
    return [
        {
            "name": agent.name or agent.id,
            "site": agent.site,
            "slot": agent.slot,
            "node": agent.node,
            "procs": agent.procs,
            "holds": len(agent.assigned),
            "done": agent.done,
            "failed": agent.failed,
            "joined_s": agent.joined_s,
            "leaving": agent.leaving,
            **_record_json(state.records.get(agent.machine), state.now_s),
        }
        for agent in state.agents.values()
        if agent.here
    ]


def _record_json(record: NodeHistory | None, now_s: float) -> dict[str, Any]:
    if record is None:
        return {"error_rate": None, "turnaround_s": None, "barred_s": None}
    left_s = record.quarantined_until_s - now_s
    quarantine_s = left_s if record.quick_failures and left_s > 0 else None
    return {
        "error_rate": round(record.error_rate, 4),
        "turnaround_s": round(record.turnaround_s, 3),
        "barred_s": quarantine_s,
    }


@dataclass
class Latest:
    """The latest ends of each bag, and the latest failures, with their output."""

    ends: dict[tuple[int, bool], deque[dict[str, Any]]] = field(default_factory=dict)
    times: dict[int, list[float]] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)

    def add(self, bag: int, end: AttemptEnd, text: str, error: str = "") -> None:
        """Add an end. ``error``: the last line of its errors."""
        payload = {
            "task": end.task,
            "attempt": end.attempt,
            "code": end.code,
            "ran_s": round(end.ran_s, 3),
            "host": end.agent,
            "text": text[-_MOST_TEXT:],
            "error": error[:_MOST_ERROR],
        }
        self.changed.add(bag)
        before = self.times.get(bag) or [0.0] * (len(_PARTS) + 1)
        parts = (1.0, end.waited_s, end.fetched_s, end.ran_s, end.sent_s, end.cpu_s)
        self.times[bag] = [a + b for a, b in zip(before, parts, strict=True)]
        # the latest of all, and those of the failures, which successes would soon push out
        for wrong in {False, end.code != 0}:
            self.ends.setdefault((bag, wrong), deque(maxlen=_LATEST)).append(payload)

    @property
    def count(self) -> int:
        """Return the number of reported attempts."""
        return int(sum(parts[0] for parts in self.times.values()))

    def mean_times(self, bag: int, own: Mapping[str, float]) -> dict[str, float]:
        """Return mean seconds of the reported attempts by phase; ``own``: the manager's share,
        added to each."""
        count, *parts = self.times.get(bag) or [0.0]
        means = {name: part / count for name, part in zip(_PARTS, parts, strict=False)}
        return (
            {name: round(seconds, 6) for name, seconds in (means | dict(own)).items()}
            if count
            else {}
        )

    def of(self, bag: int) -> dict[str, list[dict[str, Any]]]:
        """Return the latest ends of a bag, newest first."""
        return {
            name: list(self.ends.get((bag, wrong), ()))[::-1]
            for name, wrong in (("last", False), ("wrong", True))
        }


@dataclass
class Rates:
    """Ends over time: one sample per check, for each bag."""

    samples: deque[tuple[float, dict[int, int], int]] = field(
        default_factory=lambda: deque(maxlen=_MAX_SAMPLES)
    )

    def look(self, state: State, now_s: float) -> None:
        """Take a sample."""
        ended = {
            b.number: b.tasks.counts[DONE] + b.tasks.counts[FAILED] for b in state.bags.values()
        }
        agents = sum(agent.here for agent in state.agents.values())
        self.samples.append((now_s, ended, agents))

    def of(self, number: int, over_s: float = 10.0) -> float:
        """Return a bag's ends per second, over the last seconds."""
        if len(self.samples) < 2:
            return 0.0
        last_s, last, _ = self.samples[-1]
        first_s, first = last_s, last
        for at_s, ended, _ in reversed(self.samples):
            # the oldest sample, where none is as old as requested
            first_s, first = at_s, ended
            if last_s - at_s >= over_s:
                break
        elapsed_s = last_s - first_s
        return (last.get(number, 0) - first.get(number, 0)) / elapsed_s if elapsed_s > 0 else 0.0

    def history(self) -> list[tuple[float, float, int]]:
        """Return (instant, ends per second since the last sample, agents)."""
        rows = []
        before: tuple[float, int] | None = None
        for at_s, ended, agents in self.samples:
            total = sum(ended.values())
            if before is not None and at_s > before[0]:
                rows.append((at_s, (total - before[1]) / (at_s - before[0]), agents))
            before = (at_s, total)
        return rows


def status_json(
    state: State, rates: Rates, now_s: float, unserved: Mapping[int, str], more: dict[str, Any]
) -> dict[str, Any]:
    """Return the whole status. ``unserved``: bags that fit no agent, and why; stored with each bag,
    since others may not read it."""
    return {
        "now_s": now_s,
        "bags": [
            bag_json(bag, rates.of(bag.number)) | {"problem": unserved.get(bag.number, "")}
            for bag in state.bags.values()
        ],
        "hosts": agents_json(state)[:1000],
        "host_count": sum(agent.here for agent in state.agents.values()),
        "rates": rates.history(),
        **more,
    }

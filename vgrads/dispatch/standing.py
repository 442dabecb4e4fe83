"""How a dispatcher and its bags stand, in numbers, for pages and people."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vgrads.bags.record import HostRecord
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.tasks import DONE, DROPPED, FAILED, GIVEN

_KEPT = 600
_LATEST = 25
_MOST_TEXT = 2000
_PARTS = ("waited_s", "fetched_s", "ran_s", "sent_s", "cpu_s")


def state_word(bag: BagState) -> str:
    """How a bag stands, in a word."""
    if bag.cancelled:
        return "cancelled"
    if bag.over:
        return "failed" if bag.fault or bag.tasks.counts[FAILED] else "done"
    return "running" if bag.first_s is not None else "waiting"


def bag_json(bag: BagState, rate: float) -> dict[str, Any]:
    """A bag. Times in seconds since the dispatcher began; ``rate``: ends a second lately."""
    counts = bag.tasks.counts
    left = bag.tasks.left
    return {
        "number": bag.number,
        "name": bag.name,
        "owner": bag.owner,
        "weight": bag.weight,
        "state": state_word(bag),
        "tasks": len(bag.tasks),
        "waiting": left - counts[GIVEN],
        "running": counts[GIVEN],
        "done": counts[DONE],
        "failed": counts[FAILED],
        "dropped": counts[DROPPED],
        "tried_again": bag.tried_again,
        "copied": bag.copied,
        "typical_s": bag.typical_s,
        "ran_s": bag.ran_s,
        "came_s": bag.came_s,
        "first_s": bag.first_s,
        "ended_s": bag.ended_s,
        "rate": rate,
        "left_s": left / rate if rate > 0 and left else None,
        "reason": bag.cancelled or bag.fault or _why_dropped(bag),
    }


def _why_dropped(bag: BagState) -> str:
    """Of tasks that can never be ready, empty where there are none."""
    dropped, failed = bag.tasks.counts[DROPPED], bag.tasks.counts[FAILED]
    if bag.tasks.order is None or not dropped:
        return ""
    return (
        f"{dropped:,} tasks can never be ready, for they need {failed:,} that failed, the "
        f"first task {bag.tasks.status.find(FAILED)}"
    )


def hosts_json(state: State) -> list[dict[str, Any]]:
    """The hosts that are here, and how they fared."""
    return [
        {
            "name": host.name or host.id,
            "site": host.site,
            "slot": host.slot,
            "node": host.node,
            "procs": host.procs,
            "holds": len(host.held),
            "done": host.done,
            "failed": host.failed,
            "joined_s": host.joined_s,
            "leaving": host.leaving,
            **_record_json(state.records.get(host.machine), state.now_s),
        }
        for host in state.hosts.values()
        if host.here
    ]


def _record_json(record: HostRecord | None, now_s: float) -> dict[str, Any]:
    if record is None:
        return {"error_rate": None, "turnaround_s": None, "barred_s": None}
    left_s = record.barred_until_s - now_s
    barred_s = left_s if record.blows and left_s > 0 else None
    return {
        "error_rate": round(record.error_rate, 4),
        "turnaround_s": round(record.turnaround_s, 3),
        "barred_s": barred_s,
    }


@dataclass
class Latest:
    """The latest ends of each bag, and the latest that went wrong, with what was printed."""

    ends: dict[tuple[int, bool], deque[dict[str, Any]]] = field(default_factory=dict)
    times: dict[int, list[float]] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)

    def add(self, bag: int, end: End, text: str) -> None:
        """One more."""
        told = {
            "task": end.task,
            "attempt": end.attempt,
            "code": end.code,
            "ran_s": round(end.ran_s, 3),
            "host": end.host,
            "text": text[-_MOST_TEXT:],
        }
        self.changed.add(bag)
        before = self.times.get(bag) or [0.0] * (len(_PARTS) + 1)
        parts = (1.0, end.waited_s, end.fetched_s, end.ran_s, end.sent_s, end.cpu_s)
        self.times[bag] = [sum(two) for two in zip(before, parts, strict=True)]
        for wrong in {False, end.code != 0}:
            self.ends.setdefault((bag, wrong), deque(maxlen=_LATEST)).append(told)

    @property
    def count(self) -> int:
        """Attempts that were told of."""
        return int(sum(parts[0] for parts in self.times.values()))

    def mean_times(self, bag: int, own: Mapping[str, float]) -> dict[str, float]:
        """Mean seconds of the attempts that were told of, by where they went; ``own``: what the
        manager adds to each."""
        count, *parts = self.times.get(bag) or [0.0]
        means = {name: part / count for name, part in zip(_PARTS, parts, strict=False)}
        return (
            {name: round(seconds, 6) for name, seconds in (means | dict(own)).items()}
            if count
            else {}
        )

    def of(self, bag: int) -> dict[str, list[dict[str, Any]]]:
        """The newest first."""
        return {
            name: list(self.ends.get((bag, wrong), ()))[::-1]
            for name, wrong in (("last", False), ("wrong", True))
        }


@dataclass
class Rates:
    """Ends over time: one sample a look, of each bag."""

    samples: deque[tuple[float, dict[int, int], int]] = field(
        default_factory=lambda: deque(maxlen=_KEPT)
    )

    def look(self, state: State, now_s: float) -> None:
        """Take a sample."""
        ended = {
            b.number: b.tasks.counts[DONE] + b.tasks.counts[FAILED] for b in state.bags.values()
        }
        hosts = sum(host.here for host in state.hosts.values())
        self.samples.append((now_s, ended, hosts))

    def of(self, number: int, over_s: float = 10.0) -> float:
        """Ends of a bag a second, over the last seconds."""
        if len(self.samples) < 2:
            return 0.0
        last_s, last, _ = self.samples[-1]
        first_s, first = last_s, last
        for at_s, ended, _ in reversed(self.samples):
            first_s, first = at_s, ended
            if last_s - at_s >= over_s:
                break
        passed_s = last_s - first_s
        return (last.get(number, 0) - first.get(number, 0)) / passed_s if passed_s > 0 else 0.0

    def history(self) -> list[tuple[float, float, int]]:
        """(instant, ends a second since the last sample, hosts)."""
        found = []
        before: tuple[float, int] | None = None
        for at_s, ended, hosts in self.samples:
            total = sum(ended.values())
            if before is not None and at_s > before[0]:
                found.append((at_s, (total - before[1]) / (at_s - before[0]), hosts))
            before = (at_s, total)
        return found


def status_json(
    state: State, rates: Rates, now_s: float, unserved: Mapping[int, str], more: dict[str, Any]
) -> dict[str, Any]:
    """All of it. ``unserved``: bags that no host is for, and why; of each bag, since others may not
    read it."""
    return {
        "now_s": now_s,
        "bags": [
            bag_json(bag, rates.of(bag.number)) | {"problem": unserved.get(bag.number, "")}
            for bag in state.bags.values()
        ],
        "hosts": hosts_json(state)[:1000],
        "host_count": sum(host.here for host in state.hosts.values()),
        "rates": rates.history(),
        **more,
    }

"""Falkon's size and grain (SC 2007, §4.4 and 4.5) on the dispatcher's own core, with simulated
agents.

Agents and messages are simulated, decisions are not: wall times are those of this machine's core.
The tasks per second over the network are measured by ``benchmarks/dispatch/bench_dispatch.py``.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vgrads.bags.bag import Axis, BagSpec, Listed, TaskCommands, Template
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.exchange.values import AttemptEnd
from vgrads.kernel.text_table import build_table
from vgrads_studies.report import print_table


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Results of one simulation: virtual and wall seconds, exchanges, wall seconds of each tenth of
    the ends."""

    virtual_s: float
    wall_s: float
    exchanges: int
    tenths_s: tuple[float, ...]

    @property
    def exchange_us(self) -> float:
        """Return the cost of an exchange for the core and the simulated agent together, in
        microseconds."""
        return 1e6 * self.wall_s / self.exchanges


class _Counted(VirtualAgents):
    exchanges = 0

    def _send(self, *what: Any, **more: Any) -> None:
        self.exchanges += 1
        super()._send(*what, **more)


def play_plain(agents: int, tasks: int, task_s: float, delay_s: float = 0.001) -> Scale:
    """Simulate this many agents, present from the start, and this many tasks of one length."""
    marks = [time.perf_counter()]
    ended = 0

    def on_end(_bag: int, _end: AttemptEnd, _effect: Effect) -> None:
        nonlocal ended
        ended += 1
        if ended * 10 >= len(marks) * tasks:
            marks.append(time.perf_counter())

    core = Core(State(), Rules(), lambda _: None, on_end)
    core.add(0, BagSpec(name="plain", commands=templated(tasks)), 0.0)
    around = _Counted(core, lambda *_: (task_s, 0), delay_s)
    for number in range(agents):
        around.join(f"h{number}")
    around.run(over=lambda: core.state.bags[0].over)
    core.state.check()
    ended_s = core.state.bags[0].ended_s or math.nan
    tenths = tuple(b - a for a, b in pairwise(marks))
    return Scale(
        virtual_s=ended_s,
        wall_s=time.perf_counter() - marks[0],
        exchanges=around.exchanges,
        tenths_s=tenths,
    )


def efficiency(agents: int, task_s: float, waves: int) -> tuple[float, Scale]:
    """Return ideal time over actual time, with messages of 1 ms each way."""
    ran = play_plain(agents, agents * waves, task_s)
    return waves * task_s / ran.virtual_s, ran


def templated(tasks: int) -> TaskCommands:
    """Return a template and its parameters: nothing is stored per task."""
    return Template("sleep {x}", (Axis(("x",), _Numbers(tasks)),))


@dataclass(frozen=True)
class _Numbers(Sequence[tuple[str, ...]]):
    many: int

    def __len__(self) -> int:
        return self.many

    def __getitem__(self, index: object) -> Any:
        return (str(index),)


@dataclass(frozen=True)
class _Lines:
    """Commands of different text as stored in a file, with the offset of each."""

    body: bytes
    starts: array[int]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> str:
        return self.body[self.starts[index] : self.starts[index + 1]].decode()


def distinct(tasks: int) -> TaskCommands:
    """Return different commands, about 60 characters each."""
    body, starts = bytearray(), array("Q", [0])
    for number in range(tasks):
        body += b"/usr/bin/simulate --seed %012d --out results/%08d.csv\n" % (number * 7919, number)
        starts.append(len(body))
    return Listed(_Lines(bytes(body), starts))


def bytes_a_task(commands: str, tasks: int) -> float:
    """Return the memory of a pending task, its command included."""
    tracemalloc.start()
    bag = BagSpec(
        name="many", commands=distinct(tasks) if commands == "distinct" else templated(tasks)
    )
    core = Core(State(), Rules(), lambda _: None)
    core.add(0, bag, 0.0)
    reserved = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return reserved / tasks


def bytes_a_agent(agents: int) -> float:
    """Return the memory of an agent with a task, without the simulated agent as far as it is
    idle."""
    tracemalloc.start()
    core = Core(State(), Rules(), lambda _: None)
    core.add(0, BagSpec(name="hosts", commands=templated(agents)), 0.0)
    before = tracemalloc.get_traced_memory()[0]
    around = VirtualAgents(core, lambda *_: (480.0, 0))
    for number in range(agents):
        around.join(f"h{number}")
    around.run(until_s=240.0)
    reserved = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return reserved / agents


def report(quick: bool) -> dict[str, Any]:
    """Simulate and print: grain, agents, tasks; ``quick``: a hundredth of the size."""
    less = 100 if quick else 1
    agents = 256 // (8 if quick else 1)
    result: dict[str, Any] = {"hosts": agents, "grain": []}
    title = f"Efficiency on {agents} agents, messages of 1 ms each way (Falkon: 95 % at 1 s)"
    head = ("task s", "efficiency %", "exchanges", "µs per exchange here", "share of a core")
    rows = []
    for task_s, waves in ((60.0, 4), (1.0, 20), (0.1, 100), (0.01, 200)):
        share, ran = efficiency(agents, task_s, waves)
        load = ran.wall_s / ran.virtual_s
        row = {
            "task_s": task_s,
            "efficiency": 100 * share,
            "exchange_us": ran.exchange_us,
            "core": load,
        }
        result["grain"].append(row)
        rows.append(
            (
                f"{task_s:g}",
                f"{100 * share:.2f}",
                f"{ran.exchanges:,}",
                f"{ran.exchange_us:.0f}",
                f"{100 * load:.1f} %",
            )
        )
    print_table(build_table(head, rows, title))
    many = 54_000 // less
    ran = play_plain(many, many, 480.0)
    result["executors"] = {
        "hosts": many,
        "wall_s": ran.wall_s,
        "bytes": bytes_a_agent(5_400 // less),
    }
    print(
        f"{many:,} agents with a task of 480 s each: {ran.wall_s:.1f} s of wall time, all "
        f"done after {ran.virtual_s:.1f} s; "
        f"{result['executors']['bytes']:,.0f} bytes per agent "
        "(Falkon: 408 s until all were busy)"
    )
    tasks = 2_000_000 // less
    ran = play_plain(64, tasks, 0.01)
    result["tasks"] = {
        "tasks": tasks,
        "wall_s": ran.wall_s,
        "tenths": [tasks / 10 / s for s in ran.tenths_s],
        "templated_bytes": bytes_a_task("templated", tasks),
        "distinct_bytes": bytes_a_task("distinct", tasks // 10),
    }
    print(
        f"{tasks:,} tasks, all queued, on 64 agents: {ran.wall_s:.1f} s of wall time "
        "(Falkon: 6,720 s); "
        f"{tasks / 10 / ran.tenths_s[0]:,.0f} tasks per second in the first tenth, "
        f"{tasks / 10 / ran.tenths_s[-1]:,.0f} in the last; "
        f"{result['tasks']['templated_bytes']:.1f} bytes per pending task of a template, "
        f"{result['tasks']['distinct_bytes']:.0f} of a list, including its command"
    )
    return result

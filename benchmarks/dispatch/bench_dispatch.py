"""Dispatching tasks: how fast, how many, through what faults, beside Dask, Parsl, Ray and
HyperQueue.

    python benchmarks/dispatch/bench_dispatch.py [--only NAME ...] [--chaos [TASKS]] [--storm]
    [--away SECONDS] [--full]

Hosts are real connections from other processes that run nothing (``noop_hosts.py``), the journal is
on, unless it is said otherwise. Process tasks and chaos go through ``vgrads bags run`` itself.
Peers run from interpreters of their own (``dispatch_peers.py``). Without ``--full`` the sizes are a
tenth, and chaos and storm are only named.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from dispatch_chaos import chaos
from dispatch_load import Load, StageResult, alone, served
from dispatch_peers import all_measured
from dispatch_rows import appended, by_command, by_service, distinct_bytes, templated_s
from dispatch_storm import restart, storm


@dataclass(frozen=True)
class Row:
    """One line of the table. ``good``: whether what must be was."""

    what: str
    must: str
    aim: str
    measured: str
    good: bool
    peers: str = ""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    scale: float
    chaos: int
    away_s: float

    def of(self, full: int) -> int:
        """A size of the full run, smaller where a glance is wanted."""
        return max(1000, int(full * self.scale))


def _format_rates(rates: dict[str, float]) -> str:
    return ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()) or "none here"


def single(sizes: Sizes) -> list[Row]:
    """A message for each task."""
    peers = _format_rates(all_measured("nothing", sizes.of(5000)))
    rows = []
    for tls, must, aim in ((False, 2000, 5000), (True, 1500, 3000)):
        load = Load(tasks=sizes.of(100_000), agents=256, tls=tls, single=True)
        ran: StageResult = alone(served, load)
        rate, each = load.tasks / ran.seconds, ran.exchanges / load.tasks
        what = f"tasks of nothing, {each:.2f} exchanges each, {'TLS' if tls else 'plain'}, /s"
        rows.append(Row(what, f"{must:,}", f"{aim:,}", f"{rate:,.0f}", rate >= must, peers))
    return rows


def bundled(sizes: Sizes) -> list[Row]:
    """As many in an answer as last a tenth of a second, and all two million of them queued."""
    tasks = sizes.of(2_000_000)
    ran: StageResult = alone(served, Load(tasks=tasks, agents=64))
    rate, tenth = tasks / ran.seconds, max(1, len(ran.ends) // 10)
    first, last = sum(ran.ends[:tenth]) / tenth, sum(ran.ends[-tenth:]) / tenth
    queued = (ran.queued_mib - ran.before_mib) * 2**20 / tasks
    listed = alone(distinct_bytes, tasks)
    steady = last >= 0.9 * first and min(ran.ends, default=1) > 0
    return [
        Row(
            "the same, bundled by time, TLS, /s", "10,000", "30,000", f"{rate:,.0f}", rate >= 10_000
        ),
        Row(
            f"{tasks:,} tasks, all queued, 64 hosts, s",
            "600",
            "120",
            f"{ran.seconds:.0f}",
            ran.seconds <= 600,
        ),
        Row(
            "– last tenth ÷ first; emptiest second",
            "0.9; > 0",
            "0.95; > 0",
            f"{last / first:.2f}; {min(ran.ends, default=0):,}",
            steady,
        ),
        Row(
            "– bytes a pending task, template; listed",
            "256",
            "64; 256",
            f"{queued:.1f}; {listed:.0f}",
            max(queued, listed) <= 256,
        ),
        Row("– peak of the dispatcher, MiB", "–", "500", f"{ran.peak_mib:.0f}", True),
    ]


def decay(sizes: Sizes) -> list[Row]:
    """A message for each task, with few and with many others queued behind; five rounds."""
    few, many, tasks = 1_024, 65_536, sizes.of(163_840)
    rates: dict[int, list[float]] = {few: [], many: []}
    for number in range(5):
        for behind in (few, many)[:: 1 if number % 2 else -1]:
            load = Load(tasks=tasks, agents=64, tls=False, single=True, behind=behind)
            rates[behind].append(tasks / alone(served, load).seconds)
    ratio = median(b / a for a, b in zip(rates[few], rates[many], strict=True))
    what = f"rate with {many:,} more tasks queued ÷ with {few:,}"
    measured = f"{ratio:.2f} ({median(rates[many]):,.0f}/s)"
    return [Row(what, "0.95", "1", measured, ratio >= 0.95)]


def processes(sizes: Sizes) -> list[Row]:
    """``true`` through the command, two processors."""
    peers = all_measured("process", sizes.of(4000))
    rate = by_command("true", sizes.of(20_000))
    best = max(peers.values(), default=float("nan"))
    return [
        Row(
            "processes (`true`), `vgrads bags run`, /s",
            f"{best:,.0f}",
            f"{1.5 * best:,.0f}",
            f"{rate:,.0f}",
            rate >= best,
            _format_rates(peers),
        )
    ]


def submission(sizes: Sizes) -> list[Row]:
    """Of a template, and task by task over REST."""
    seconds = alone(templated_s, sizes.of(1_000_000))
    rows = [
        Row("1 M tasks of a template handed over, s", "1", "1", f"{seconds:.2f}", seconds <= 1.0)
    ]
    rates = by_service(sizes.of(1_000_000))
    best = max(rates.values())
    text = ", ".join(f"{bundle:,}: {rate:,.0f}" for bundle, rate in rates.items())
    rows.append(Row("commands over REST, by bundle, /s", "100,000", "100,000", text, best >= 1e5))
    return rows


def efficiency(sizes: Sizes) -> list[Row]:
    """Tasks of a second."""
    tasks = 256 * max(5, int(30 * sizes.scale))
    ran: StageResult = alone(served, Load(tasks=tasks, agents=256, seconds=1.0))
    ideal = (tasks - 256) / 256  # counted from the first end on
    share = ideal / ran.seconds
    rows = [
        Row(
            "256 hosts that wait 1 s a task, efficiency",
            "95 %",
            "99 %",
            f"{share:.1%}",
            share >= 0.95,
        )
    ]
    rate = by_command("sleep 1", tasks, procs=256, agents=4)
    rows.append(
        Row(
            "4 agents of 64 processors on two cores, `sleep 1`, from hand-over to last end",
            "–",
            "–",
            f"{rate / 256:.1%}",
            True,
        )
    )
    return rows


def journal(sizes: Sizes) -> list[Row]:
    """Ends with times as they are drawn, so that nothing is packed well by chance."""
    retained = alone(appended, sizes.of(1_000_000))
    return [
        Row(
            "journal after compaction, bytes a task",
            "100",
            "30",
            f"{retained.bytes_a_task:.1f}",
            retained.bytes_a_task <= 100,
        ),
        Row(
            "– appended, tasks/s; longest pause while it is cut, s",
            "–",
            "100,000",
            f"{retained.rate:,.0f}; {retained.pause_s:.2f}",
            True,
        ),
    ]


def restarts(sizes: Sizes) -> list[Row]:
    """Kill −9 in the midst."""
    tasks = sizes.of(2_000_000)
    returned = restart(tasks)
    lost = tasks - returned.done + returned.twice
    return [
        Row(
            f"restart with {tasks:,} tasks, s until the port is open",
            "30",
            "10",
            f"{returned.read_s:.2f}",
            returned.read_s <= 30,
        ),
        Row(
            "– then until all 64 hosts are back, s",
            "5",
            "5",
            f"{returned.back_s:.1f}",
            returned.back_s <= 5,
        ),
        Row(
            "– acknowledged results lost; tasks done twice",
            "0; 0",
            "0; 0",
            f"{lost}; {returned.doubled}",
            not lost and not returned.doubled,
        ),
    ]


def storms(sizes: Sizes) -> list[Row]:
    """A thousand connections of the agent's own talk."""
    returned = storm(1000, sizes.away_s)
    what = f"1,000 hosts, dispatcher away {sizes.away_s:.0f} s: back in s"
    return [
        Row(what, "60", "60", f"{returned.back_s:.0f}", returned.back_s <= 60),
        Row(
            "– hosts that came in a second at most; ended themselves",
            "200; 0",
            "200; 0",
            f"{returned.most_a_second:.0f}; {returned.ended_themselves}",
            returned.most_a_second <= 200 and not returned.ended_themselves,
        ),
    ]


def killing(sizes: Sizes) -> list[Row]:
    """A host each second, the dispatcher each 30 s."""
    result = chaos(sizes.chaos, 0.05)
    what = (
        f"{result.tasks:,} tasks of 50 ms, {result.agents_killed} agents and "
        f"{result.managers_killed} dispatchers killed"
    )
    measured = f"{result.once:,} once, {result.seconds:.0f} s"
    return [
        Row(
            what,
            "each once",
            "each once",
            measured,
            result.once == result.tasks == len(result.ends),
        )
    ]


PARTS: dict[str, Callable[[Sizes], list[Row]]] = {
    "single": single,
    "bundled": bundled,
    "decay": decay,
    "processes": processes,
    "submission": submission,
    "efficiency": efficiency,
    "journal": journal,
    "restart": restarts,
    "storm": storms,
    "chaos": killing,
}
_LONG = ("storm", "chaos")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[])
    parser.add_argument("--chaos", type=int, nargs="?", const=20_000, default=0, metavar="TASKS")
    parser.add_argument("--storm", action="store_true")
    parser.add_argument("--away", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--full", action="store_true")
    chosen = parser.parse_args()
    sizes = Sizes(1.0 if chosen.full else 0.1, chosen.chaos or 20_000, chosen.away)
    required = chosen.only or [
        name
        for name in PARTS
        if name not in _LONG
        or chosen.full
        or (name == "storm" and chosen.storm)
        or (name == "chaos" and chosen.chaos)
    ]
    tempfile.tempdir = os.environ.get("TMPDIR")
    print("| what | must | aim | measured | | peers |\n|---|--:|--:|--:|---|---|", flush=True)
    for name in required:
        load = os.getloadavg()[0]
        for row in PARTS[name](sizes):
            word = ("" if row.good else "missed") + (f" (load {load:.1f})" if load > 1.5 else "")
            print(
                f"| {row.what} | {row.must} | {row.aim} | {row.measured} | {word} | {row.peers} |",
                flush=True,
            )
    left = [name for name in _LONG if name not in required]
    if left:
        print(f"\nNot measured: {', '.join(left)} (minutes each: `--{'`, `--'.join(left)}`).")


if __name__ == "__main__":
    main()

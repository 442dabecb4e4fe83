"""The desk under load: hosts that tell ends and ask for more, over a real core with a thousand bags
and their policies.

Time is simulated, a millisecond a request, so that what is done once a second costs a thousand
requests as it would at the rate that is asked for. Hosts run what they get in the order in which
they ask.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import classad2
import numpy as np

from vgrads.bags.bag import Axis, BagSpec, Template
from vgrads.dispatch.core.advertising import make_agent_ad
from vgrads.dispatch.core.bag_index import BagGroup, BagOrdering
from vgrads.dispatch.core.bag_selection import BagSelection, Offer
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import Record, pack
from vgrads.dispatch.core.state import AgentState, State
from vgrads.dispatch.core.step import Core
from vgrads.exchange.values import AttemptEnd, Hello, Message
from vgrads.kernel.text_table import pad
from vgrads.policies.policy import read_policy

STEP_S = 1e-3
GROUP = 5
"""Requests that are collected before one group is written, and hosts that wait are looked at."""
CHANGING = {
    "JobRequirements": "JobsLeft > 50 || Host.ErrorRate < 0.1",
    "Rank": "JobsLeft < 500 ? 9 : 1",
}


def policy(i: int, concurrency: str) -> dict[str, str]:
    """Of fifty bags: one reads what is left of it, the others are constant, read the host, or turn
    with their tail."""
    last = {"Concurrency": concurrency}
    if i % 50 == 49:
        return {**CHANGING, **last}
    kinds: tuple[dict[str, str], ...] = (
        {"Rank": str(i % 7)},
        {"Rank": str(i % 5), "JobRequirements": "Host.NumCpus >= 1"},
        {"Rank": "3", "Deadline": "Concurrency * 2000"},
        {"JobRequirements": "Host.ErrorRate < 0.3", "Rank": str(i % 5)},
        {"Rank": "Host.JobsToday / 100.0", "JobRequirements": f'Host.Grid != "g{i % 4}"'},
        {"JobRequirements": f'Host.Grid == "g{i % 4}"', "Rank": "Host.NumCpus"},
        {
            "JobRequirements": f'member(Host.Grid, {{"g{i % 4}", "g{(i + 1) % 4}"}})'
            " && Host.ErrorRate < 0.2"
        },
        {
            "JobRequirements": '!Tail ? true : regexp("^n1", Host.Name) && Host.ErrorRate < 0.1',
            "Rank": "!Tail ? 1 : Host.JobsToday",
            "Deadline": "Concurrency * 2000",
            "ReplicationRequirements": "NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1",
        },
        {"JobRequirements": "Tail ? Host.ErrorRate < 0.1 : true", "Rank": f"Tail ? {i % 9} : 2"},
        {
            "Rank": "4 - 2 * Host.ErrorRate",
            "JobRequirements": "Host.RecentSuccess || Host.ErrorRate <= 0.1",
        },
    )
    return {**kinds[i % 10], **last}


@dataclass(frozen=True, kw_only=True)
class DispatcherLoad:
    """What is measured. ``kind``: policies as they are, none, or evaluated plainly; ``packed``: as
    a journal does."""

    bags: int = 1000
    jobs: int = 10_000_000
    owners: int = 50
    agents: int = 256
    concurrency: int = 5
    requests: int = 10_000
    kind: str = "policies"
    packed: bool = True
    wrong: float = 0.02
    seed: int = 0


@dataclass
class Met:
    """How it went: seconds of each request, of looks at hosts that wait, jobs given, bytes
    packed."""

    requested_s: np.ndarray
    looked_s: float = 0.0
    jobs: int = 0
    bytes: int = 0
    slow: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests a second, the looks included."""
        return float(len(self.requested_s) / (self.requested_s.sum() + self.looked_s))

    @property
    def mean_s(self) -> float:
        """Seconds a request, the looks included."""
        return 1.0 / self.rate

    def row(self, what: str) -> str:
        """One line."""
        p50, p99, worst = (float(np.quantile(self.requested_s, q)) * 1e3 for q in (0.5, 0.99, 1.0))
        slowest = max(self.slow, default=0.0) * 1e3
        per_s = self.jobs / len(self.requested_s) * self.rate
        return (
            f"{pad(what, 58)} {self.rate:,.0f} requests/s {per_s:,.0f} jobs/s   "
            f"p50 {p50:.2f} p99 {p99:.2f} worst {worst:.1f} ms; slowest look {slowest:.1f} ms"
        )


@dataclass(frozen=True)
class Numbers(Sequence[tuple[str, ...]]):
    """Rows of an axis, as those of a range in a document: none is kept."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return (str(index),)


def template(name: str, count: int, **more: Any) -> BagSpec:
    """A bag that costs nothing but its tasks' columns."""
    return BagSpec(
        name=name, commands=Template("work {x}", (Axis(("x",), Numbers(count)),)), **more
    )


def make_core(load: DispatcherLoad, report: Any) -> Core:
    """A core with its bags; some of them come to their tails at once, and some of those go back and
    forth."""
    core = Core(State(), Rules(lost_s=1e9), report)
    if load.kind == "plain":
        core.assignment.bag_selection = core.replicas._bag_selection = Plain(core.dispatch_index)
    each = load.jobs // load.bags
    for i in range(load.bags):
        required = (
            None
            if load.kind == "none"
            else read_policy(policy(i, str(load.concurrency)), f"bag {i}")
        )
        tail = {"tail_below": each - 5, "tail_latched": False} if i % 20 == 8 else {}
        core.add(
            i, template(f"b{i}", each, policy=required, owner=f"o{i % load.owners}", **tail), 0.0
        )
    return core


def load(dispatcher: DispatcherLoad) -> Met:
    """Requests one after another."""
    written: list[bytes] = []

    def report(record: Record) -> None:
        if dispatcher.packed:
            written.append(pack(record))

    core, draw = make_core(dispatcher, report), np.random.default_rng(dispatcher.seed)
    at_s, holds = 0.0, dict[int, list[tuple[int, int, int]]]()
    for h in range(dispatcher.agents):
        hello = Hello(slot="s", procs=dispatcher.concurrency, name=f"n{h}", machine=f"m{h}")
        core.receive(Message(agent=f"h{h}", incarnation="1", seq=0, hello=hello), at_s, f"g{h % 4}")
        holds[h] = core.answer(core.state.agents[h], at_s).give
    for number, value in core.due(at_s + 3.0):  # what is kept back of hosts that have shown nothing
        holds[number.number] += value.give
    wrong = draw.random((dispatcher.requests, dispatcher.concurrency)) < dispatcher.wrong
    met, waits, seq, size = Met(np.zeros(dispatcher.requests)), 0.0, 0, 0
    gc.set_threshold(100_000)  # as the command does
    turns = _turns(holds)
    at_s = 10.0
    for i in range(dispatcher.requests):
        h, at_s, seq = next(turns), at_s + STEP_S, seq + 1
        ends = [
            (
                bag,
                AttemptEnd(task, h, at_s, int(wrong[i, k % dispatcher.concurrency]), attempt, 60.0),
            )
            for k, (bag, task, attempt) in enumerate(holds[h])
        ]
        message = Message(agent=f"h{h}", incarnation="1", seq=seq, ends=ends)
        begin = time.perf_counter()
        core.receive(message, at_s)
        answer = core.answer(core.state.agents[h], at_s)
        met.requested_s[i] = time.perf_counter() - begin
        holds[h] = answer.give
        met.jobs += len(answer.give)
        if i % GROUP == GROUP - 1:
            begin = time.perf_counter()
            result = core.due(at_s)
            size += len(b"".join(written))
            written.clear()
            waits = time.perf_counter() - begin
            met.looked_s += waits
            met.slow.append(waits)
            for agent, value in result:
                holds[agent.number] += value.give
                met.jobs += len(value.give)
    core.state.check()
    met.bytes = size
    return met


def _turns(holds: dict[int, list[tuple[int, int, int]]]) -> Iterator[int]:
    """Hosts that hold something, in turn."""
    while True:
        yield from [h for h in holds if holds[h]] or list(holds)


class Plain(BagSelection):
    """The naive way: for each request every bag's ad is held against the host's, and the fitting
    ones are sorted (GridBot, Algorithm 1)."""

    def __init__(self, dispatch_index: DispatchIndex) -> None:
        super().__init__(dispatch_index)
        self._ads: dict[int, Any] = {}

    def offers(self, agent: AgentState, now_s: float) -> Iterator[Offer]:
        """Bags that fit, by owners' shares and rank."""
        self._look()
        ad = make_agent_ad(self._dispatch_index, agent, now_s)
        theirs = classad2.ClassAd({**ad, "Requirements": True})
        rows: dict[str, list[tuple[float, int]]] = {}
        for bag in self._dispatch_index.serving:
            own = self._ads.get(bag.number) or self._ad(bag.number)
            counts = bag.tasks.counts
            own["Tail"] = bag.number in self._dispatch_index.tails
            own["JobsLeft"] = counts[0] + counts[1]
            if self._dispatch_index.work_for(bag) and own.symmetricMatch(theirs):
                rank = own.lookup("Rank").eval(scope=own, target=theirs)
                rows.setdefault(bag.owner, []).append((-float(rank), bag.number))
        order = BagOrdering(
            0, dict.fromkeys(rows), {owner: sorted(row) for owner, row in rows.items()}
        )
        yield from self._by_share([(BagGroup(()), order, lambda _: None)], ad)

    def _ad(self, number: int) -> Any:
        rules = self._dispatch_index.bags[number].policy
        assert rules is not None
        texts = {"JobRequirements": "true", "Rank": "0", **rules.attributes}
        texts["Requirements"] = texts.pop("JobRequirements")
        body = "; ".join(f"{name} = {text}" for name, text in texts.items())
        class_ad = self._ads[number] = classad2.ClassAd(f"[{body.replace('Host.', 'TARGET.')}]")
        return class_ad


def slope(sizes: list[int], seconds: list[float]) -> float:
    """The exponent of a power law through these."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def fit(name: str, sizes: list[int], rounds: int, **named: Any) -> None:
    """Means of requests over sizes, in turns so that what the machine does meanwhile meets them
    all."""
    results: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(rounds):
        for size in sizes:
            grows = {name.partition(",")[0]: size}
            results[size].append(load(DispatcherLoad(seed=turn, **grows, **named)).mean_s)
    best = [min(results[size]) for size in sizes]
    text = ", ".join(f"{size:,}: {s * 1e3:.3f}" for size, s in zip(sizes, best, strict=True))
    print(f"ms a request by {name}: {text}   exponent {slope(sizes, best):+.3f}", flush=True)


def measure_load() -> None:
    """Rates and latencies, against naive evaluation and against no policies; then what they grow
    with."""
    for owners in (50, 1):
        for agents in (256, 2000):
            for concurrency in (1, 5, 10):
                what = f"{owners} owners, {agents} hosts, Concurrency {concurrency}"
                print(
                    load(DispatcherLoad(owners=owners, agents=agents, concurrency=concurrency)).row(
                        what
                    ),
                    flush=True,
                )
    with_, without, bare = (
        load(DispatcherLoad()),
        load(DispatcherLoad(packed=False)),
        load(DispatcherLoad(kind="none")),
    )
    plain = load(DispatcherLoad(kind="plain", requests=200))
    print(with_.row("50 owners, 256 hosts, Concurrency 5, again"))
    print(without.row("- records not packed"))
    print(bare.row(f"- no policies: {bare.rate / with_.rate:.2f} x"))
    print(plain.row(f"- plain classad2, every bag: 1/{with_.rate / plain.rate:.0f}"))
    fit("jobs", [10_000, 100_000, 1_000_000, 10_000_000], 3, bags=100, requests=1500)
    fit("bags", [10, 30, 100, 300, 1000], 3, requests=3000)
    fit("bags, one owner", [10, 30, 100, 300, 1000], 3, requests=3000, owners=1)

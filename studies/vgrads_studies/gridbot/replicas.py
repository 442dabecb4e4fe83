"""GridBot's comparisons of replication (SC'09, section 7): the table of collaborative grids, Figure
9, Figure 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from vgrads.dispatch.core.records import AttemptsEnded, Record
from vgrads.kernel.streams import stream
from vgrads_studies.gridbot.grid import COMMUNITY, GRIDS, HOUR_S, Field, no_note, scaled

JOBS = 30_000
BUFFER = 1500
"""Jobs in GridBot's scheduling buffer (section 7): this number of waiting jobs is its tail."""
_BAD = "(Job.{0}.Host.ErrorRate > 0.01 || !Job.{0}.Host.RecentSuccess || Job.{0}.Age > 1800)"
COMMON = {"Concurrency": "1", "Deadline": "3600"}
PERMISSIVE = {"ReplicationRequirements": "Job.NumberOfReplicas < 5"}
RESTRICTIVE = {
    "ReplicationRequirements": "Job.NumberOfReplicas < 3"
    f" && ({_BAD.format('Replica1')} || {_BAD.format('Replica2')})"
}
RELIABLE = {"JobRequirements": "Tail ? Host.ErrorRate <= 0.01 && Host.RecentSuccess : true"}
"""Unreliable: an error rate above one in a hundred, or no recent success. Ours starts at one in
twenty, so that a node is reliable from its eighth consecutive success."""


@dataclass(frozen=True, kw_only=True)
class ReplicationResult:
    """Results of a bag: hours until its last job ended; in per cent of its jobs: replicas,
    duplicate results, and replicas cancelled before they ended; in per cent of the useful time:
    both of the latter."""

    hours: float
    replicas: float
    waste: float
    called_off: float
    vain: float


@dataclass(frozen=True, kw_only=True)
class ReplicationRow:
    """A policy of the table. ``printed``: replicas %, waste %, hours; ``heartbeat_s``: interval of
    heartbeats."""

    name: str
    policy: Mapping[str, str]
    named: Mapping[str, Any]
    printed: tuple[float, float, float] | None = None
    heartbeat_s: float = inf


def rows(scale: float) -> list[ReplicationRow]:
    """Return the paper's five policies, and ours."""
    tail = {"tail_below": max(1, round(BUFFER * scale)), "most_replicas": 5}
    return [
        ReplicationRow(
            name="permissive, permissive", policy=PERMISSIVE, named=tail, printed=(58, 30, 4.1)
        ),
        ReplicationRow(
            name="restrictive, restrictive",
            policy=RESTRICTIVE | RELIABLE,
            named=tail,
            printed=(11, 7, 3.2),
        ),
        ReplicationRow(
            name="permissive, restrictive",
            policy=PERMISSIVE | RELIABLE,
            named=tail,
            printed=(73, 57, 4.2),
        ),
        ReplicationRow(name="none, permissive", policy={}, named=tail, printed=(0, 0, 5.1)),
        ReplicationRow(name="none, restrictive", policy=RELIABLE, named=tail, printed=(0, 0, 5.8)),
        ReplicationRow(name="learned", policy={}, named={"learns": True}),
        ReplicationRow(
            name="learned, agents with heartbeats",
            policy={},
            named={"learns": True},
            heartbeat_s=60.0,
        ),
    ]


def play_row(
    row: ReplicationRow, seed: int, scale: float, note: Callable[[Record], None] = no_note
) -> ReplicationResult:
    """Simulate 30,000 jobs of 10 to 15 minutes in the collaborative grids."""
    jobs = round(JOBS * scale)
    lengths_s = stream(seed, "gridbot", "lengths").uniform(600.0, 900.0, jobs)
    field = Field(
        scaled(GRIDS, scale),
        seed,
        [lengths_s],
        heartbeat_s=row.heartbeat_s,
        lost_s=3 * row.heartbeat_s,
        note=note,
    )
    field.add(0, jobs, {**COMMON, **row.policy}, **row.named)
    field.simulate()
    return simulated(field, 0, float(lengths_s.sum()))


def course(row: ReplicationRow, seed: int, scale: float) -> list[float]:
    """Return the completion times of a simulation's jobs, in hours, in order."""
    done: list[float] = []

    def note(record: Record) -> None:
        if isinstance(record, AttemptsEnded):
            done.extend(end.at_s / HOUR_S for end in record.ends if end.code == 0)

    play_row(row, seed, scale, note)
    return sorted(done)


def simulated(field: Field, number: int, useful_s: float) -> ReplicationResult:
    """Return the results of a bag."""
    bag, agents = field.core.state.bags[number], field.agents
    share = 100.0 / len(bag.tasks)
    return ReplicationResult(
        hours=((bag.ended_s or inf) - bag.came_s) / HOUR_S,
        replicas=share * bag.copied,
        waste=share * agents.discarded[number],
        called_off=share * agents.called_off[number],
        vain=100.0 * agents.vain_s[number] / useful_s,
    )


def table(seeds: Sequence[int], scale: float) -> dict[str, list[ReplicationResult]]:
    """Return every row for every seed."""
    return {row.name: [play_row(row, seed, scale) for seed in seeds] for row in rows(scale)}


# with a community grid


ALL = (*GRIDS, COMMUNITY)
THREE_DAYS_S = 72 * HOUR_S
_AT_HOME = f'Host.Grid == "{COMMUNITY.name}"'
MIXED = {"Concurrency": "1", "Deadline": f"{_AT_HOME} ? {THREE_DAYS_S:.0f} : 3600"}
"""Three days are the minimum deadline that the community grid's volunteers require (section 7)."""
NOT_AT_HOME = {"JobRequirements": f"Tail ? !({_AT_HOME}) : true"}
_FAILS = "(Job.Replica1.Host.ErrorRate > 0.01 || Job.Replica2.Host.ErrorRate > 0.01)"


def below(threshold: int) -> dict[str, str]:
    """Return the paper's second restrictive policies: the tail is a guessed number of incomplete
    jobs."""
    return {
        "ReplicationRequirements": f"JobsLeft < {threshold} && Job.NumberOfReplicas < 5",
        "JobRequirements": f"JobsLeft < {threshold} ? !({_AT_HOME}) : true",
    }


def four(scale: float) -> list[tuple[str, dict[str, str], tuple[float, float]]]:
    """Return R1 to R4 of Figure 9 with replicas % and waste % as printed."""
    first = {
        "ReplicationRequirements": f"Job.Replica1.Age > 900 * Job.NumberOfReplicas && {_FAILS}"
    }
    return [
        ("R1", PERMISSIVE, (188, 105)),
        ("R2", PERMISSIVE | NOT_AT_HOME, (129, 75)),
        ("R3", first | NOT_AT_HOME, (49, 25)),
        ("R4", below(round(2000 * scale)), (35, 21)),
    ]


LEARNED = {"learns": True}


def play_four(last: str, seed: int, scale: float) -> list[ReplicationResult]:
    """Simulate four bags at once, R4 first and R1 last. ``last``: the policy in place of R4, a
    threshold or ``learned``; ``all learned``: in place of all."""
    jobs = round(JOBS * scale)
    lengths = [stream(seed, "gridbot", "four", n).uniform(600.0, 900.0, jobs) for n in range(4)]
    field = Field(scaled(ALL, scale), seed, lengths)
    tail = {"tail_below": max(1, round(BUFFER * scale)), "most_replicas": 5}
    for number, (name, policy, _) in enumerate(four(scale)):
        learned = last == "all learned" or (name == "R4" and last == "learned")
        rank = {"Rank": str(number + 1)}
        if learned:
            field.add(number, jobs, {**MIXED, **rank, **NOT_AT_HOME}, **LEARNED)
        elif name == "R4":
            field.add(number, jobs, {**MIXED, **rank, **below(round(int(last) * scale))}, **tail)
        else:
            field.add(number, jobs, {**MIXED, **rank, **policy}, **tail)
    field.simulate()
    return [simulated(field, n, float(lengths[n].sum())) for n in range(4)]


def play_naive(kind: str, seed: int, scale: float) -> float:
    """Return the hours of one bag over all grids (Figure 5). ``naive``: three days' deadline for
    all, every agent that requests work gets it, a preempted node counts as new when it joins again;
    else policies, and three days where volunteers require them."""
    jobs = round(JOBS * scale)
    lengths_s = stream(seed, "gridbot", "naive").uniform(600.0, 900.0, jobs)
    naive = kind == "naive"
    field = Field(scaled(ALL, scale), seed, [lengths_s], wiped=naive)
    if naive:
        field.add(0, jobs, {"Concurrency": "1", "Deadline": f"{THREE_DAYS_S:.0f}"})
    elif kind == "restrictive":
        field.add(0, jobs, {**MIXED, **RESTRICTIVE, **NOT_AT_HOME}, most_replicas=5)
    else:
        field.add(0, jobs, {**MIXED, **NOT_AT_HOME}, **LEARNED)
    field.simulate()
    return (field.core.state.bags[0].ended_s or inf) / HOUR_S


# five small bags


GOOD = "Host.ErrorRate < 0.05 && Host.RecentSuccess"


def five() -> list[tuple[str, dict[str, str]]]:
    """Return B1 to B5 of Figure 8, each ranked higher than the one before."""
    many = "(Host.ErrorRate < 0.01 ? 10 : 1)"
    return [
        ("B1", {"Concurrency": "10", **_once(10)}),
        ("B2", {"Concurrency": many, **_once(10)}),
        ("B3", {"Concurrency": "1", **_once(1)}),
        ("B4", {"Concurrency": "1", "JobRequirements": GOOD, **_once(1)}),
        (
            "B5",
            {
                "Concurrency": "1",
                "JobRequirements": 'Tail ? Host.Grid == "Technion" : true',
                **_once(1),
            },
        ),
    ]


def _once(concurrency: int) -> dict[str, str]:
    """Return the policy of one more replica per this many thousand seconds."""
    return {
        "ReplicationRequirements": f"Job.Replica1.Age > {1000 * concurrency} * Job.NumberOfReplicas"
    }


def play_five(learned: bool, seed: int, scale: float) -> list[tuple[float, float]]:
    """Simulate 1,200 jobs of three minutes each: minutes until a bag is done, and of these the last
    tenth of its jobs."""
    jobs = round(1200 * scale)
    lengths = [stream(seed, "gridbot", "five", n).uniform(120.0, 240.0, jobs) for n in range(5)]
    done: list[list[float]] = [[] for _ in range(5)]

    def note(record: Record) -> None:
        if isinstance(record, AttemptsEnded):
            done[record.bag] += [end.at_s for end in record.ends if end.code == 0]

    field = Field(scaled(GRIDS, scale), seed, lengths, note=note)
    for number, (_, policy) in enumerate(five()):
        rank = {"Rank": str(number + 1), "Deadline": "3600"}
        if learned:
            field.add(number, jobs, {"Concurrency": "1", **rank}, **LEARNED)
        else:
            field.add(number, jobs, {**policy, **rank}, most_replicas=5)
    field.simulate()
    results = []
    for number in range(5):
        end_s = field.core.state.bags[number].ended_s or inf
        results.append((end_s / 60.0, (end_s - sorted(done[number])[int(0.9 * jobs)]) / 60.0))
    return results

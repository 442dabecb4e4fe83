"""GridBot's comparisons of replication (SC'09, section 7): the table of collaborative grids, Figure
9, Figure 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from vgrads.dispatch.core.records import Ended, Record
from vgrads.kernel.streams import stream
from vgrads.research.gridbot.grid import COMMUNITY, GRIDS, HOUR_S, Field, no_note, scaled

JOBS = 30_000
BUFFER = 1500
"""Jobs in GridBot's scheduling buffer (section 7): as few waiting jobs are its tail."""
_BAD = "(Job.{0}.Host.ErrorRate > 0.01 || !Job.{0}.Host.RecentSuccess || Job.{0}.Age > 1800)"
COMMON = {"Concurrency": "1", "Deadline": "3600"}
PERMISSIVE = {"ReplicationRequirements": "Job.NumberOfReplicas < 5"}
RESTRICTIVE = {
    "ReplicationRequirements": "Job.NumberOfReplicas < 3"
    f" && ({_BAD.format('Replica1')} || {_BAD.format('Replica2')})"
}
RELIABLE = {"JobRequirements": "Tail ? Host.ErrorRate <= 0.01 && Host.RecentSuccess : true"}
"""Unreliable: an error rate above one in a hundred, or no recent success. Ours begins at one in
twenty, so that a host is reliable from its eighth success in a row."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a bag came to: hours until its last job ended; in per cent of its jobs copies, results
    of which one was there, and copies called off before they ended; in per cent of the useful time
    that of both."""

    hours: float
    replicas: float
    waste: float
    called_off: float
    vain: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """A policy of the table. ``printed``: replicas %, waste %, hours; ``beat_s``: hosts say so
    often that they work."""

    name: str
    policy: Mapping[str, str]
    named: Mapping[str, Any]
    printed: tuple[float, float, float] | None = None
    beat_s: float = inf


def rows(scale: float) -> list[Row]:
    """The paper's five, and ours."""
    tail = {"tail_below": max(1, round(BUFFER * scale)), "most_copies": 5}
    return [
        Row(name="permissive, permissive", policy=PERMISSIVE, named=tail, printed=(58, 30, 4.1)),
        Row(
            name="restrictive, restrictive",
            policy=RESTRICTIVE | RELIABLE,
            named=tail,
            printed=(11, 7, 3.2),
        ),
        Row(
            name="permissive, restrictive",
            policy=PERMISSIVE | RELIABLE,
            named=tail,
            printed=(73, 57, 4.2),
        ),
        Row(name="none, permissive", policy={}, named=tail, printed=(0, 0, 5.1)),
        Row(name="none, restrictive", policy=RELIABLE, named=tail, printed=(0, 0, 5.8)),
        Row(name="learned", policy={}, named={"learns": True}),
        Row(name="learned, hosts that beat", policy={}, named={"learns": True}, beat_s=60.0),
    ]


def play_row(row: Row, seed: int, scale: float, note: Callable[[Record], None] = no_note) -> Played:
    """30,000 jobs of 10 to 15 minutes in the collaborative grids."""
    jobs = round(JOBS * scale)
    lengths_s = stream(seed, "gridbot", "lengths").uniform(600.0, 900.0, jobs)
    field = Field(
        scaled(GRIDS, scale), seed, [lengths_s], beat_s=row.beat_s, lost_s=3 * row.beat_s, note=note
    )
    field.add(0, jobs, {**COMMON, **row.policy}, **row.named)
    field.play()
    return played(field, 0, float(lengths_s.sum()))


def course(row: Row, seed: int, scale: float) -> list[float]:
    """When jobs of a play were done, in hours, in order."""
    done: list[float] = []

    def note(record: Record) -> None:
        if isinstance(record, Ended):
            done.extend(end.at_s / HOUR_S for end in record.ends if end.code == 0)

    play_row(row, seed, scale, note)
    return sorted(done)


def played(field: Field, number: int, useful_s: float) -> Played:
    """How a bag fared."""
    bag, hosts = field.core.state.bags[number], field.hosts
    share = 100.0 / len(bag.tasks)
    return Played(
        hours=((bag.ended_s or inf) - bag.came_s) / HOUR_S,
        replicas=share * bag.copied,
        waste=share * hosts.discarded[number],
        called_off=share * hosts.called_off[number],
        vain=100.0 * hosts.vain_s[number] / useful_s,
    )


def table(seeds: Sequence[int], scale: float) -> dict[str, list[Played]]:
    """Every row on every seed."""
    return {row.name: [play_row(row, seed, scale) for seed in seeds] for row in rows(scale)}


# with a community grid


ALL = (*GRIDS, COMMUNITY)
THREE_DAYS_S = 72 * HOUR_S
_AT_HOME = f'Host.Grid == "{COMMUNITY.name}"'
MIXED = {"Concurrency": "1", "Deadline": f"{_AT_HOME} ? {THREE_DAYS_S:.0f} : 3600"}
"""Three days are what the community grid's volunteers ask for at least (section 7)."""
NOT_AT_HOME = {"JobRequirements": f"Tail ? !({_AT_HOME}) : true"}
_FAILS = "(Job.Replica1.Host.ErrorRate > 0.01 || Job.Replica2.Host.ErrorRate > 0.01)"


def below(threshold: int) -> dict[str, str]:
    """The paper's second restrictive policies: a tail is so many incomplete jobs, a number that was
    guessed."""
    return {
        "ReplicationRequirements": f"JobsLeft < {threshold} && Job.NumberOfReplicas < 5",
        "JobRequirements": f"JobsLeft < {threshold} ? !({_AT_HOME}) : true",
    }


def four(scale: float) -> list[tuple[str, dict[str, str], tuple[float, float]]]:
    """R1 to R4 of Figure 9 with replicas % and waste % as printed."""
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


def play_four(last: str, seed: int, scale: float) -> list[Played]:
    """Four bags at once, R4 first and R1 last. ``last``: what stands at R4's place, a threshold or
    ``learned``; ``all learned``: at every place."""
    jobs = round(JOBS * scale)
    lengths = [stream(seed, "gridbot", "four", n).uniform(600.0, 900.0, jobs) for n in range(4)]
    field = Field(scaled(ALL, scale), seed, lengths)
    tail = {"tail_below": max(1, round(BUFFER * scale)), "most_copies": 5}
    for number, (name, policy, _) in enumerate(four(scale)):
        learned = last == "all learned" or (name == "R4" and last == "learned")
        rank = {"Rank": str(number + 1)}
        if learned:
            field.add(number, jobs, {**MIXED, **rank, **NOT_AT_HOME}, **LEARNED)
        elif name == "R4":
            field.add(number, jobs, {**MIXED, **rank, **below(round(int(last) * scale))}, **tail)
        else:
            field.add(number, jobs, {**MIXED, **rank, **policy}, **tail)
    field.play()
    return [played(field, n, float(lengths[n].sum())) for n in range(4)]


def play_naive(kind: str, seed: int, scale: float) -> float:
    """Hours of one bag over everything (Figure 5). ``naive``: three days' deadline for all, whoever
    asks gets, a host that was preempted is another one when it comes again; else policies, and
    three days where volunteers ask for them."""
    jobs = round(JOBS * scale)
    lengths_s = stream(seed, "gridbot", "naive").uniform(600.0, 900.0, jobs)
    naive = kind == "naive"
    field = Field(scaled(ALL, scale), seed, [lengths_s], wiped=naive)
    if naive:
        field.add(0, jobs, {"Concurrency": "1", "Deadline": f"{THREE_DAYS_S:.0f}"})
    elif kind == "restrictive":
        field.add(0, jobs, {**MIXED, **RESTRICTIVE, **NOT_AT_HOME}, most_copies=5)
    else:
        field.add(0, jobs, {**MIXED, **NOT_AT_HOME}, **LEARNED)
    field.play()
    return (field.core.state.bags[0].ended_s or inf) / HOUR_S


# five small bags


GOOD = "Host.ErrorRate < 0.05 && Host.RecentSuccess"


def five() -> list[tuple[str, dict[str, str]]]:
    """B1 to B5 of Figure 8, each ranked higher than the one before."""
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
    """One more replica in so many thousand seconds."""
    return {
        "ReplicationRequirements": f"Job.Replica1.Age > {1000 * concurrency} * Job.NumberOfReplicas"
    }


def play_five(learned: bool, seed: int, scale: float) -> list[tuple[float, float]]:
    """1,200 jobs of three minutes each: minutes until a bag is done, and of these the last tenth of
    its jobs."""
    jobs = round(1200 * scale)
    lengths = [stream(seed, "gridbot", "five", n).uniform(120.0, 240.0, jobs) for n in range(5)]
    done: list[list[float]] = [[] for _ in range(5)]

    def note(record: Record) -> None:
        if isinstance(record, Ended):
            done[record.bag] += [end.at_s for end in record.ends if end.code == 0]

    field = Field(scaled(GRIDS, scale), seed, lengths, note=note)
    for number, (_, policy) in enumerate(five()):
        rank = {"Rank": str(number + 1), "Deadline": "3600"}
        if learned:
            field.add(number, jobs, {"Concurrency": "1", **rank}, **LEARNED)
        else:
            field.add(number, jobs, {**policy, **rank}, most_copies=5)
    field.play()
    found = []
    for number in range(5):
        end_s = field.core.state.bags[number].ended_s or inf
        found.append((end_s / 60.0, (end_s - sorted(done[number])[int(0.9 * jobs)]) / 60.0))
    return found

"""The names that a dispatch policy may read, and their lookup in the ads.

``Host.Name``, ``Job.Replica1.Host.ErrorRate``, ``Job.Replicas.Host.Grid`` (a list, one for each
replica), ``Queue.BOTsInQueue``, ``Grid.Free``; bare ``Tail``, ``JobsLeft``, ``JobsDone`` of the
bag, ``NumberOfReplicas`` of the job, ``BOTsInQueue`` of the queue, ``Concurrency``. Names are
case-insensitive. Nodes and grids may have attributes beyond these; jobs and queues may not.
(GridBot, SC'09, section 4.1; DOI 10.1145/1654059.1654071.)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from vgrads.policies.values import Ad

SLOTS = (
    "JobRequirements",
    "Rank",
    "ReplicationRequirements",
    "Concurrency",
    "Deadline",
    "GridPolicy",
)
"""Slots of a dispatch policy (GridBot, section 4.2 and 5)."""

STATE = ("Tail", "JobsLeft", "JobsDone")
"""Of the bag: whether its tail has begun, tasks not yet done, tasks done."""
HOST = (
    "Name",
    "Grid",
    "Machine",
    "NumCpus",
    "Memory",
    "JobsRunning",
    "ErrorRate",
    "Turnaround",
    "JobsToday",
    "RecentSuccess",
)
"""Of a node: its name, its grid, its machine (the same when it joins again), processors, MiB, tasks
that it holds; share of failures, seconds from assignment to result, results without error of the
day, whether there was one within a day."""
REPLICA = ("Name", "SentTime", "Age")
"""Of a running replica, in addition to its ``Host``: its name, the time of its assignment, and the
seconds since."""
JOB = ("Name", "Executable", "NumberOfReplicas", "Grids", "Hosts", "Procs", "Owner", "Failures")
"""Of a job, in addition to ``Replica1``, ``Replica2``, … and ``Replicas``; ``Grids`` and ``Hosts``:
where its replicas run."""
QUEUE = ("BOTsInQueue",)
GRID = ("Name", "Free", "Limit", "Queued", "Running", "MeanWait", "ErrorRate", "Price")
"""Of a grid: nodes free, allowed, requested and running, mean wait in seconds, share of failures,
price."""

ADS = ("Host", "Job", "Queue", "Grid")
BARE = {
    **{name: name for name in STATE},
    "Concurrency": "Concurrency",
    "NumberOfReplicas": "Job.NumberOfReplicas",
    "BOTsInQueue": "Queue.BOTsInQueue",
}
"""Bare names, and their full names."""
_AT_WORK = ("Host", "Job", "Queue")
AVAILABLE: Mapping[str, tuple[str, ...]] = {
    "GridPolicy": ("Grid", "Queue"),
    **{slot: _AT_WORK for slot in SLOTS[:5]},
}
"""The ads available when a slot is evaluated."""

_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "Host": HOST,
    "Job": JOB,
    "Queue": QUEUE,
    "Grid": GRID,
}
_NUMBERED = re.compile(r"replica([1-9]\d{0,3})")
ALL = (
    *BARE,
    *(f"{ad}.{name}" for ad, names in _ATTRIBUTES.items() for name in names),
    *(
        f"Job.{r}.{name}"
        for r in ("Replica1", "Replicas")
        for name in (*REPLICA, *(f"Host.{h}" for h in HOST))
    ),
)
"""All defined names, with a first replica as an example of all."""


class NameProblem(ValueError):
    """A name that is never defined; the second argument suggests the intended one."""


def canonical(dotted: str, helpers: Iterable[str] = ()) -> str:
    """Return a name in the spelling of the list above; additional attributes of nodes or grids stay
    as written."""
    first, *rest = dotted.split(".")
    ad = _is_same_name(first, ADS)
    if ad is None:
        name = _is_same_name(first, BARE)
        if name is None or rest:
            raise NameProblem(f"unknown name {dotted}", nearest(dotted, helpers))
        return BARE[name]
    if not rest:
        raise NameProblem(
            f"{ad} is an ad, not a value",
            f"name an attribute of it, e.g. {ad}.{_ATTRIBUTES[ad][0]}",
        )
    if ad == "Job":
        return f"Job.{_of_job(dotted, rest, helpers)}"
    attribute = _is_same_name(rest[0], _ATTRIBUTES[ad])
    if len(rest) > 1 or (attribute is None and ad == "Queue"):
        raise NameProblem(f"unknown name {dotted}", nearest(dotted, helpers))
    return f"{ad}.{attribute or rest[0]}"


def _of_job(dotted: str, rest: Sequence[str], helpers: Iterable[str]) -> str:
    first = rest[0].lower()
    replica = first if first == "replicas" or _NUMBERED.fullmatch(first) else None
    if replica is None:
        attribute = _is_same_name(rest[0], JOB)
        if attribute is None or len(rest) > 1:
            raise NameProblem(f"unknown name {dotted}", nearest(dotted, helpers))
        return attribute
    replica = replica.capitalize()
    if len(rest) == 2 and (name := _is_same_name(rest[1], REPLICA)):
        return f"{replica}.{name}"
    if len(rest) == 3 and rest[1].lower() == "host":
        return f"{replica}.Host.{_is_same_name(rest[2], HOST) or rest[2]}"
    if len(rest) == 1 or (len(rest) == 2 and rest[1].lower() == "host"):
        raise NameProblem(
            f"{dotted} is an ad, not a value",
            f"name an attribute of it, e.g. Job.{replica}.Host.Name",
        )
    raise NameProblem(f"unknown name {dotted}", nearest(dotted, helpers))


def _is_same_name(word: str, names: Iterable[str]) -> str | None:
    return next((name for name in names if name.lower() == word.lower()), None)


def nearest(dotted: str, helpers: Iterable[str] = ()) -> str:
    """Return the closest name: by the whole name, or by its last part."""
    names = {name.lower(): name for name in (*ALL, *SLOTS, *helpers)}
    close = difflib.get_close_matches(dotted.lower(), names, 1, 0.7)
    if not close and "." not in dotted:
        # reversed, so that of several names with one ending the first counts
        ends = {name.rsplit(".", 1)[1].lower(): name for name in reversed(ALL) if "." in name}
        close, names = difflib.get_close_matches(dotted.lower(), ends, 1, 0.7), ends
    if close:
        return f"did you mean {names[close[0]]}?"
    return f"known names are {', '.join(BARE)} and Host.…, Job.…, Queue.…, Grid.…"


def doubt(name: str) -> str:
    """Return a warning about a name that only some nodes or grids may define; empty for a defined
    one."""
    first, _, last = name.rpartition(".")
    ad = first.rsplit(".", 1)[-1]
    if ad not in ("Host", "Grid") or last in _ATTRIBUTES[ad]:
        return ""
    close = difflib.get_close_matches(last.lower(), [n.lower() for n in _ATTRIBUTES[ad]], 1, 0.7)
    suggestion = f"; did you mean {ad}.{_is_same_name(close[0], _ATTRIBUTES[ad])}?" if close else ""
    return f"{name} is undefined if the {ad.lower()} does not define it{suggestion}"


Ads = tuple[Ad, Ad, Ad, Ad, Any]
"""Node, job, queue, grid, and the Concurrency in force."""


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names by their ads, the fastest order for reading."""
    return tuple(sorted(names, key=lambda name: (_place(name), name.count("."), name)))


def _place(name: str) -> int:
    first = name.split(".", 1)[0]
    return ADS.index(first) if first in ADS else len(ADS)


def look_up(name: str, ads: Ads) -> Any:
    """Return the value of a name, whatever case the ads use; None where it is undefined."""
    result: Any = ads[_place(name)]
    for part in name.split(".")[1:]:
        if isinstance(result, list | tuple):
            result = tuple(_part(item, part) for item in result)
        else:
            result = _part(result, part)
    return result


def _part(ad: object, name: str) -> Any:
    if not isinstance(ad, Mapping):
        return None
    if name in ad:
        return ad[name]
    low = name.lower()
    return next((value for key, value in ad.items() if key.lower() == low), None)


def taker(names: Sequence[str]) -> Callable[[Ad, Ad, Ad, Ad, Any], tuple[Any, ...]]:
    """Return a function that reads the values of names in order from the ads. It raises KeyError
    where one is missing or spelt otherwise.

    Built once for a slot: the values of one ad are read in one step.
    """
    steps: list[tuple[int, Callable[[Any], tuple[Any, ...]]]] = []
    for place in range(len(ADS) + 1):
        own = [name for name in names if _place(name) == place]
        plain = [name.split(".")[1] for name in own if name.count(".") == 1]
        if len(plain) > 1:
            steps.append((place, itemgetter(*plain)))
        # itemgetter of one name returns its value, not a tuple
        elif plain:
            steps.append((place, _single(plain[0])))
        steps += [(place, _deep(name)) for name in own if name.count(".") != 1]
    if len(steps) == 1 and steps[0][0] == 0:
        take = steps[0][1]
        return lambda host, *_: take(host)

    def several(*ads: object) -> tuple[Any, ...]:
        results: tuple[Any, ...] = ()
        for place, step in steps:
            results += step(ads[place])
        return results

    return several


def _single(name: str) -> Callable[[Any], tuple[Any, ...]]:
    return lambda ad: (ad[name],)


def _deep(name: str) -> Callable[[Any], tuple[Any, ...]]:
    path = name.split(".")[1:]
    if not path:
        return lambda value: (value,)

    def take(ad: Any) -> tuple[Any, ...]:
        for part in path:
            ad = ad[part] if not isinstance(ad, list | tuple) else [item[part] for item in ad]
        return (ad,)

    return take


def job_ad(name: str, executable: str, replicas: Sequence[Ad]) -> dict[str, Any]:
    """Return a job's ad for dispatch policies. ``replicas``: of each running one its ``Name``,
    ``SentTime``, ``Age`` and ``Host``."""
    numbered = {f"Replica{i}": replica for i, replica in enumerate(replicas, 1)}
    grids = [replica["Host"].get("Grid") for replica in replicas]
    return {
        "Name": name,
        "Executable": executable,
        "NumberOfReplicas": len(replicas),
        "Replicas": replicas,
        "Grids": grids,
        **numbered,
    }

"""The names that a policy may read, and how they are found in the ads.

``Host.Name``, ``Job.Replica1.Host.ErrorRate``, ``Job.Replicas.Host.Grid`` (a list, one for each
copy), ``Queue.BOTsInQueue``, ``Grid.Free``; bare ``Tail``, ``JobsLeft``, ``JobsDone`` of the bag,
``NumberOfReplicas`` of the job, ``BOTsInQueue`` of the queue, ``Concurrency``. Upper and lower case
are the same. Hosts and grids may tell more than is known here; jobs and queues may not. (GridBot,
SC'09, section 4.1; DOI 10.1145/1654059.1654071.)
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
"""What a policy may say (GridBot, section 4.2 and 5)."""

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
"""Of a host: its name, its grid, its machine (the same when it comes again), processors, MiB, tasks
that it holds; share of failures, seconds from hand-out to result, results without error of the day,
whether there was one within a day."""
REPLICA = ("Name", "SentTime", "Age")
"""Of a running copy, beside its ``Host``: its name, when it was given out, and the seconds
since."""
JOB = ("Name", "Executable", "NumberOfReplicas", "Grids", "Hosts", "Procs", "Owner", "Failures")
"""Of a job, beside ``Replica1``, ``Replica2``, … and ``Replicas``; ``Grids`` and ``Hosts``: where
its copies run."""
QUEUE = ("BOTsInQueue",)
GRID = ("Name", "Free", "Limit", "Queued", "Running", "MeanWait", "ErrorRate", "Price")
"""Of a grid: hosts free, allowed, asked for and running, mean wait in seconds, share of failures,
price."""

ADS = ("Host", "Job", "Queue", "Grid")
BARE = {
    **{name: name for name in STATE},
    "Concurrency": "Concurrency",
    "NumberOfReplicas": "Job.NumberOfReplicas",
    "BOTsInQueue": "Queue.BOTsInQueue",
}
"""Bare names, and what they stand for."""
_AT_WORK = ("Host", "Job", "Queue")
GIVEN: Mapping[str, tuple[str, ...]] = {
    "GridPolicy": ("Grid", "Queue"),
    **{slot: _AT_WORK for slot in SLOTS[:5]},
}
"""Which ads there are when a slot is evaluated."""

_KNOWN: Mapping[str, tuple[str, ...]] = {"Host": HOST, "Job": JOB, "Queue": QUEUE, "Grid": GRID}
_NUMBERED = re.compile(r"replica([1-9]\d{0,3})")
ALL = (
    *BARE,
    *(f"{ad}.{name}" for ad, names in _KNOWN.items() for name in names),
    *(
        f"Job.{r}.{name}"
        for r in ("Replica1", "Replicas")
        for name in (*REPLICA, *(f"Host.{h}" for h in HOST))
    ),
)
"""All names that are known, a first replica for all of them."""


class NameProblem(ValueError):
    """A name that nothing ever gives; the second argument says what may have been meant."""


def canonical(dotted: str, helpers: Iterable[str] = ()) -> str:
    """A name as it stands in the list above; what a host or a grid tells beyond it stays as
    written."""
    first, *rest = dotted.split(".")
    ad = _same(first, ADS)
    if ad is None:
        name = _same(first, BARE)
        if name is None or rest:
            raise NameProblem(f"nothing gives {dotted}", nearest(dotted, helpers))
        return BARE[name]
    if not rest:
        raise NameProblem(
            f"{ad} is an ad, not a value", f"name an attribute of it, as {ad}.{_KNOWN[ad][0]}"
        )
    if ad == "Job":
        return f"Job.{_of_job(dotted, rest, helpers)}"
    found = _same(rest[0], _KNOWN[ad])
    if len(rest) > 1 or (found is None and ad == "Queue"):
        raise NameProblem(f"nothing gives {dotted}", nearest(dotted, helpers))
    return f"{ad}.{found or rest[0]}"


def _of_job(dotted: str, rest: Sequence[str], helpers: Iterable[str]) -> str:
    first = rest[0].lower()
    copy = first if first == "replicas" or _NUMBERED.fullmatch(first) else None
    if copy is None:
        found = _same(rest[0], JOB)
        if found is None or len(rest) > 1:
            raise NameProblem(f"nothing gives {dotted}", nearest(dotted, helpers))
        return found
    copy = copy.capitalize()
    if len(rest) == 2 and (name := _same(rest[1], REPLICA)):
        return f"{copy}.{name}"
    if len(rest) == 3 and rest[1].lower() == "host":
        return f"{copy}.Host.{_same(rest[2], HOST) or rest[2]}"
    if len(rest) == 1 or (len(rest) == 2 and rest[1].lower() == "host"):
        raise NameProblem(
            f"{dotted} is an ad, not a value", f"name an attribute of it, as Job.{copy}.Host.Name"
        )
    raise NameProblem(f"nothing gives {dotted}", nearest(dotted, helpers))


def _same(word: str, names: Iterable[str]) -> str | None:
    return next((name for name in names if name.lower() == word.lower()), None)


def nearest(dotted: str, helpers: Iterable[str] = ()) -> str:
    """What may have been meant: by the whole name, or by its last part."""
    names = {name.lower(): name for name in (*ALL, *SLOTS, *helpers)}
    close = difflib.get_close_matches(dotted.lower(), names, 1, 0.7)
    if not close and "." not in dotted:
        ends = {name.rsplit(".", 1)[1].lower(): name for name in reversed(ALL) if "." in name}
        close, names = difflib.get_close_matches(dotted.lower(), ends, 1, 0.7), ends
    if close:
        return f"did you mean {names[close[0]]}?"
    return f"known are {', '.join(BARE)} and Host.…, Job.…, Queue.…, Grid.…"


def doubt(name: str) -> str:
    """What is worth saying of a name that only some hosts or grids may tell; nothing of a known
    one."""
    first, _, last = name.rpartition(".")
    ad = first.rsplit(".", 1)[-1]
    if ad not in ("Host", "Grid") or last in _KNOWN[ad]:
        return ""
    close = difflib.get_close_matches(last.lower(), [n.lower() for n in _KNOWN[ad]], 1, 0.7)
    known = f"; did you mean {ad}.{_same(close[0], _KNOWN[ad])}?" if close else ""
    return f"{name} is undefined where the {ad.lower()} does not tell it{known}"


Ads = tuple[Ad, Ad, Ad, Ad, Any]
"""Host, job, queue, grid, and the Concurrency in force."""


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names by their ads, as they are read fastest."""
    return tuple(sorted(names, key=lambda name: (_place(name), name.count("."), name)))


def _place(name: str) -> int:
    first = name.split(".", 1)[0]
    return ADS.index(first) if first in ADS else len(ADS)


def look_up(name: str, ads: Ads) -> Any:
    """The value of a name, whatever case the ads use; None where it has none."""
    found: Any = ads[_place(name)]
    for part in name.split(".")[1:]:
        if isinstance(found, list | tuple):
            found = tuple(_part(one, part) for one in found)
        else:
            found = _part(found, part)
    return found


def _part(ad: object, name: str) -> Any:
    if not isinstance(ad, Mapping):
        return None
    if name in ad:
        return ad[name]
    low = name.lower()
    return next((value for key, value in ad.items() if key.lower() == low), None)


def taker(names: Sequence[str]) -> Callable[[Ad, Ad, Ad, Ad, Any], tuple[Any, ...]]:
    """Takes the values of names in order out of the ads, or raises KeyError where one is missing or
    spelt otherwise.

    Made once for a slot: what is read of one ad comes out of it in one step.
    """
    steps: list[tuple[int, Callable[[Any], tuple[Any, ...]]]] = []
    for place in range(len(ADS) + 1):
        own = [name for name in names if _place(name) == place]
        plain = [name.split(".")[1] for name in own if name.count(".") == 1]
        if len(plain) > 1:
            steps.append((place, itemgetter(*plain)))
        elif plain:
            steps.append((place, _single(plain[0])))
        steps += [(place, _deep(name)) for name in own if name.count(".") != 1]
    if len(steps) == 1 and steps[0][0] == 0:
        take = steps[0][1]
        return lambda host, *_: take(host)

    def several(*ads: object) -> tuple[Any, ...]:
        found: tuple[Any, ...] = ()
        for place, step in steps:
            found += step(ads[place])
        return found

    return several


def _single(name: str) -> Callable[[Any], tuple[Any, ...]]:
    return lambda ad: (ad[name],)


def _deep(name: str) -> Callable[[Any], tuple[Any, ...]]:
    path = name.split(".")[1:]
    if not path:
        return lambda value: (value,)

    def take(ad: Any) -> tuple[Any, ...]:
        for part in path:
            ad = ad[part] if not isinstance(ad, list | tuple) else [one[part] for one in ad]
        return (ad,)

    return take


def job_ad(name: str, executable: str, copies: Sequence[Ad]) -> dict[str, Any]:
    """A job as policies see it. ``copies``: of each that runs its ``Name``, ``SentTime``, ``Age``
    and ``Host``."""
    numbered = {f"Replica{i}": copy for i, copy in enumerate(copies, 1)}
    grids = [copy["Host"].get("Grid") for copy in copies]
    return {
        "Name": name,
        "Executable": executable,
        "NumberOfReplicas": len(copies),
        "Replicas": copies,
        "Grids": grids,
        **numbered,
    }

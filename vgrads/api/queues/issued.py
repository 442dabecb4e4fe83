"""Forecasts as issued: what was stated about a job of a shape, when, by which model."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.api.queues.queries import QueueQuery
from vgrads.qbets.state_forecast import AnyForecast
from vgrads.vgrid.varq import Trajectory

Json = dict[str, Any]
Bounds = tuple[tuple[float, float | None], ...]
Probabilities = tuple[tuple[float, float], ...]
LEVELS = (0.5, 0.75, 0.9, 0.95)
"""Quantiles that are stored with every forecast of a shape, whichever was queried."""
_METHOD = Path(__file__).parents[2] / "qbets"


@cache
def model_digest() -> str:
    """Return a digest that changes with the code of the forecasts. The files' sizes and times: to
    read them all would take longer than an answer."""
    files = sorted(os.scandir(_METHOD), key=lambda entry: entry.name)
    stats = [(f.name, f.stat()) for f in files if f.name.endswith(".py")]
    content = repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    return hashlib.sha256(content.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedForecast:
    """A statement about the wait of a job that is submitted ``submit_in_s`` after ``instant_s``.

    ``instant_s``: on the clock of the queue's history, in seconds since 1970 where it knows them;
    ``issued_s``: when it was issued. ``bounds``: (quantile, wait; None: too short a history).
    ``probabilities``: (wait, probability of waiting no longer). ``job``: RUN/SLOT, or the run of a
    promise. ``history``: of a file that belongs to no site. ``retrospective``: the question was
    about an instant before the end of the history, so it is not scored.
    """

    site: str
    queue: str
    procs: int
    walltime_s: float
    instant_s: float
    kind: str
    method: str
    submit_in_s: float = 0.0
    bounds: Bounds = ()
    probabilities: Probabilities = ()
    owner: str = ""
    job: str = ""
    history: str = ""
    retrospective: bool = False
    issued_s: float = field(default_factory=time.time)
    model: str = field(default_factory=model_digest)

    @property
    def id(self) -> str:
        """Digest of the statement: the same one, repeated, is the same record."""
        content = {name: getattr(self, name) for name in _FIELDS if name != "issued_s"}
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]

    def as_json(self) -> Json:
        """Return all fields that differ from their defaults."""
        content = {name: getattr(self, name) for name in _FIELDS}
        return {k: v for k, v in content.items() if k not in _DEFAULTS or v != _DEFAULTS[k]}


_FIELDS = tuple(entry.name for entry in fields(IssuedForecast))
_DEFAULTS = {e.name: e.default for e in fields(IssuedForecast) if e.default is not MISSING}


def issued_of(document: Json) -> IssuedForecast:
    """Return the forecast of :meth:`IssuedForecast.as_json`. Raise TypeError or ValueError for
    anything else."""
    pairs = {
        name: tuple((float(a), None if b is None else float(b)) for a, b in document.get(name, ()))
        for name in ("bounds", "probabilities")
    }
    return IssuedForecast(**{**document, **pairs})


def model_name(digest: str) -> str:
    """Return the name of a model: the version of vgrads, where its code is that of today, and the
    digest."""
    return f"{version('vgrads') if digest == model_digest() else '?'}+{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTarget:
    """What a forecast was about: a queue of a site, or of a file that belongs to none
    (``history``).

    ``is_live``: about jobs that are submitted at the current time, not at the end of the history.
    """

    site: str
    queue: str
    history: str = ""
    owner: str = ""
    is_live: bool = False
    retrospective: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What was stated about a shape: bounds, probabilities, or when to submit it (``path``)."""

    bounds: Bounds = ()
    probabilities: Probabilities = ()
    path: Trajectory | None = None


def issue(
    query: QueueQuery,
    target: ForecastTarget,
    kind: str,
    shape: tuple[int, float],
    stated: Statement,
    submit_in_s: float = 0.0,
) -> IssuedForecast:
    """Return the forecast of a query for a shape, as issued."""
    at_s = time.time() if target.is_live else query.log.unix_start_s + query.at_s
    return IssuedForecast(
        site=target.site,
        queue=target.queue,
        history=target.history,
        owner=target.owner,
        retrospective=target.retrospective,
        procs=shape[0],
        walltime_s=shape[1],
        instant_s=at_s,
        submit_in_s=submit_in_s,
        kind=kind,
        method=query.forecast.method,
        bounds=stated.bounds,
        probabilities=stated.probabilities,
    )


def issue_answer(
    query: QueueQuery, target: ForecastTarget, shape: tuple[int, float], stated: Statement
) -> IssuedForecast:
    """Return an answer about a shape as issued, with the standard quantiles; of a trajectory, the
    instant that was recommended, or the best."""
    if stated.path is not None:
        return _issue_path(query, target, shape[0], stated.path)
    kind = "bound" if stated.bounds else "probability"
    bounds = {**dict(stated_bounds(query.forecast, *shape)), **dict(stated.bounds)}
    with_standard = Statement(
        bounds=tuple(sorted(bounds.items())), probabilities=stated.probabilities
    )
    return issue(query, target, kind, shape, with_standard)


def _issue_path(
    query: QueueQuery, target: ForecastTarget, procs: int, path: Trajectory
) -> IssuedForecast:
    at = path.best if path.chosen is None else path.chosen
    submit_in_s = float(path.submit_s[at])
    within_s = float(path.submit_s[-1]) - submit_in_s
    stated = Statement(probabilities=((within_s, float(path.probabilities[at])),))
    shape = (procs, float(path.walltimes_s[at]))
    return issue(query, target, "trajectory", shape, stated, submit_in_s)


def stated_bounds(
    forecast: AnyForecast, procs: int, walltime_s: float, levels: Sequence[float] = LEVELS
) -> Bounds:
    """Return a forecast's bounds at some quantiles."""
    confidence = forecast.settings.confidence
    waits_s = forecast.bounds(procs, walltime_s, levels, confidence)
    return tuple(
        (level, None if np.isnan(wait_s) else float(wait_s))
        for level, wait_s in zip(levels, waits_s.tolist(), strict=True)
    )

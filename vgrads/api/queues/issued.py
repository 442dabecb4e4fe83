"""Forecasts as issued: what was stated about a job of a shape, when, by which model."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Bounds = tuple[tuple[float, float | None], ...]
Probabilities = tuple[tuple[float, float], ...]
LEVELS = (0.5, 0.75, 0.9, 0.95)
"""Quantiles that are stored with every forecast of a shape, whichever was queried."""
PATIENCE_S = 30 * 86400.0
"""Time after which a forecast without a start remains without a score, and a score is final."""
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
    about an instant before the end of the history, so it is not scored. ``view``: of the queue, in
    which it was learned (:data:`vgrads.qbets.views.VIEWS`); empty for what is not learned from a
    queue, and in records of versions that did not store it. ``promised``: the probability for which
    a submission was recommended as sufficient; None where none sufficed, of what recommends none,
    and in records of versions that did not store it.
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
    view: str = ""
    promised: float | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOutcome:
    """What a history shows of the job that scores a forecast.

    ``submit_s``: its submission; None: no such job is known. ``wait_s``: until its start; None: it
    has not started, as far as is known. ``observed_s``: for every wait up to this it is known
    whether it was exceeded; of a job that waits, it was. Without a job: one that had started within
    this time would be known; 0 where there is none, or it is too early to say.
    """

    submit_s: float | None
    wait_s: float | None
    observed_s: float


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


@cache
def model_name(digest: str) -> str:
    """Return the name of a model: the version of vgrads, where its code is that of today, and the
    digest."""
    from importlib.metadata import version  # noqa: PLC0415 late: no answer waits for it

    return f"{version('vgrads') if digest == model_digest() else '?'}+{digest}"

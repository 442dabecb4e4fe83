"""What has run so far sharpens what is left.

Run times are log-normal with shared errors (:mod:`vgrads.workflows.spread`), so what ended tells of
its kind, its workflow and its site: the errors that are left are the normal ones given those that
were seen (the conditional of a joint normal distribution). Errors of a workflow touch only its own
tasks; they are eliminated first (Schur complement), so the cost is linear in tasks and cubic only
in kinds and sites. Of tasks that still run, their age says that they are longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from vgrads.vgrid.slot import Slot
from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import Task

Floats = NDArray[np.float64]
_STANDARD = NormalDist()
_LEAST_OWN = 0.02  # no measurement is more exact than this
_UPPER = 0.9  # the quantile by which the spread of what is left of a running task is told
_WIDEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One task that ended: in which workflow and at which site, its ``error``: the logarithm of
    what it took there over its median there."""

    workflow: str
    site: str
    kind: str
    spread: RuntimeSpread
    error: float


@dataclass(frozen=True, eq=False)
class Sharpened:
    """Shared errors as they are known now: mean and variance of each, in standard deviations of its
    origin; of sites the mean is the logarithm itself."""

    kinds: Mapping[str, tuple[float, float]]
    sites: Mapping[str, tuple[float, float]]
    workflows: Mapping[str, tuple[float, float]]

    def of(self, workflow: str, task: Task, spread: RuntimeSpread) -> Task:
        """The task with what is known now of its kind and its workflow."""
        if spread.total <= 0:
            return task
        kind, kind_left = self.kinds.get(task.kind, _UNSEEN)
        flow, flow_left = self.workflows.get(workflow, _UNSEEN)
        moved = spread.kind * kind + spread.workflow * flow
        left = replace(
            spread,
            kind=spread.kind * math.sqrt(kind_left),
            workflow=spread.workflow * math.sqrt(flow_left),
        )
        return replace(task, runtime_s=task.runtime_s * math.exp(moved), spread=left)

    def of_slot(self, slot: Slot) -> Slot:
        """The slot with what is known now of its site."""
        if slot.site not in self.sites:
            return slot
        drift, left = self.sites[slot.site]
        return slot.seen_slower(drift, math.sqrt(left))


_UNSEEN = (0.0, 1.0)


def sharpen(seen: Iterable[Seen]) -> Sharpened:
    """Shared errors given the tasks that ended."""
    rows = [one for one in seen if one.spread.total > 0]
    if not rows:
        return Sharpened({}, {}, {})
    number: dict[tuple[str, str], int] = {}
    flows: dict[str, list[tuple[int, int, Seen]]] = {}
    for one in rows:
        kind = number.setdefault(("kind", one.kind), len(number))
        site = number.setdefault(("site", one.site), len(number))
        flows.setdefault(one.workflow, []).append((kind, site, one))
    precision, pull = np.eye(len(number)), np.zeros(len(number))
    parts = {name: _workflow(own, precision, pull) for name, own in flows.items()}
    covariance = np.linalg.inv(precision)
    mean = covariance @ pull
    shared = {name: (float(mean[n]), float(covariance[n, n])) for name, n in number.items()}
    deviations: dict[str, list[float]] = {}
    for one in rows:
        deviations.setdefault(one.site, []).append(one.spread.site)
    workflows = {}
    for name, (own, pulled, touched, coupling) in parts.items():
        part = covariance[np.ix_(touched, touched)]
        workflows[name] = (
            float((pulled - coupling @ mean[touched]) / own),
            float(1.0 / own + coupling @ part @ coupling / own**2),
        )
    return Sharpened(
        kinds={n: v for (what, n), v in shared.items() if what == "kind"},
        sites={
            n: (v[0] * fmean(deviations[n]), v[1])
            for (what, n), v in shared.items()
            if what == "site"
        },
        workflows=workflows,
    )


_Part = tuple[float, float, list[int], Floats]


def _workflow(rows: list[tuple[int, int, Seen]], precision: Floats, pull: Floats) -> _Part:
    """Adds what a workflow's tasks say of kinds and sites, its own error eliminated; what is needed
    to find that."""
    touched = sorted({n for kind, site, _ in rows for n in (kind, site)})
    place = {n: k for k, n in enumerate(touched)}
    block, pulls = np.zeros((len(touched), len(touched))), np.zeros(len(touched))
    own, pulled, coupling = 1.0, 0.0, np.zeros(len(touched))
    for kind, site, one in rows:
        weight = 1.0 / max(_LEAST_OWN, one.spread.own) ** 2
        load = np.zeros(len(touched))
        load[place[kind]], load[place[site]] = one.spread.kind, one.spread.site
        block += weight * np.outer(load, load)
        pulls += weight * one.error * load
        own += weight * one.spread.workflow**2
        pulled += weight * one.error * one.spread.workflow
        coupling += weight * one.spread.workflow * load
    precision[np.ix_(touched, touched)] += block - np.outer(coupling, coupling) / own
    pull[touched] += pulls - coupling * pulled / own
    return own, pulled, touched, coupling


def left_of(task: Task, spread: RuntimeSpread, age_s: float) -> Task:
    """What is left of a task that has run for so long (at speed 1): its distribution given that it
    is longer."""
    if spread.total <= 0:
        return replace(task, runtime_s=max(0.0, task.runtime_s - age_s))
    if age_s <= 0:
        return task
    z = math.log(age_s / task.runtime_s) / spread.total if task.runtime_s > 0 else math.inf
    beyond = 1.0 - _STANDARD.cdf(z)
    if beyond < 1e-9:  # nobody knows: as long again as it has run
        return replace(task, runtime_s=age_s, spread=RuntimeSpread(own=min(_WIDEST, spread.total)))

    def quantile(level: float) -> float:
        at = _STANDARD.inv_cdf(1.0 - beyond * (1.0 - level))
        return max(1e-3, task.runtime_s * math.exp(spread.total * at) - age_s)

    half, upper = quantile(0.5), quantile(_UPPER)
    wide = math.log(upper / half) / _STANDARD.inv_cdf(_UPPER)
    return replace(task, runtime_s=half, spread=RuntimeSpread(own=min(_WIDEST, max(0.0, wide))))

"""Posterior run times: completed tasks make estimates of the rest more precise.

Run times are log-normal with shared errors (:mod:`vgrads.workflows.spread`), so a completed task is
an observation of its kind, its workflow and its site: the remaining errors are normal, given the
observed ones (the conditional of a joint normal distribution). Errors of a workflow affect only its
own tasks; they are eliminated first (Schur complement), so the cost is linear in tasks and cubic
only in kinds and sites. For running tasks, the time so far is a lower bound of the run time.
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
_UPPER = 0.9  # quantile that sets the spread of remaining run times
_WIDEST = 3.0
_LATE_SPREAD = 1.8
"""Spread of what is left of a task that takes longer than its estimate permits: half of them take
as much longer again as they have by now, one in ten takes ten times as much. So do lengths of which
nothing is known, P(> t) = 1 / (1 + t)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedError:
    """A completed task: its workflow and site, its ``error``: the logarithm of its run time there
    over its median there."""

    workflow: str
    site: str
    kind: str
    spread: RuntimeSpread
    error: float


@dataclass(frozen=True, eq=False)
class PosteriorErrors:
    """Posterior of shared errors: mean and variance of each, in standard deviations of its source;
    for sites the mean is the logarithm itself."""

    kinds: Mapping[str, tuple[float, float]]
    sites: Mapping[str, tuple[float, float]]
    workflows: Mapping[str, tuple[float, float]]

    def of(self, workflow: str, task: Task, spread: RuntimeSpread) -> Task:
        """Return the task with the posterior of its kind and its workflow."""
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
        """Return the slot with the posterior of its site."""
        if slot.site not in self.sites:
            return slot
        drift, left = self.sites[slot.site]
        return slot.slowed(drift, math.sqrt(left))


_UNSEEN = (0.0, 1.0)


def update_errors(errors: Iterable[ObservedError]) -> PosteriorErrors:
    """Return the posterior of shared errors given the completed tasks."""
    rows = [error for error in errors if error.spread.total > 0]
    if not rows:
        return PosteriorErrors({}, {}, {})
    number: dict[tuple[str, str], int] = {}
    flows: dict[str, list[tuple[int, int, ObservedError]]] = {}
    for row in rows:
        kind = number.setdefault(("kind", row.kind), len(number))
        site = number.setdefault(("site", row.site), len(number))
        flows.setdefault(row.workflow, []).append((kind, site, row))
    # the prior: errors are independent, in units of their standard deviation
    precision, pull = np.eye(len(number)), np.zeros(len(number))
    parts = {name: _add_workflow(own, precision, pull) for name, own in flows.items()}
    covariance = np.linalg.inv(precision)
    mean = covariance @ pull
    shared = {name: (float(mean[n]), float(covariance[n, n])) for name, n in number.items()}
    deviations: dict[str, list[float]] = {}
    for row in rows:
        deviations.setdefault(row.site, []).append(row.spread.site)
    workflows = {}
    for name, (own, pulled, touched, coupling) in parts.items():
        part = covariance[np.ix_(touched, touched)]
        workflows[name] = (
            float((pulled - coupling @ mean[touched]) / own),
            float(1.0 / own + coupling @ part @ coupling / own**2),
        )
    return PosteriorErrors(
        kinds={n: v for (what, n), v in shared.items() if what == "kind"},
        sites={
            n: (v[0] * fmean(deviations[n]), v[1])
            for (what, n), v in shared.items()
            if what == "site"
        },
        workflows=workflows,
    )


_Part = tuple[float, float, list[int], Floats]


def _add_workflow(
    rows: list[tuple[int, int, ObservedError]], precision: Floats, pull: Floats
) -> _Part:
    """Add the observations of a workflow's tasks about kinds and sites, its own error eliminated;
    return the terms needed to compute that error."""
    touched = sorted({n for kind, site, _ in rows for n in (kind, site)})
    place = {n: k for k, n in enumerate(touched)}
    block, pulls = np.zeros((len(touched), len(touched))), np.zeros(len(touched))
    # 1 is the prior precision of the workflow's own error
    own, pulled, coupling = 1.0, 0.0, np.zeros(len(touched))
    for kind, site, row in rows:
        weight = 1.0 / max(_LEAST_OWN, row.spread.own) ** 2
        load = np.zeros(len(touched))
        load[place[kind]], load[place[site]] = row.spread.kind, row.spread.site
        block += weight * np.outer(load, load)
        pulls += weight * row.error * load
        own += weight * row.spread.workflow**2
        pulled += weight * row.error * row.spread.workflow
        coupling += weight * row.spread.workflow * load
    # Schur complement: what remains to be known of kinds and sites without that error
    precision[np.ix_(touched, touched)] += block - np.outer(coupling, coupling) / own
    pull[touched] += pulls - coupling * pulled / own
    return own, pulled, touched, coupling


def left_of(task: Task, spread: RuntimeSpread, age_s: float) -> Task:
    """Return the rest of a task that has run for this time (at speed 1): its distribution given
    that it is longer. One that takes longer than its estimate permits is about to take as much
    longer again as it has by now, with a wide spread: it is neither done nor lost."""
    if age_s <= 0:
        return task
    late_s, estimated = age_s - task.runtime_s, spread.total > 0 and task.runtime_s > 0
    if late_s < 0 and not estimated:
        return replace(task, runtime_s=-late_s)
    z = math.log(age_s / task.runtime_s) / spread.total if estimated else math.inf
    beyond = 1.0 - _STANDARD.cdf(z)
    # so far in the tail the conditional quantiles have no correct digits
    if beyond < 1e-9:
        return replace(task, runtime_s=late_s, spread=spread.alone(_LATE_SPREAD))

    def quantile(level: float) -> float:
        at = _STANDARD.inv_cdf(1.0 - beyond * (1.0 - level))
        # above zero, because the spread is computed from a logarithm
        return max(1e-3, task.runtime_s * math.exp(spread.total * at) - age_s)

    half, upper = quantile(0.5), quantile(_UPPER)
    wide = math.log(upper / half) / _STANDARD.inv_cdf(_UPPER)
    return replace(task, runtime_s=half, spread=spread.alone(min(_WIDEST, max(0.0, wide))))

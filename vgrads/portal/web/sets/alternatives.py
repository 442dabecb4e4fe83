"""The promise of a set for other values: for those that are chosen, then one point after the other
of its curves against the deadline and against the budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vgrads.portal.jobs.children import Call
from vgrads.portal.records.access import Principal
from vgrads.portal.records.sets import Head
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_display import read_summary
from vgrads.portal.web.set_document import is_as_planned, workflow_count
from vgrads.portal.web.set_routes import promise_call
from vgrads.portal.web.sets.questions import NewestQuestions, StillWaiting

Json = dict[str, Any]
_RATE = "600/minute"  # one point after the other: a user's never occupy more than one process
_RETAINED_S = 60.0  # after the last request for them
_DEADLINES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Points of the curve, in times of the set's own deadline."""
_PARTS = 8  # of the range of budgets
_LEAST_USD = 20.0  # the range of budgets for a set at no cost
MOST_TASKS = 1000
"""Of a set whose curves are computed: a point of a larger one takes minutes."""


@dataclass(frozen=True, slots=True)
class Values:
    """Values of a set that may be others; ``budget_usd`` None: without a limit."""

    deadline_s: float
    needed: int
    budget_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """What is computed so far: the answer for the chosen ``values`` (``here``; None: not yet), and
    by deadline and budget those for other ones, None where they are not yet. ``ahead``: so many
    computations come before the next one (0: it is being computed); None: nothing is missing, or
    nobody has asked for it."""

    values: Values
    here: Json | None
    deadlines: Mapping[float, Json | None]
    budgets: Mapping[float, Json | None]
    ahead: int | None

    @property
    def done(self) -> int:
        """Number of points that are computed."""
        return len(self._points()) - self.missing

    @property
    def total(self) -> int:
        """Number of points."""
        return len(self._points())

    @property
    def missing(self) -> int:
        """Number of points that are not computed yet."""
        return sum(answer is None for answer in self._points())

    def _points(self) -> list[Json | None]:
        return [*self.deadlines.values(), *self.budgets.values()]


@dataclass(frozen=True)
class SetPlan:
    """A set with its plan, and its document (JSON)."""

    head: Head
    text: str
    document: Json = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "document", json.loads(self.text))

    @property
    def own(self) -> Values:
        """The values that the set has."""
        promise = read_summary(self.head.summary)
        budget = self.document.get("budget_usd")
        return Values(float(promise.deadline_s or 1.0), promise.needed or 1, budget)

    @property
    def workflows(self) -> int:
        """Number of workflows."""
        return workflow_count(self.document)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return int((self.head.summary.get("counts") or {}).get("tasks") or 0)

    @property
    def most_usd(self) -> float:
        """The largest budget that is offered."""
        cost = float(self.head.summary.get("cost_usd") or 0.0)
        return 2 * max(cost, self.own.budget_usd or 0.0) or _LEAST_USD

    def change_to(self, values: Values) -> Json:
        """Return the options, as :class:`vgrads.portal.web.set_routes.WhatIf` has them, that differ
        from those of the set."""
        own, change = self.own, Json()
        if values.deadline_s != own.deadline_s:
            change["deadline"] = values.deadline_s
        if values.needed != own.needed:
            change["fraction"] = f"{min(values.needed, self.workflows)}/{self.workflows}"
        if values.budget_usd != own.budget_usd:
            change["budget_usd"] = values.budget_usd
        return change

    def planned(self, values: Values) -> Json | None:
        """Return the summary of the plan where it was made for these values."""
        summary, change = self.head.summary, self.change_to(values)
        return dict(summary) if is_as_planned(summary, self.document, change) else None


class _Series:
    """The points of one page for one set of values, in the order in which they are computed."""

    def __init__(self, plan: SetPlan, values: Values) -> None:
        self.plan, self.values = plan, values
        self.answers: dict[Values, Json | None] = {values: plan.planned(values)}
        # the chosen deadline is always one of the points
        deadlines = {share * plan.own.deadline_s for share in _DEADLINES} | {values.deadline_s}
        budgets = {n * plan.most_usd / _PARTS for n in range(_PARTS + 1)}
        if values.budget_usd is not None:
            budgets.add(values.budget_usd)
        if plan.tasks > MOST_TASKS:
            deadlines, budgets = set(), set()
        self.by_deadline = {x: replace(values, deadline_s=x) for x in sorted(deadlines)}
        self.by_budget = {x: replace(values, budget_usd=x) for x in sorted(budgets)}
        # in turn, so that neither curve has to wait for the other
        for point in _interleave([*self.by_deadline.values()], [*self.by_budget.values()]):
            # a point of both curves is computed once
            self.answers.setdefault(point, plan.planned(point))

    def next_point(self) -> Values | None:
        """Return the first point that is not computed."""
        return next((p for p, answer in self.answers.items() if answer is None), None)

    def state(self, ahead: int | None) -> Alternatives:
        """Return what is computed so far."""
        return Alternatives(
            values=self.values,
            here=self.answers[self.values],
            deadlines={x: self.answers[point] for x, point in self.by_deadline.items()},
            budgets={x: self.answers[point] for x, point in self.by_budget.items()},
            ahead=None if self.next_point() is None else ahead,
        )


def _interleave(first: Sequence[Values], second: Sequence[Values]) -> list[Values]:
    """Return two sequences as one, in turn."""
    longest = max(len(first), len(second))
    return [line[n] for n in range(longest) for line in (first, second) if n < len(line)]


def begun(plan: SetPlan, values: Values) -> Alternatives:
    """Return what is known without a computation."""
    return _Series(plan, values).state(None)


class AlternativeQuestions:
    """Computes the points of pages, one in each request, so nothing is computed for a page that
    nobody looks at any more."""

    def __init__(self, service: Service) -> None:
        self._service, self._questions = service, NewestQuestions(service, _RATE)
        self._series: dict[tuple[str, str], _Series] = {}
        self._forgetting: dict[tuple[str, str], asyncio.TimerHandle] = {}

    async def ask(
        self, who: Principal, page: str, plan: SetPlan, values: Values, wait_s: float
    ) -> Alternatives:
        """Return what is computed so far, after the next point, or after ``wait_s``.

        ``page``: which of the user's pages. Raise what :meth:`NewestQuestions.ask` raises.
        """
        series = self._series_of((who.user, page), plan, values)
        point = series.next_point()
        if point is None:
            return series.state(None)
        change, head = plan.change_to(point), plan.head

        def call() -> Call:
            return promise_call(self._service, head, plan.text, change)

        digest = json.dumps([head.id, head.revision, change])
        answer = await self._questions.ask(who, page, digest, call, wait_s)
        if isinstance(answer, StillWaiting):
            return series.state(answer.ahead)
        series.answers[point] = answer
        return series.state(0)

    def _series_of(self, key: tuple[str, str], plan: SetPlan, values: Values) -> _Series:
        series = self._series.get(key)
        # points of another plan or of other values answer another question
        if series is None or (series.plan.head, series.values) != (plan.head, values):
            series = self._series[key] = _Series(plan, values)
        if key in self._forgetting:
            self._forgetting[key].cancel()
        loop = asyncio.get_running_loop()
        self._forgetting[key] = loop.call_later(_RETAINED_S, self._forget, key)
        return series

    def _forget(self, key: tuple[str, str]) -> None:
        del self._series[key], self._forgetting[key]

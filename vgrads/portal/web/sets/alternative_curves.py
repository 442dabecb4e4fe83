"""The curves of a set's alternatives as pictures, and as tables with their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from vgrads.kernel.units import format_chance, format_duration
from vgrads.portal.charts.curves import BLUE, GREY, Curve, CurveChart, curves_svg
from vgrads.portal.web.set_display import read_summary
from vgrads.portal.web.sets.alternatives import Alternatives, SetPlan

Json = Mapping[str, Any]
_COLOUR = f"var(--accent, {BLUE})"
_CHOSEN, _NOT_CHOSEN = 6.0, 3.5  # radius of a dot


@dataclass(frozen=True, slots=True)
class AlternativePoint:
    """A point of a curve: its value ``x``, in words ``value``; the probability, None where it is
    not computed yet, and what to write of it and of the cost; ``chosen``: it is that of the
    sliders."""

    x: float
    value: str
    probability: float | None
    chance: str
    cost: str
    chosen: bool

    @property
    def words(self) -> str:
        """All of it, as a tooltip and for those who do not see the picture."""
        money = f" for {self.cost}" if self.cost else ""
        return f"{self.value}: {self.chance}{money}"


@dataclass(frozen=True, slots=True)
class AlternativeCurve:
    """A curve: what it depends on, its picture, and its points as rows of a table."""

    name: str
    picture: Markup
    points: tuple[AlternativePoint, ...]


def curves_of(plan: SetPlan, state: Alternatives) -> list[AlternativeCurve]:
    """Return the curves against the deadline and against the budget; none of a large set."""
    if not state.total:
        return []
    values, requested = state.values, read_summary(plan.head.summary).requested
    budget, usd = values.budget_usd, _choose_usd_format(plan.most_usd)
    money = "no limit of money" if budget is None else f"at most {usd(budget)}"
    by_deadline = f"Promised probability by deadline, with {money}"
    by_budget = f"Promised probability by budget, within {format_duration(values.deadline_s)}"
    deadlines = tuple(_list_points(state.deadlines, values.deadline_s, format_duration))
    budgets = tuple(_list_points(state.budgets, budget, usd))
    longest, most = (0.0, max(state.deadlines)), (0.0, max(state.budgets))
    ticks = tuple((x, usd(x)) for x in (n * plan.most_usd / 4 for n in range(5)))
    return [
        AlternativeCurve(
            "Deadline", _draw_curve(by_deadline, deadlines, requested, longest), deadlines
        ),
        AlternativeCurve(
            "Budget", _draw_curve(by_budget, budgets, requested, most, ticks), budgets
        ),
    ]


def _choose_usd_format(most: float) -> Callable[[float], str]:
    """Return how amounts of a range are written: in whole dollars where that suffices."""
    digits = 0 if most >= 40.0 else 2
    return lambda usd: f"${usd:,.{digits if usd == round(usd) else 2}f}"


def _list_points(
    answers: Mapping[float, Json | None], chosen: float | None, in_words: Callable[[float], str]
) -> Iterator[AlternativePoint]:
    """Yield the points of a curve. It never falls: a plan for an earlier deadline, or for less
    money, is one for a later one, or for more money, too."""
    best: Json = {}
    for x in sorted(answers):
        answer = answers[x]
        if answer is not None and _find_chance(answer) >= _find_chance(best):
            best = answer
        # a point that is not computed yet has no answer, even if an earlier one is
        at = None if answer is None else best
        yield AlternativePoint(x, in_words(x), *_format_answer(at), x == chosen)


def _find_chance(answer: Json) -> float:
    """Return a promised probability; without a plan below all others."""
    promise = read_summary(answer)
    return (promise.probability or 0.0) if promise.feasible else -1.0


def _format_answer(answer: Json | None) -> tuple[float | None, str, str]:
    """Return the probability of an answer, and in words what is promised and what it costs."""
    if answer is None:
        return None, "…", ""
    promise = read_summary(answer)
    if not promise.feasible or promise.probability is None:
        return 0.0, "cannot be promised", ""
    cost = promise.cost_usd or 0.0
    return promise.probability, format_chance(promise.probability), f"${cost:,.2f}"


def _draw_curve(
    title: str,
    points: tuple[AlternativePoint, ...],
    requested: float,
    x_range: tuple[float, float],
    x_labels: tuple[tuple[float, str], ...] = (),
) -> Markup:
    computed = [(point, point.probability) for point in points if point.probability is not None]
    chosen = [(point, y) for point, y in computed if point.chosen]
    words = "; ".join(point.words for point, _ in computed) or "nothing is computed yet"
    curves = [
        _draw_line([(p, y) for p, y in computed if not p.chosen or len(computed) > 1], _NOT_CHOSEN)
    ]
    if chosen:
        curves.append(_draw_line(chosen, _CHOSEN))
    chart = CurveChart(
        title=title,
        x_label="",
        y_label="",
        curves=tuple(curves),
        x_range=x_range,
        x_labels=x_labels,
        mark_colour=f"var(--soft, {GREY})",
        marks=tuple((point.x, point.value) for point in points if point.chosen),
        levels=((requested, f"{format_chance(requested)} requested"),),
        in_words=f"{title}: {words}. {format_chance(requested)} is requested.",
    )
    return Markup(curves_svg([chart]))


def _draw_line(points: list[tuple[AlternativePoint, float]], radius: float) -> Curve:
    return Curve(
        label="",
        points=tuple((point.x, y) for point, y in points),
        colour=_COLOUR,
        dots=radius,
        titles=tuple(point.words for point, _ in points),
    )

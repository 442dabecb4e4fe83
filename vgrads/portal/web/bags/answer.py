"""What the page of a bag answers first: a sentence, its tone, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.portal.records.reading.bags import BagEntry
from vgrads.portal.web.bag_entries import entry_of

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class BagAnswer:
    """``word``: the state, ``words``: the rest of the sentence; ``tone``: a class of the style
    sheet; ``due``: RFC 3339, of a goal that is still worked for; ``facts``: numbers with what they
    are."""

    word: str
    words: str
    tone: str
    due: str | None
    facts: tuple[tuple[str, str], ...]


def answer_of(row: BagEntry, bag: Json) -> BagAnswer:
    """Return the answer about a bag with this status."""
    entry, goal = entry_of(row, bag), bag.get("goal") or {}
    words = entry.progress
    if goal and "state" in goal:
        words += f", {goal['required']:,} needed within {_time_of(goal, bag)}"
        if goal["reached_s"] is not None:
            words += f"; that took {format_duration(goal['reached_s'] - bag['came_s'])}"
        elif entry.probability is not None and entry.goes_on:
            words += f"; {100 * entry.probability:.0f}\u202f% that it is met"
    elif entry.goes_on and bag["left_s"]:
        words += f"; at {bag['rate']:,.2g} a second the rest takes {format_duration(bag['left_s'])}"
    return BagAnswer(
        word=entry.state.word,
        words=words,
        tone=entry.state.tone,
        due=goal.get("due") if entry.goes_on else None,
        facts=tuple(_facts(bag, goal)),
    )


def _time_of(goal: Json, bag: Json) -> str:
    return format_duration(goal["due_s"] - bag["came_s"])


def _facts(bag: Json, goal: Json) -> list[tuple[str, str]]:
    facts = [(f"{bag['done']:,}", f"of {format_count(bag['tasks'], 'task')} done")]
    numbers = (
        ("failed", "failed"),
        ("running", "on agents"),
        ("waiting", "waiting"),
        ("tried_again", "retried"),
        ("reused", "were done before"),
        ("copied", "replicas of late tasks"),
    )
    facts += [(f"{bag[name]:,}", words) for name, words in numbers if bag.get(name)]
    if bag["typical_s"] is not None:
        facts.append((_short(bag["typical_s"]), "a task, about"))
    if goal.get("spent_usd"):
        budget = goal.get("budget_usd")
        of = f" of {format_usd(budget)}" if budget is not None else ""
        facts.append((f"{format_usd(goal['spent_usd'])}{of}", "spent"))
    return facts


def _short(seconds: float) -> str:
    """Return a time with two digits."""
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 10.0 else format_duration(seconds)

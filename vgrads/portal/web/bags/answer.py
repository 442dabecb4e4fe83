"""What the page of a bag answers first: a sentence, its tone, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vgrads.kernel.units import format_chance, format_count, format_duration, format_usd
from vgrads.portal.charts.pages import brief_seconds
from vgrads.portal.records.reading.bags import BagEntry
from vgrads.portal.web.bag_entries import entry_of
from vgrads.portal.web.set_display import AT_RISK, CANNOT_BE_MET

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class BagAnswer:
    """``word``: the state, ``chance``: the probability of its goal now, in words; ``goal``: of what
    that is, up to the instant ``due`` (RFC 3339, of a goal that is still worked for), ``requested``
    after it; ``words``: the rest of the sentence; ``tone``: a class of the style sheet; ``facts``:
    numbers with what they are."""

    word: str
    chance: str = ""
    goal: str = ""
    due: str | None = None
    requested: str = ""
    words: str
    tone: str
    facts: tuple[tuple[str, str], ...]

    @property
    def in_danger(self) -> bool:
        """True where the goal is worked for and probably not met."""
        return self.word in (AT_RISK.word, CANNOT_BE_MET.word)


def answer_of(row: BagEntry, bag: Json) -> BagAnswer:
    """Return the answer about a bag with this status."""
    entry, goal = entry_of(row, bag), bag.get("goal") or {}
    answer = BagAnswer(
        word=entry.state.word,
        words=entry.progress,
        tone=entry.state.tone,
        facts=tuple(_list_facts(bag, goal)),
    )
    rest = ""
    if entry.goes_on and bag["left_s"]:
        rest = f"; at {bag['rate']:,.2g} a second the rest takes {format_duration(bag['left_s'])}"
    if not goal or "state" not in goal:
        return replace(answer, words=f"{answer.words}{rest}")
    tasks = format_count(bag["tasks"], "task")
    if goal["reached_s"] is not None:
        took = f"; that took {format_duration(goal['reached_s'] - bag['came_s'])}"
        time = _describe_time(goal, bag)
        words = f"{entry.progress}, {goal['required']:,} needed within {time}{took}"
        return replace(answer, words=words)
    if not entry.goes_on:
        words = f"{entry.progress}, {goal['required']:,} needed within {_describe_time(goal, bag)}"
        return replace(answer, words=words)
    chance = "" if entry.probability is None else f"{format_chance(entry.probability)} now"
    return replace(
        answer,
        chance=chance,
        goal=(
            f"the probability that {goal['required']:,} of {tasks} are done"
            if chance
            else f"{goal['required']:,} of {tasks} are to be done"
        ),
        due=goal.get("due"),
        requested=format_chance(goal["requested"]),
        words=f"{bag['done']:,} are done so far{rest}{_describe_money(goal)}",
    )


def _describe_money(goal: Json) -> str:
    """Return what was spent for a goal, of which budget; empty without either."""
    if goal.get("budget_usd") is not None:
        return f"; {format_usd(goal['spent_usd'])} spent of {format_usd(goal['budget_usd'])}"
    return f"; {format_usd(goal['spent_usd'])} spent" if goal.get("spent_usd") else ""


def _describe_time(goal: Json, bag: Json) -> str:
    return format_duration(goal["due_s"] - bag["came_s"])


def _list_facts(bag: Json, goal: Json) -> list[tuple[str, str]]:
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
        facts.append((brief_seconds(bag["typical_s"]), "a task, about"))
    if goal.get("spent_usd"):
        budget = goal.get("budget_usd")
        of = f" of {format_usd(budget)}" if budget is not None else ""
        facts.append((f"{format_usd(goal['spent_usd'])}{of}", "spent"))
    return facts

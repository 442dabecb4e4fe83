"""Rules of a set: which states of its promise cause a message, and to which targets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from vgrads.kernel.documents import Document, Seconds, as_value_error
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.units import parse_duration

MOST_RULES = 20
"""Of a set."""
_Target = Annotated[str, Field(min_length=1, max_length=64)]
_State = Literal["at risk", "cannot be met", "failing", "missed", "on track"]
USUAL_STATES = (
    PromiseState.AT_RISK,
    PromiseState.CANNOT_BE_MET,
    PromiseState.FAILING,
    PromiseState.MISSED,
    PromiseState.ON_TRACK,
)


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """When somebody gets a message. ``to``: names of targets, empty: all of the owner. ``when``:
    states; ``on track`` after a message about another one. ``below``: the probability was smaller
    than this for ``for_s`` seconds; None: no such condition."""

    to: tuple[str, ...] = ()
    when: tuple[str, ...] = USUAL_STATES
    below: float | None = None
    for_s: float = 0.0


USUAL_RULES = (AlarmRule(),)
"""Rules of a set that states none."""


class AlarmDocument(Document):
    """A rule as users write it; ``for`` is a duration."""

    to: Annotated[tuple[_Target, ...], Field(min_length=1, max_length=50)] | None = None
    when: Annotated[tuple[_State, ...], Field(min_length=1)] | None = None
    below: Annotated[float, Field(gt=0, lt=1)] | None = None
    for_s: Annotated[Seconds | None, Field(alias="for")] = None

    @field_validator("for_s", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        return None if value is None else as_value_error(lambda: parse_duration(value, ""))

    @model_validator(mode="after")
    def _check_condition(self) -> AlarmDocument:
        if self.for_s is not None and self.below is None:
            raise ValueError("'for' needs 'below'")
        return self

    @property
    def rule(self) -> AlarmRule:
        """The rule: with ``below`` and without ``when``, only the probability counts."""
        usual = USUAL_STATES if self.below is None else (PromiseState.ON_TRACK,)
        return AlarmRule(
            to=self.to or (),
            when=self.when or usual,
            below=self.below,
            for_s=self.for_s or 0.0,
        )


def written_rules(rules: Iterable[AlarmRule]) -> list[dict[str, Any]]:
    """Return rules as :class:`AlarmDocument` reads them."""
    return [
        {"when": [str(state) for state in rule.when]}
        | ({"to": list(rule.to)} if rule.to else {})
        | ({} if rule.below is None else {"below": rule.below, "for": rule.for_s})
        for rule in rules
    ]

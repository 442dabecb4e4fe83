"""Rules of a set: which states of its promise, and which events, cause a message, and to which
targets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from vgrads.kernel.documents import Document, NotNegative, Seconds, as_value_error
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.units import parse_duration

MOST_RULES = 20
"""Of a set."""
LATE, SITE_FAILS = "late", "site fails"
"""Words of ``when`` that are no state of a promise."""
_MINUTES_A_DAY = 24 * 60
_CLOCK_TIMES = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*[-–]\s*([01]?\d|2[0-3]):([0-5]\d)")
_Target = Annotated[str, Field(min_length=1, max_length=64)]
_Targets = Annotated[tuple[_Target, ...], Field(min_length=1, max_length=50)]
_State = Literal["at risk", "cannot be met", "failing", "missed", "on track", "late", "site fails"]
USUAL_STATES = (
    PromiseState.AT_RISK,
    PromiseState.CANNOT_BE_MET,
    PromiseState.FAILING,
    PromiseState.MISSED,
    PromiseState.ON_TRACK,
)


@dataclass(frozen=True, kw_only=True)
class QuietHours:
    """Minutes of the local day, ``start`` included and ``end`` not, possibly over midnight."""

    start: int
    end: int

    def contains(self, minute: int) -> bool:
        """Return True if a minute of the day is within them."""
        length = (self.end - self.start) % _MINUTES_A_DAY
        return (minute - self.start) % _MINUTES_A_DAY < length

    def __str__(self) -> str:
        """Return them as users write them."""
        return "-".join(f"{at // 60:02d}:{at % 60:02d}" for at in (self.start, self.end))


@dataclass(frozen=True, kw_only=True)
class AlarmEscalation:
    """Who gets a message that nobody acknowledged within ``after_s`` seconds. ``to``: names of
    targets."""

    to: tuple[str, ...]
    after_s: float


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """When somebody gets a message.

    ``to``: names of targets, empty: all of the owner. ``when``: states, ``late`` (the median end is
    after the deadline) and ``site fails`` (the last slot of a site failed); ``on track`` after a
    message about something else. ``below``: the probability was smaller than this for ``for_s``
    seconds; ``not_begun_after_s``: no task has begun so long after the run did; ``above_usd``: the
    slots cost more than this; None: no such condition. ``quiet``: messages wait until these hours
    are over.
    """

    to: tuple[str, ...] = ()
    when: tuple[str, ...] = USUAL_STATES
    below: float | None = None
    for_s: float = 0.0
    not_begun_after_s: float | None = None
    above_usd: float | None = None
    quiet: QuietHours | None = None
    escalation: AlarmEscalation | None = None


USUAL_RULES = (AlarmRule(),)
"""Rules of a set that states none, and whose owner has none."""


def _read_duration(value: Any) -> Any:
    return None if value is None else as_value_error(lambda: parse_duration(value, ""))


class EscalationDocument(Document):
    """An escalation as users write it; ``after`` is a duration."""

    to: _Targets
    after_s: Annotated[Seconds, Field(alias="after", ge=60)]

    _duration = field_validator("after_s", mode="before")(_read_duration)


class AlarmDocument(Document):
    """A rule as users write it; ``for`` and ``not_begun_after`` are durations, ``quiet`` is as
    22:00-07:00."""

    to: _Targets | None = None
    when: Annotated[tuple[_State, ...], Field(min_length=1)] | None = None
    below: Annotated[float, Field(gt=0, lt=1)] | None = None
    for_s: Annotated[Seconds | None, Field(alias="for")] = None
    not_begun_after_s: Annotated[Seconds | None, Field(alias="not_begun_after")] = None
    above_usd: NotNegative | None = None
    quiet: Annotated[str, Field(max_length=20)] | None = None
    escalate: EscalationDocument | None = None

    _duration = field_validator("for_s", "not_begun_after_s", mode="before")(_read_duration)

    @field_validator("quiet")
    @classmethod
    def _check_quiet(cls, value: str | None) -> str | None:
        if value is not None:
            _parse_quiet_hours(value)
        return value

    @model_validator(mode="after")
    def _check_condition(self) -> AlarmDocument:
        if self.for_s is not None and self.below is None:
            raise ValueError("'for' needs 'below'")
        return self

    @property
    def rule(self) -> AlarmRule:
        """The rule: with another condition and without ``when``, this condition alone counts."""
        conditions = (self.below, self.not_begun_after_s, self.above_usd)
        is_usual = all(condition is None for condition in conditions)
        escalate = self.escalate
        return AlarmRule(
            to=self.to or (),
            when=self.when or (USUAL_STATES if is_usual else (PromiseState.ON_TRACK,)),
            below=self.below,
            for_s=self.for_s or 0.0,
            not_begun_after_s=self.not_begun_after_s,
            above_usd=self.above_usd,
            quiet=None if self.quiet is None else _parse_quiet_hours(self.quiet),
            escalation=None if escalate is None else AlarmEscalation(**escalate.model_dump()),
        )


AlarmDocuments = Annotated[tuple[AlarmDocument, ...], Field(max_length=MOST_RULES)]
"""Rules as users write them, in a set or for all of their sets."""


def read_rules(documents: Iterable[AlarmDocument] | None) -> tuple[AlarmRule, ...] | None:
    """Return the rules of documents; None: none were stated."""
    return None if documents is None else tuple(document.rule for document in documents)


class AlarmRulesDocument(Document):
    """Rules for all sets of a user that state none; None: the usual ones."""

    alarms: AlarmDocuments | None

    @property
    def rules(self) -> tuple[AlarmRule, ...] | None:
        """The rules."""
        return read_rules(self.alarms)


def _parse_quiet_hours(text: str) -> QuietHours:
    match = _CLOCK_TIMES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not two clock times as 22:00-07:00")
    hour, minute, end_hour, end_minute = (int(part) for part in match.groups())
    start, end = hour * 60 + minute, end_hour * 60 + end_minute
    if start == end:
        raise ValueError(f"'{text}' begins when it ends")
    return QuietHours(start=start, end=end)


def written_rules(rules: Iterable[AlarmRule]) -> list[dict[str, Any]]:
    """Return rules as :class:`AlarmDocument` reads them."""
    return [_format_rule(rule) for rule in rules]


def _format_rule(rule: AlarmRule) -> dict[str, Any]:
    escalation = rule.escalation
    fields = {
        "to": list(rule.to) or None,
        "when": [str(state) for state in rule.when],
        "below": rule.below,
        "for": rule.for_s if rule.below is not None else None,
        "not_begun_after": rule.not_begun_after_s,
        "above_usd": rule.above_usd,
        "quiet": None if rule.quiet is None else str(rule.quiet),
        "escalate": escalation and {"to": list(escalation.to), "after": escalation.after_s},
    }
    return {name: value for name, value in fields.items() if value is not None}

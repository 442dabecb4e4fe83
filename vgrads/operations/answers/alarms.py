"""Answers about alarms: their targets and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from vgrads.operations.fields import About


@dataclass(frozen=True, kw_only=True)
class AlarmTargetEntry:
    """A target of alarms. Its URL, which contains a secret, is shown to nobody."""

    name: Annotated[str, About("Name.", example="mail")]
    address: Annotated[
        str,
        About(
            "Scheme and host of its URL; the host only where it is no secret.",
            example="mailtos://mail.example.org",
        ),
    ]
    created: Annotated[str, About("RFC 3339.", example="2026-03-01T12:00:00+00:00")]


@dataclass(frozen=True, kw_only=True)
class EscalationEntry:
    """Who gets a message that nobody acknowledged."""

    to: Annotated[Sequence[str], About("Names of targets.", example=["boss"])]
    after: Annotated[float, About("After how long.", unit="s", example=1800.0)]


@dataclass(frozen=True, kw_only=True)
class AlarmRuleEntry:
    """A rule of alarms: when somebody gets a message."""

    when: Annotated[
        Sequence[str], About("States and events.", example=["failing", "missed", "on track"])
    ]
    to: Annotated[Sequence[str] | None, About("Names of targets; missing: all.")] = None
    below: Annotated[
        float | None, About("The probability was below this for a time.", example=0.5)
    ] = None
    for_s: Annotated[
        float | None, About("For how long it was below.", unit="s", key="for", example=600.0)
    ] = None
    not_begun_after: Annotated[
        float | None, About("No task has begun so long after the run did.", unit="s")
    ] = None
    above_usd: Annotated[float | None, About("The slots cost more than this.", unit="USD")] = None
    quiet: Annotated[
        str | None,
        About("Hours of the machine's local day in which messages wait.", example="22:00-07:00"),
    ] = None
    escalate: Annotated[EscalationEntry | None, About("Who gets it if nobody acknowledges it.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class RulesOfOwner:
    """Your rules of alarms, for runs of sets that state none."""

    alarms: Annotated[
        Sequence[AlarmRuleEntry] | None, About("Rules as in a set; null: the usual ones.")
    ]


@dataclass(frozen=True, kw_only=True)
class Acknowledged:
    """Messages about a run of which somebody takes care."""

    run: Annotated[str, About("Id of the run.", example="run-0123456789")]
    upto: Annotated[int, About("Number of the last one.", example=2)]


@dataclass(frozen=True, kw_only=True)
class TargetTest:
    """What became of a message to a target."""

    target: Annotated[str, About("Name.", example="mail")]
    ok: Annotated[bool, About("Whether it was delivered.", example=True)]
    reason: Annotated[str, About("Why not.", example="")]

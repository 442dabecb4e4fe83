"""Answers about targets of alarms."""

from __future__ import annotations

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
class TargetTest:
    """What became of a message to a target."""

    target: Annotated[str, About("Name.", example="mail")]
    ok: Annotated[bool, About("Whether it was delivered.", example=True)]
    reason: Annotated[str, About("Why not.", example="")]

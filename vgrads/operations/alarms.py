"""Requests about alarms: targets, where owners are notified, and rules. Light: the commands are
generated from these."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated

from vgrads.kernel.errors import InputError
from vgrads.operations.fields import About, OnCommandLine, Request

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST_NAME, _LONGEST_URL = 64, 2000

TargetName = Annotated[
    str,
    About("Name of the target.", example="mail"),
    OnCommandLine(argument=True, metavar="NAME"),
]


@dataclass(frozen=True, kw_only=True)
class AddTargetRequest(Request):
    """Add a target of alarms. Its URL is stored with its secret and shown by no command; mailtos://
    (mail), slack://, workflows:// (Teams), matrixs://, jsons:// (any server) and the other services
    of apprise."""

    name: TargetName
    url: Annotated[
        str,
        About(
            "URL of apprise, e.g. mailtos://USER:PASSWORD@mail.example.org?to=ann@example.org; "
            "- reads it from standard input, so that it is in no history of commands."
        ),
        OnCommandLine(argument=True, metavar="URL"),
    ] = field(repr=False)

    def __post_init__(self) -> None:
        """Raise InputError for a name or a URL that cannot be one; it does not contain the URL."""
        check_target_name(self.name)
        if len(self.url) > _LONGEST_URL:
            raise InputError(f"has more than {_LONGEST_URL} characters", where="url")
        if not self.url.isprintable() or " " in self.url:
            raise InputError("contains spaces or unprintable characters", where="url")


@dataclass(frozen=True, kw_only=True)
class ListTargetsRequest(Request):
    """List the targets of alarms: names, services and hosts, no secrets."""


@dataclass(frozen=True, kw_only=True)
class RemoveTargetRequest(Request):
    """Remove a target of alarms."""

    name: TargetName


@dataclass(frozen=True, kw_only=True)
class TryTargetRequest(Request):
    """Send a message to a target of alarms. It takes 20 s at most; exit 4 where it was not
    delivered."""

    name: TargetName


@dataclass(frozen=True, kw_only=True)
class RulesRequest(Request):
    """Show your rules of alarms, for runs of sets that state none; or replace them by those of a
    file: 'alarms', as in a set."""

    file: Annotated[
        str | None,
        About("File (YAML) with the new rules; - is standard input. Default: show them."),
        OnCommandLine(argument=True, metavar="[FILE]"),
    ] = None
    reset: Annotated[bool, About("Use the usual rules again.")] = False

    def __post_init__(self) -> None:
        """Raise InputError for two ways at once."""
        if self.reset and self.file is not None:
            raise InputError("cannot be combined with a file", where="--reset")


@dataclass(frozen=True, kw_only=True)
class AcknowledgeRequest(Request):
    """Acknowledge the alarms of a run so far: you take care of it, so nobody else is notified of
    them."""

    run: Annotated[
        str,
        About("Id or name of a run or set."),
        OnCommandLine(argument=True, metavar="RUN", complete="complete_runs"),
    ]


def check_target_name(name: str) -> None:
    """Raise InputError for a text that is no name of a target."""
    if len(name) > _LONGEST_NAME:
        raise InputError(f"has more than {_LONGEST_NAME} characters", where="name")
    if not _NAME.fullmatch(name):
        raise InputError(
            f"'{name}' is not a valid name", where="name", fix="use letters, digits and . _ -"
        )

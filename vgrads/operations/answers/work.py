"""Answers about whatever an id or a name means, and about the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from vgrads.operations.fields import About


@dataclass(frozen=True, kw_only=True)
class WorkLinks:
    """Where more is to be found."""

    resource: Annotated[str, About("Path of its resource.", example="/v1/bags/bag-0123456789")]
    page: Annotated[str, About("Path of its page.", example="/bags/bag-0123456789")]


@dataclass(frozen=True, kw_only=True)
class WorkDescription:
    """What an id or a name means."""

    kind: Annotated[Literal["set", "run", "bag", "matrix", "pool"], About("Kind.", example="bag")]
    id: Annotated[str, About("Id.", example="bag-0123456789")]
    name: Annotated[str, About("Name.", example="sweep")]
    owner: Annotated[str, About("Who submitted it.", example="ann")]
    state: Annotated[str, About("State.", example="running")]
    links: Annotated[WorkLinks, About("Where more is to be found.")]
    set: Annotated[str | None, About("Id of the set, of a set or run.")] = None
    run: Annotated[str | None, About("Id of the run, of a set or run.")] = None


@dataclass(frozen=True, kw_only=True)
class WorkRequestSent:
    """What became of a request: the run or the bag, in words."""

    message: Annotated[str, About("In words.", example="its manager was asked to stop")]
    run: Annotated[str | None, About("Id of the run.", example="run-0123456789")] = None
    id: Annotated[str | None, About("Id of the bag.")] = None


@dataclass(frozen=True, kw_only=True)
class WorkRetried:
    """What is done again: a new run of the same set, or tasks of the same bag."""

    run: Annotated[str | None, About("Id of the new run.", example="run-0123456789")] = None
    id: Annotated[str | None, About("Id of the bag.")] = None
    tasks: Annotated[int | None, About("Number of the bag's tasks.")] = None
    message: Annotated[str | None, About("Of a bag, in words.")] = None


@dataclass(frozen=True, kw_only=True)
class WorkArchived:
    """Whether lists of work leave out a set or a bag."""

    id: Annotated[str, About("Id of the set or bag.", example="set-0123456789")]
    archived: Annotated[bool, About("Whether it is archived.", example=True)]


@dataclass(frozen=True, kw_only=True)
class TokenDescription:
    """The token of a request."""

    user: Annotated[str, About("Its user.", example="ann")]
    scopes: Annotated[Sequence[str], About("Its scopes.", example=["read", "submit"])]
    expires_s: Annotated[float | None, About("Since 1970; null: it does not expire.", "s")]


@dataclass(frozen=True, kw_only=True)
class ServiceState:
    """Whether the service works."""

    status: Annotated[str, About("ok, or ready.", example="ready")]

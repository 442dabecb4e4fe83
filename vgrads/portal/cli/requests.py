"""Requests of commands: options shared by many, and errors that name options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from vgrads.kernel.errors import InputError
from vgrads.operations.fields import About, OnCommandLine, describe_fields


@dataclass(frozen=True, kw_only=True)
class CommandOutput:
    """What every command that prints a result has."""

    as_json: Annotated[
        bool,
        About("Print one JSON document to stdout and nothing else."),
        OnCommandLine(flags="--json"),
    ] = False


@dataclass(frozen=True, kw_only=True)
class LinesOutput:
    """Of commands that print many records."""

    as_json: Annotated[
        bool, About("Print one JSON document per line."), OnCommandLine(flags="--json")
    ] = False


@dataclass(frozen=True, kw_only=True)
class NoOutput:
    """Of commands that write files or texts, and print no result."""


@dataclass(frozen=True, kw_only=True)
class TableOutput(CommandOutput):
    """The same, with tables."""

    wide: Annotated[
        bool,
        About("Show all columns of tables, however long the lines become."),
        OnCommandLine(check="vgrads.portal.cli.wide:set_wide", is_global=True),
    ] = False


@contextmanager
def naming_options(request: type) -> Iterator[None]:
    """Errors of the block name options (``--walltime``) instead of fields (``walltime_s``)."""
    try:
        yield
    except InputError as error:
        flags = {field.name: field.flag for field in describe_fields(request)}
        names = error.where.split(", ")
        error.where = ", ".join(flags.get(name, name) for name in names)
        raise

"""Errors of a command's arguments in the words of all other errors: what is wrong with which
option or argument, and where its help is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from vgrads.kernel.errors import InputError
from vgrads.kernel.problems import suggest, value_problem

_EXTRA = "Got unexpected extra argument(s)"


class Parameter(Protocol):
    """An option or argument of a command."""

    opts: Sequence[str]
    secondary_opts: Sequence[str]
    metavar: str | None


class Command(Protocol):
    """A command or group of Click."""

    params: Sequence[Parameter]


def usage_error(error: Exception, application: Command, arguments: Sequence[str]) -> InputError:
    """Convert an error of Click about the arguments of a command of an application."""
    path, command, rest = _find_command(application, arguments)
    parameter = getattr(error, "param", None)
    where, what = _phrase_error(error, command, rest)
    if parameter is not None:
        where = _name(parameter)
        # a value that a model refused: its problem is worded as in documents
        details = getattr(error.__cause__ or error.__context__, "errors", None)
        if details is not None:
            return InputError(value_problem(details()[0]), where=where)
    return InputError(what, where=where, fix=f"see '{path} --help'")


def hide_urls(text: str) -> str:
    """Return an argument without what follows the scheme of a URL, which may contain a password.

    >>> hide_urls("mailtos://ann:secret@example.org")
    'mailtos://…'
    """
    scheme, mark, _ = text.partition("://")
    return f"{scheme}{mark}…" if mark else text


def _find_command(application: Command, arguments: Sequence[str]) -> tuple[str, Command, list[str]]:
    """Return the words of the command that arguments name, the command, and what follows."""
    path, rest = "vgrads", list(arguments)
    command: Any = application
    while rest and (inner := getattr(command, "commands", {}).get(rest[0])) is not None:
        path, command = f"{path} {rest.pop(0)}", inner
    return path, command, rest


def _name(parameter: Parameter) -> str:
    """Return the name of an option or argument as its help shows it."""
    first = str(parameter.opts[0])
    return first if first.startswith("-") else str(parameter.metavar or first).strip("[]")


def _phrase_error(error: Exception, command: Command, rest: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong where, by the kind of the error."""
    kind, option = type(error).__name__, str(getattr(error, "option_name", ""))
    text = str(getattr(error, "message", "")).rstrip(".")
    if kind == "MissingParameter":
        return "", "is missing"
    if kind == "NoSuchOption":
        return option, f"no such option{_suggest_option(option, command)}"
    if kind == "BadOptionUsage":
        return option, "needs a value" if "requires" in text else "takes no value"
    names = getattr(command, "commands", {})
    if names and rest and not rest[0].startswith("-"):
        return rest[0], f"no such command{suggest(rest[0], list(names), report=False)}"
    if text.startswith(_EXTRA):
        return "", f"unexpected argument '{hide_urls(text.removeprefix(_EXTRA).strip(' ()'))}'"
    return "", text[:1].lower() + text[1:]


def _suggest_option(option: str, command: Command) -> str:
    """Return the question about the most similar option; its dashes are no similarity."""
    names = {"help": "--help"}
    for entry in command.params:
        names |= {name.lstrip("-"): name for name in (*entry.opts, *entry.secondary_opts)}
    return suggest(option.lstrip("-"), names, report=False)

"""Options of a command as getopt_long(3) reads them: prefixes, ``-n4``, ``-hn4``, ``--``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.slurm.errors import Reply, SlurmError

NONE, REQUIRED, OPTIONAL = "none", "required", "optional"
SLURM_VERSION = "22.05.8"
"""The version of Slurm whose replies are reproduced."""


@dataclass(frozen=True)
class Option:
    """An option: its long name, its letter (or none), and whether it takes an argument."""

    long: str
    short: str = ""
    argument: str = NONE


@dataclass(frozen=True)
class CommandOptions:
    """The options of a command; ``ordered``: they end at the first word that is none.

    ``hint`` is printed after a message about an option; ``code`` is the exit status then.
    """

    program: str
    options: tuple[Option, ...]
    ordered: bool = False
    hint: bool = True
    code: int = 1
    ignored: frozenset[str] = frozenset()
    """Names of unknown options to skip; one with ``=`` at its end also takes the next word."""

    def error(self, message: str) -> SlurmError:
        """Return an error about an option, in the words of getopt_long(3)."""
        advice = f'\nTry "{self.program} --help" for more information' if self.hint else ""
        return SlurmError(f"{self.program}: {message}{advice}", self.code)


Parsed = list[tuple[str, str | None]]


def options(text: str) -> tuple[Option, ...]:
    """Return the options of a table: ``name``, ``name=`` (required), ``name=?`` (optional), each
    with ``/x`` for a letter.

    >>> options("hold/H name/n= nice=?")[1]
    Option(long='name', short='n', argument='required')
    """
    result = []
    for word in text.split():
        name, equals, optional = word.partition("=")
        argument = (OPTIONAL if optional else REQUIRED) if equals else NONE
        long, _, short = name.partition("/")
        result.append(Option(long, short, argument))
    return tuple(result)


def scan(command: CommandOptions, arguments: Sequence[str]) -> tuple[Parsed, list[str]]:
    """Return the options, by long name and with their arguments, in order, and the other words.

    Raises SlurmError with the words of getopt_long(3).
    """
    parsed: Parsed = []
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if word.startswith("--"):
            _parse_long(command, word, rest, parsed)
        elif word.startswith("-") and len(word) > 1:
            _parse_short(command, word, rest, parsed)
        else:
            words.append(word)
            if command.ordered:
                words += rest
                break
    return parsed, words


def _parse_long(command: CommandOptions, word: str, rest: list[str], parsed: Parsed) -> None:
    name, equals, value = word[2:].partition("=")
    if _skip(command, name, equals, rest):
        return
    option = _find_named(command, name, word)
    if option.argument == NONE and equals:
        raise command.error(f"option '--{option.long}' doesn't allow an argument")
    if option.argument == REQUIRED and not equals:
        if not rest:
            raise command.error(f"option '--{option.long}' requires an argument")
        value = rest.pop(0)
        equals = "="
    parsed.append((option.long, value if equals else None))


def _find_named(command: CommandOptions, name: str, word: str) -> Option:
    # getopt_long(3) accepts the beginning of a name; a whole name is never ambiguous
    matches = [option for option in command.options if option.long.startswith(name)]
    exact = [option for option in matches if option.long == name]
    if exact:
        return exact[0]
    if not matches:
        raise command.error(f"unrecognized option '{word}'")
    if len(matches) > 1:
        names = " ".join(f"'--{option.long}'" for option in matches)
        raise command.error(f"option '{word}' is ambiguous; possibilities: {names}")
    return matches[0]


def _skip(command: CommandOptions, name: str, equals: str, rest: list[str]) -> bool:
    """Whether an option is on the list of those to skip; its argument is skipped too."""
    if f"{name}=" in command.ignored:
        if not equals and rest:
            rest.pop(0)
        return True
    if name not in command.ignored:
        return False
    takes = next((option.argument for option in command.options if option.long == name), NONE)
    if takes == REQUIRED and not equals and rest:
        rest.pop(0)
    return True


def _parse_short(command: CommandOptions, word: str, rest: list[str], parsed: Parsed) -> None:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        if f"{letter}=" in command.ignored:
            if not letters and rest:
                rest.pop(0)
            return
        option = next((o for o in command.options if o.short == letter), None)
        if option is None:
            if letter in command.ignored:
                continue
            raise command.error(f"invalid option -- '{letter}'")
        skipped = option.long in command.ignored or letter in command.ignored
        value: str | None = None
        # an optional argument follows its letter without a space, as for getopt_long(3)
        if option.argument == OPTIONAL:
            value, letters = letters or None, ""
        elif option.argument == REQUIRED:
            if not letters and not rest:
                raise command.error(f"option requires an argument -- '{letter}'")
            value, letters = letters or rest.pop(0), ""
        if not skipped:
            parsed.append((option.long, value))


def information(command: CommandOptions, parsed: Parsed, usage: str) -> Reply | None:
    """Return the reply to ``--version``, ``--help`` or ``--usage``; None without these."""
    for name, _ in parsed:
        if name == "version":
            return Reply(f"slurm-wlm {SLURM_VERSION}\n")
        if name in ("help", "usage"):
            names = " ".join(f"[--{option.long}]" for option in command.options)
            return Reply(f"Usage: {command.program} {usage}\n{names}\n")
    return None


def listed(value: str | None) -> tuple[str, ...]:
    """Return the words of a comma-separated list, without empty ones."""
    return tuple(word.strip() for word in (value or "").split(",") if word.strip())

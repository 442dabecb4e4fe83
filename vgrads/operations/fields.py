"""What the fields of requests and answers mean, for every interface: commands, REST, Python and the
reference are made of it.

A request or answer is a frozen dataclass; each field is ``name: Annotated[type, About(...)]``.
Interfaces read these from the class when they are generated or described, never when a command
starts.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import sys
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, SupportsIndex, get_args, get_origin

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration


@dataclass(frozen=True, slots=True)
class About:
    """A field: ``help``, one or two sentences; ``unit`` (s, MiB, USD, processors); an ``example``;
    bounds of a number, where ``above`` and ``below`` exclude their value; the ``choices`` of a
    text; its ``key`` in JSON, where that is not its name."""

    help: str
    unit: str = ""
    example: Any = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    key: str = ""


class TextForm(str):
    """How people write a value that has another type inside: the name of a row in the tables of
    the generator (``scripts/interfaces/forms.py``)."""


DURATION = TextForm("duration")
"""Seconds, written as 90s, 30m, 2h or 1d. The name of such a field ends in ``_s``."""
SHARE = TextForm("share")
"""A number between 0 and 1, also written as 95 %."""
INSTANT = TextForm("instant")
"""Seconds of a log's own clock, or a time with its zone (RFC 3339)."""
DEADLINE = TextForm("deadline")
"""A duration from now or a time with its zone, as text."""
NAMES = TextForm("names")
"""Names with commas between them; in Python also a sequence."""
SPEED = TextForm("speed")
"""Virtual seconds per second; None, written as max: as fast as possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCommandLine:
    """What a command shows differently: ``flags`` instead of the field's name (``--probability
    -p``), an ``argument`` without a flag, the word for its value (``metavar``), its default in
    words, a function of ``vgrads.portal.cli.completion`` that completes it, and one of
    ``vgrads.portal.cli.options`` that refuses a value before any work (``check``). ``is_global``:
    such a function takes the value, the command does not."""

    flags: str = ""
    argument: bool = False
    metavar: str = ""
    default: str = ""
    complete: str = ""
    check: str = ""
    is_global: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDescription:
    """A field of a request or answer, as declared. ``default``: MISSING for a required one."""

    name: str
    type: Any
    about: About
    default: Any
    form: TextForm | None = None
    shown: OnCommandLine = OnCommandLine()

    @property
    def is_required(self) -> bool:
        """Return True where the field has no default."""
        return self.default is MISSING

    @property
    def key(self) -> str:
        """The key in JSON."""
        return self.about.key or self.name

    @property
    def word(self) -> str:
        """The name where values have their unit: ``walltime`` for ``walltime_s``."""
        is_duration = self.form == DURATION and self.name.endswith("_s")
        return self.name.removesuffix("_s") if is_duration else self.name

    @property
    def flag(self) -> str:
        """The name on the command line: a flag, or the word for an argument."""
        if self.shown.argument:
            return self.shown.metavar or self.name.upper()
        return (self.shown.flags or f"--{self.word.replace('_', '-')}").split()[0]


_described: dict[type, tuple[FieldDescription, ...]] = {}


def describe_fields(of: type) -> tuple[FieldDescription, ...]:
    """Return the fields of a request or answer, without those of classes that are not
    ``DESCRIBED``. Raise TypeError for one without an :class:`About`."""
    if of not in _described:
        hints: dict[str, Any] = {}
        # bases first, so that a class can declare a field of its base anew
        for base in reversed(of.__mro__):
            # of the class itself: one that is derived from an undescribed class is described
            if vars(base).get("DESCRIBED", True):
                names = vars(sys.modules[base.__module__])
                own = inspect.get_annotations(base)
                hints |= {k: _evaluate_annotation(value, names) for k, value in own.items()}
        entries = [entry for entry in dataclasses.fields(of) if entry.name in hints]
        _described[of] = tuple(_describe(of, entry, hints[entry.name]) for entry in entries)
    return _described[of]


def field_values(options: object, of: type) -> dict[str, Any]:
    """Return the values of those fields that a request shares with its class, or with another."""
    return {field.name: getattr(options, field.name) for field in describe_fields(of)}


def _evaluate_annotation(annotation: object, names: dict[str, Any]) -> object:
    """Return an annotation, which is text where the module defers them (PEP 563)."""
    return eval(annotation, names) if isinstance(annotation, str) else annotation


def _describe(of: type, entry: dataclasses.Field[Any], hint: object) -> FieldDescription:
    marks: tuple[Any, ...] = ()
    kind: Any = hint
    while get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        # outer marks come last, and the last one of a kind counts
        marks = (*more, *marks)
    abouts = [mark for mark in marks if isinstance(mark, About)]
    if not abouts:
        raise TypeError(f"{of.__name__}.{entry.name} has no About")
    default = entry.default
    if entry.default_factory is not MISSING:
        default = entry.default_factory()
    return FieldDescription(
        name=entry.name,
        type=kind,
        about=abouts[-1],
        default=default,
        form=next((mark for mark in marks if isinstance(mark, TextForm)), None),
        shown=next((m for m in reversed(marks) if isinstance(m, OnCommandLine)), OnCommandLine()),
    )


class Request:
    """A request: its values are within their ranges, whichever interface it comes from."""

    def __post_init__(self) -> None:
        """Raise InputError, with the name of the field, for a value out of its range or choices."""
        for field in describe_fields(type(self)):
            entry = getattr(self, field.name)
            if field.type is int:
                entry = _require_whole_number(field.name, entry)
                # requests are frozen; an integer of numpy becomes one that JSON can hold
                object.__setattr__(self, field.name, entry)
            for value in entry if isinstance(entry, tuple) else (entry,):
                if value is not None and field.about.choices:
                    _check_choice(field.name, value, field.about.choices)
                if isinstance(value, int | float):
                    _check_range(field, value)


def _require_whole_number(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"'{value}' is not a whole number", where=name) from None


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value in choices:
        return
    from vgrads.kernel.problems import suggest  # noqa: PLC0415 late: for an error alone

    raise InputError(
        f"unknown value '{value}'{suggest(value, choices, report=False)}",
        where=name,
        fix=f"choose one of {', '.join(choices)}",
    )


def _check_range(field: FieldDescription, value: float) -> None:
    about = field.about
    limits = [
        ("at least", about.minimum, about.minimum is None or value >= about.minimum),
        ("at most", about.maximum, about.maximum is None or value <= about.maximum),
        ("more than", about.above, about.above is None or value > about.above),
        ("less than", about.below, about.below is None or value < about.below),
    ]
    for words, limit, holds in limits:
        if limit is not None and not holds:
            value_text, limit_text = (_format_value(field, number) for number in (value, limit))
            raise InputError(f"'{value_text}' must be {words} {limit_text}", where=field.name)


def _format_value(field: FieldDescription, value: float) -> str:
    return format_duration(value) if field.form == DURATION else f"{value:.12g}"

"""Tables whose columns a format states: ``%.18i %9P|%T`` and ``JobID:10,Name:.20``.

Source: --format and --Format in squeue(1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from vgrads.slurm.text.padding import pad_left, pad_right, parse_width

_Row = TypeVar("_Row")

LONG_WIDTH = 20
"""Width of a column of ``-O`` where none is stated."""


@dataclass(frozen=True)
class TableField(Generic[_Row]):
    """A field: its title and how a row shows it; durations on the right
    are never truncated."""

    title: str
    text: Callable[[_Row], str]
    is_duration: bool = False


@dataclass(frozen=True)
class TableColumn(Generic[_Row]):
    """A field with its width (0: as it is), its side, and the text that follows it."""

    field: TableField[_Row]
    width: int = 0
    right: bool = False
    suffix: str = ""

    def pad(self, text: str) -> str:
        """Return a text in the width of this column; one that is longer is truncated."""
        if not self.width:
            return text + self.suffix
        whole = self.right and self.field.is_duration and text != self.field.title
        text = text if whole else text[: self.width]
        text = pad_left(text, self.width) if self.right else pad_right(text, self.width)
        return text + self.suffix


@dataclass(frozen=True)
class TableFormat(Generic[_Row]):
    """Text before the first column, the columns, and one message for each unknown field."""

    prefix: str
    columns: tuple[TableColumn[_Row], ...]
    problems: tuple[str, ...] = ()

    def header(self) -> str:
        """Return the line of titles."""
        return self.prefix + "".join(c.pad(c.field.title) for c in self.columns) + "\n"

    def render(self, rows: Iterable[_Row], *, header: bool) -> str:
        """Return the table, a line for each row."""
        parts = [(column.field.text, column.pad) for column in self.columns]
        prefix = self.prefix
        lines = [self.header()] if header else []
        for row in rows:
            lines.append(prefix + "".join([pad(text(row)) for text, pad in parts]) + "\n")
        return "".join(lines)


def short_format(text: str, fields: Mapping[str, TableField[_Row]]) -> TableFormat[_Row]:
    """Parse ``%[[.]size]type[suffix]``; an unknown type stays as it was written. SlurmError for a
    size that is too large."""
    prefix, *parts = text.split("%")
    columns: list[TableColumn[_Row]] = []
    problems: list[str] = []
    for part in parts:
        rest = part.removeprefix(".")
        digits = len(rest) - len(rest.lstrip("0123456789"))
        letter, suffix = rest[digits : digits + 1], rest[digits + 1 :]
        field = fields.get(letter)
        if field is not None:
            columns.append(
                TableColumn(field, parse_width(rest[:digits]), part.startswith("."), suffix)
            )
            continue
        if letter:
            problems.append(letter)
        literal = f"%{part}" if letter else ""
        if columns:
            last = columns[-1]
            columns[-1] = TableColumn(last.field, last.width, last.right, last.suffix + literal)
        else:
            prefix += literal
    return TableFormat(prefix, tuple(columns), tuple(problems))


def long_format(text: str, fields: Mapping[str, TableField[_Row]]) -> TableFormat[_Row]:
    """Parse ``name[:[.]size[suffix]],…``; names are in any case. SlurmError for a size that is too
    large."""
    columns: list[TableColumn[_Row]] = []
    problems: list[str] = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, colon, size = part.partition(":")
        field = fields.get(name.lower())
        if field is None:
            problems.append(name)
            continue
        rest = size.removeprefix(".")
        digits = len(rest) - len(rest.lstrip("0123456789"))
        width = parse_width(rest[:digits]) if colon else LONG_WIDTH
        columns.append(TableColumn(field, width, size.startswith("."), rest[digits:]))
    return TableFormat("", tuple(columns), tuple(problems))

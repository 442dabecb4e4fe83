"""The reader of tables of records: ``sacct``, traces of Nextflow, CSV exports.

Tables come with any delimiter between their columns, in any order of columns, padded to a fixed
width, joined with ``cat`` (then headers are repeated, also different ones), without a header, and
with text of users in them: a job's name or command may contain the delimiter or span lines. A row
is accepted only if every cell of a column with a known form has that form, so that a cell never
counts for the column beside it.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count

_RULE = re.compile(r"\s*-+(\s+-+)*\s*")
_MARKS = re.compile(r"\t|[^\w\s%\"'().:+/\[\]-]+")
_SCRIPTS = frozenset(("submitline", "submit_line", "script", "command"))  # of many lines
_IN_ROW = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")  # and in no header
_QUOTING = ",;"  # programs that write these put text in quotes; sacct does not
_LONGEST_ROW = 500  # lines of one record, a script in a command line
_FREE_TEXT = frozenset(
    (
        *("name", "jobname", "job_name", "comment", "admincomment", "systemcomment", "reason"),
        *("workdir", "work_dir", "submitline", "submit_line", "extra", "script", "command"),
    )
)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|-?\d+(\.\d+)?|[A-Za-z/_]*")
_DURATION = re.compile(r"[\d:.-]+|[A-Za-z/_]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?[KMGTP]?|[A-Za-z/_]*")
_STATE = re.compile(r"[A-Za-z_]*( by \d+)?\+?")
_JOB = re.compile(r"\d+([._+\[-].*)?")
JOB_IDS = ("jobid", "job_id", "jobidraw")
_INSTANTS = (
    *("submit", "eligible", "start", "end"),
    *("submit_time", "eligible_time", "start_time", "end_time"),
)
_DURATIONS = ("elapsed", "timelimit", "wallclock_req", "run_time")
_NUMBERS = (
    *("elapsedraw", "timelimitraw", "alloccpus", "ncpus", "reqcpus", "processors_req"),
    *("nnodes", "allocnodes", "reqnodes", "nodes_req"),
)
_FORMS = {
    **dict.fromkeys(JOB_IDS, _JOB),
    **dict.fromkeys(_INSTANTS, _INSTANT),
    **dict.fromkeys(_DURATIONS, _DURATION),
    **dict.fromkeys(_NUMBERS, _NUMBER),
    "state": _STATE,
}


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """Names of the columns of the rows below it, in lower case."""

    names: tuple[str, ...]

    def positions(self, names: Iterable[str]) -> list[int]:
        """Return the columns that have these names, as far as they exist, in this order."""
        return [self.names.index(name) for name in names if name in self.names]


class TableRow(NamedTuple):
    """Cells of a record, without the spaces around them, and the number of its first line (from
    1)."""

    line: int
    cells: list[str]
    header: Header


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is no row of the table, and why."""

    line: int
    why: str


class OtherLine(NamedTuple):
    """A line that is no row and need not be one: its kind."""

    kind: str


HEADER, COMMENT, CONTINUED = map(OtherLine, ("header", "comment", "continued line"))
TableItem = TableRow | BadRow | OtherLine


def is_padded(first: str, second: str) -> bool:
    """True for the first lines of ``sacct`` without ``-P``: columns of fixed width above a line of
    dashes."""
    return bool(_RULE.fullmatch(second.rstrip())) and "-" in second and bool(first.strip())


def make_header_error(where: str) -> InputError:
    """Return the error for a table that does not begin with the names of its columns."""
    return InputError(
        "the table has no header with the names of its columns",
        where=where,
        fix="name them with --columns, as JobID,User,Partition,Submit,Start,End,NCPUS",
    )


def find_delimiter(header: str) -> str:
    """Return the mark that separates the names of a header; a comma for a header of one name.

    >>> find_delimiter("JobID|User|State"), find_delimiter('"a";"b"'), find_delimiter("a^|^b^|^c")
    ('|', ';', '^|^')
    """
    marks = Counter(_MARKS.findall(header.replace('"', "")))
    return max(marks, key=marks.__getitem__) if marks else ","


def read_table(
    lines: Iterable[str], where: str, columns: Sequence[str] | None = None
) -> Iterator[TableItem]:
    """Read the rows of a table below its header, or of one without a header whose ``columns`` are
    given. Blank lines and comments before the header are skipped. InputError if there is no header.
    """
    numbered = _number_lines(lines)
    first: tuple[int, str] | None = None
    while first is None:
        number, text = next(numbered, (0, ""))
        if not number:
            raise InputError("the table is empty", where=where)
        if text.startswith("#"):
            yield COMMENT
        elif text.strip():
            first = number, text
    second = next(numbered, None)
    if columns is None and second is not None and is_padded(text, second[1]):
        yield from (HEADER, HEADER)
        yield from _Padded(text, second[1]).rows(numbered)
        return
    rest = _chain_lines(second, numbered)
    yield from _Delimited(first, columns, where).rows(rest)


def _number_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        yield number, line.rstrip("\r\n")


def _chain_lines(
    first: tuple[int, str] | None, rest: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    if first is not None:
        yield first
    yield from rest


def _parse_names(cells: Iterable[str]) -> tuple[str, ...]:
    return tuple(cell.strip().strip('"').lower() for cell in cells)


class _Padded:
    """A table whose columns have the width of the dashes below their names."""

    def __init__(self, header: str, rule: str) -> None:
        self.spans = [match.span() for match in re.finditer("-+", rule)]
        self.header = Header(_parse_names(self._cells(header)))

    def _cells(self, line: str) -> list[str]:
        last = len(self.spans) - 1
        # nothing follows the last column: its text may be wider than its dashes
        return [line[a : None if n == last else b].strip() for n, (a, b) in enumerate(self.spans)]

    def rows(self, lines: Iterator[tuple[int, str]]) -> Iterator[TableItem]:
        for number, text in lines:
            cells = self._cells(text)
            if not text.strip():
                continue
            # outputs that were joined to one file repeat the header
            if _RULE.fullmatch(text) or _parse_names(cells) == self.header.names:
                yield HEADER
            elif _check_column(self.header, cells):
                yield TableRow(number, cells, self.header)
            else:
                yield BadRow(number, "with cells that do not fit their columns")


def _check_column(header: Header, cells: Sequence[str]) -> bool:
    """Return whether every cell of a column with a known form has it."""
    forms = map(_FORMS.get, header.names)
    pairs = zip(forms, cells, strict=False)
    return all(form is None or form.fullmatch(cell.strip()) for form, cell in pairs)


class _Delimited:
    """A table with a mark between its columns."""

    def __init__(self, row: tuple[int, str], columns: Sequence[str] | None, where: str) -> None:
        self.where = where
        _, first = row
        self.mark = find_delimiter(first)
        self.quotes = self.mark in _QUOTING
        cells = _parse_names(self._split(first) or first.split(self.mark))
        self.first: tuple[int, str] | None = None
        if columns is None:
            if _IN_ROW.search(first):
                raise make_header_error(where)
            self.header = Header(cells)
        else:
            self.header = Header(_parse_names(columns))
            if cells != self.header.names:
                self.first = row
                self._choose_mark(first)
        self.pending: list[tuple[int, str]] = []

    def _choose_mark(self, first: str) -> None:
        """Choose the delimiter that makes the first row as wide as the stated columns."""
        width = len(self.header.names)
        for mark in dict.fromkeys((self.mark, *"|\t,;^", *_MARKS.findall(first))):
            self.mark, self.quotes = mark, mark in _QUOTING
            if len(self._split(first)) == width:
                return
        raise InputError(
            f"the first row does not have {width} columns",
            where=self.where,
            fix="name all columns of the table with --columns, in their order",
        )

    def _split(self, text: str) -> list[str]:
        if self.quotes and '"' in text:
            source = io.StringIO(text, newline="")
            try:
                rows = list(csv.reader(source, delimiter=self.mark, strict=True))
            except csv.Error:  # an open quote, or text behind a closed one
                return []
            return rows[0] if len(rows) == 1 else []
        return text.split(self.mark)

    def rows(self, lines: Iterator[tuple[int, str]]) -> Iterator[TableItem]:
        """Yield rows; lines of the expected form need no more than this loop."""
        mark, width, title = self.mark, len(self.header.names), self.header.names[0]
        if self.first is None:
            yield HEADER
        for number, text in _chain_lines(self.first, lines):
            quoted = self.quotes and '"' in text
            cells = self._split(text) if quoted else text.split(mark)
            # a repeated header is left to the slower way
            if len(cells) == width and not self.pending and cells[0].lower() != title:
                yield TableRow(number, cells, self.header)
            elif text.strip():
                yield from self._irregular(number, text)
                # a header further down may have other columns
                mark, width, title = self.mark, len(self.header.names), self.header.names[0]
        yield from self._give_up()

    def _irregular(self, number: int, text: str) -> Iterator[TableItem]:
        """Read a line that is a header, has other than the expected number of cells, quotes, or
        follows an unfinished row."""
        if self._is_header(text):
            yield from self._give_up()
            yield HEADER
            return
        row = self._row(self._split(text))
        if row is not None:
            yield from self._give_up()
            yield TableRow(number, row, self.header)
            return
        self.pending.append((number, text))
        joined = "\n".join(line for _, line in self.pending)
        row = self._row(self._split(joined))
        if row is not None and len(self.pending) > 1:
            yield TableRow(self.pending[0][0], row, self.header)
            yield from (CONTINUED for line in self.pending[1:] if line[1].strip())
            self.pending = []
        elif len(self.pending) == _LONGEST_ROW:
            yield from self._give_up()

    def _is_header(self, text: str) -> bool:
        """Return whether a line is a header; its columns then hold for the rows below it."""
        words = set(re.findall(r"\w+", text.lower()))
        named = {name for name in self.header.names if name in _FORMS}
        if len(words & named) < max(1, len(named) - 1) or _IN_ROW.search(text):
            return False
        mark = find_delimiter(text)
        names = _parse_names(text.split(mark))
        if names != self.header.names or mark != self.mark:
            self.mark, self.quotes, self.header = mark, mark in _QUOTING, Header(names)
        return True

    def _row(self, cells: list[str]) -> list[str] | None:
        """Return the cells of a row: surplus delimiters belong to a column of free text."""
        names = self.header.names
        if len(cells) == len(names) + 1 and not cells[-1].strip():
            cells = cells[:-1]  # a delimiter at the end of each row, but not of the header
        # a delimiter at the end of the header, but not of each row
        if len(cells) == len(names) - 1 and not names[-1]:
            cells = [*cells, ""]
        surplus = len(cells) - len(names)
        if surplus == 0:
            return cells if _check_column(self.header, cells) else None
        if surplus < 0:
            return None
        for column in (n for n, name in enumerate(names) if name in _FREE_TEXT):
            text = self.mark.join(cells[column : column + surplus + 1])
            row = [*cells[:column], text, *cells[column + surplus + 1 :]]
            if _check_column(self.header, row):
                return row
        return None

    def _give_up(self) -> Iterator[TableItem]:
        """Report the lines that are no part of a row; a quote may have been a part of a name, and
        lines below a row may continue its last column."""
        pending, self.pending = self.pending, []
        last = self.header.names[-1]
        for number, text in pending:
            cells = text.split(self.mark)
            row = self._row(cells) if self.quotes else None
            form = _FORMS.get(self.header.names[0])
            if row is not None:
                yield TableRow(number, row, self.header)
            elif (last in _SCRIPTS or (last in _FREE_TEXT and len(cells) == 1)) and not (
                form is not None and form.fullmatch(cells[0])
            ):
                yield CONTINUED
            else:
                yield BadRow(number, self._why(cells))

    def _why(self, cells: Sequence[str]) -> str:
        width = len(self.header.names)
        if len(cells) != width:
            return f"with {format_count(len(cells), 'cell')} instead of {width}"
        return "with cells that do not fit their columns"

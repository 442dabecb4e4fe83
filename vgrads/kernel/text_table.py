"""Tables as text that fits a width: columns of least use are left out, no word is broken, and a row
is one line; its notes follow below it.

A table is a value; :func:`layout` decides everything, and whoever prints the lines adds colours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Span = tuple[str, str]
"""A piece of a line, and its style: empty, or a name of colours such as ``bold red``."""
_GAP = 2
_SHORT, _SHORTEST = (
    20,
    8,
)  # widths to which long cells are cut before and after columns are left out
_WORD = re.compile(r"\(?'vgrads [^']*'\S*|\S+")
_INVISIBLE = ("Mn", "Me", "Cf")
REORDERING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
"""Characters that reorder the text around them; printers show a replacement, one column wide."""


@dataclass(frozen=True)
class Column:
    """A column. ``fold``: 0 for a column that is always shown; of the others, the largest number is
    left out first. ``shorten``: long cells may lose their middle. ``below``: of the last column,
    sentences: each is in its row where the line has room for it, else on lines below."""

    name: str
    right: bool = False
    fold: int = 0
    shorten: bool = False
    below: bool = False


@dataclass(frozen=True)
class Row:
    """A row. ``notes``: sentences for the lines below it; ``styles``: by name of a column, and for
    the notes by ``""``."""

    cells: tuple[str, ...]
    notes: tuple[str, ...] = ()
    styles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TextTable:
    """A table with a title above and sentences below."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""
    notes: tuple[str, ...] = ()


def build_table(head: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> TextTable:
    """Return a table of which all columns are always shown: the first is text, the others are
    figures.

    >>> print("\\n".join(table_lines(build_table(("way", "s"), [("plain", "2.5")]), 80)))
    way      s
    ──────────
    plain  2.5
    """
    columns = (Column(name, right=n > 0) for n, name in enumerate(head))
    return TextTable(tuple(columns), tuple(Row(tuple(cells)) for cells in rows), title)


def pad(text: str, width: int, right: bool = False) -> str:
    """Return a text with spaces up to this width, for lines that are printed one by one as things
    happen; ``right``: before it.

    >>> pad("2 min", 8, right=True), pad("作業", 5)
    ('   2 min', '作業 ')
    """
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def display_width(text: str) -> int:
    """Return the columns that a text takes on a terminal.

    >>> display_width("run"), display_width("محلّل"), display_width("作業")
    (3, 4, 4)
    """
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(sign) in _INVISIBLE and sign not in REORDERING
        else 2
        if unicodedata.east_asian_width(sign) in "WF"
        else 1
        for sign in text
    )


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Break lines between words, also between those of a quoted command where it is longer than a
    line; a longer word remains whole. Further lines are indented as the first.

    >>> wrap("continue with 'vgrads resume RUN' now", 24)
    ['continue with', "'vgrads resume RUN' now"]
    """
    lines = []
    for line in text.split("\n"):
        if display_width(indent + line) <= width:
            lines.append(f"{indent}{line}".rstrip())
            continue
        margin = indent + line[: len(line) - len(line.lstrip())]
        lines += _fill_words(_split_words(line, width - len(margin)), width, margin)
    return lines


def _split_words(line: str, width: int) -> list[str]:
    words = (match[0] for match in _WORD.finditer(line))
    return [part for word in words for part in ([word] if len(word) <= width else word.split())]


def _fill_words(words: Sequence[str], width: int, margin: str) -> list[str]:
    lines, current = [], ""
    for word in words:
        longer = f"{current} {word}" if current else f"{margin}{word}"
        if current and display_width(longer) > width:
            lines.append(current)
            longer = f"{margin}{word}"
        current = longer
    return [*lines, current]


def layout(table: TextTable, width: int, wide: bool = False) -> list[list[Span]]:
    """Return the lines of a table, each as spans. ``width``: columns of the terminal; ``wide``: all
    columns, however long the lines become."""
    rows = [[" ".join(cell.split()) for cell in row.cells] for row in table.rows]
    natural = [
        max([display_width(column.name), *(display_width(cells[n]) for cells in rows)])
        for n, column in enumerate(table.columns)
    ]
    placed = [column for column in table.columns if not column.below]
    widths = _fit_columns(placed, natural, _sum_widths(dict(enumerate(natural))) if wide else width)
    room = max(natural) if wide else width - _sum_widths(widths) - _GAP
    lines = [[(line, "bold")] for line in _wrap_text(table.title, width)]
    if rows:
        names = [column.name for column in table.columns]
        header = _format_line(table.columns, widths, names, dict.fromkeys(names, "bold"), room)
        lines += [header, [("─" * sum(display_width(text) for text, _ in header), "dim")]]
    for row, cells in zip(table.rows, rows, strict=True):
        lines.append(_format_line(table.columns, widths, cells, row.styles, room))
        sentence = cells[len(placed)] if len(placed) < len(cells) else ""
        below = [sentence] if sentence and display_width(sentence) > room else []
        for note in (*below, *row.notes):
            lines += [[(line, row.styles.get("", ""))] for line in wrap(note, width, "    ")]
    left_out = [c.name for n, c in enumerate(placed) if n not in widths and c.name]
    if left_out and rows:
        text = f"not shown: {', '.join(left_out)} (--wide shows all)"
        lines += [[(line, "dim")] for line in _wrap_text(text, width)]
    return lines + [[(line, "")] for note in table.notes for line in wrap(note, width)]


def table_lines(table: TextTable, width: int, wide: bool = False) -> list[str]:
    """Return the lines of a table without styles."""
    return ["".join(text for text, _ in line) for line in layout(table, width, wide)]


def _wrap_text(text: str, width: int) -> list[str]:
    return wrap(text, width) if text else []


def _fit_columns(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """Return the columns that are shown, and their widths."""
    shown = list(range(len(columns)))
    while _compute_total_width(columns, natural, shown, _SHORT) > width:
        foldable = [n for n in shown if columns[n].fold]
        if not foldable:
            break
        shown.remove(max(foldable, key=lambda n: (columns[n].fold, n)))
    for n in sorted(set(range(len(columns))) - set(shown), key=lambda n: columns[n].fold):
        if (
            _compute_total_width(columns, natural, [*shown, n], _SHORT) <= width
        ):  # narrower than those left out
            shown = sorted([*shown, n])
    least = _SHORT if _compute_total_width(columns, natural, shown, _SHORT) <= width else _SHORTEST
    widths = {n: _compute_least_width(columns[n], natural[n], least) for n in shown}
    rest = width - _sum_widths(widths)
    # narrow columns first: they are complete with little
    for n in sorted(shown, key=lambda n: natural[n]):
        more = max(0, min(natural[n] - widths[n], rest))
        widths[n] += more
        rest -= more
    return widths


def _sum_widths(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _compute_least_width(column: Column, natural: int, least: int) -> int:
    return min(natural, max(least, display_width(column.name))) if column.shorten else natural


def _compute_total_width(
    columns: Sequence[Column], natural: Sequence[int], shown: list[int], least: int
) -> int:
    widths = sum(_compute_least_width(columns[n], natural[n], least) for n in shown)
    return widths + _GAP * (len(shown) - 1)


def _format_line(
    columns: Sequence[Column],
    widths: Mapping[int, int],
    cells: Sequence[str],
    styles: Mapping[str, str],
    room: int,
) -> list[Span]:
    spans: list[Span] = []
    for n, width in widths.items():
        text = _shorten_text(cells[n], width) if columns[n].shorten else cells[n]
        space = " " * (width - display_width(text))
        gap = " " * _GAP if spans else ""
        last = n == max(widths)
        before, after = (space, "") if columns[n].right else ("", "" if last else space)
        spans += [(gap + before, ""), (text, styles.get(columns[n].name, "")), (after, "")]
    sentence = cells[-1] if columns[-1].below and display_width(cells[-1]) <= room else ""
    if sentence:
        used = sum(display_width(text) for text, _ in spans)
        spans += [(" " * (_sum_widths(widths) + _GAP - used), ""), (sentence, styles.get("", ""))]
    spans = [span for span in spans if span[0]]
    while spans and not spans[-1][0].strip():
        spans.pop()
    return spans


def _shorten_text(text: str, width: int) -> str:
    """Return a text with an ellipsis in its middle where it is too long: names differ at both
    ends."""
    if display_width(text) <= width:
        return text
    tail = (width - 1) // 3
    head = width - 1 - tail
    return f"{_fit_text(text, head)}…{_fit_text(text[::-1], tail)[::-1]}"


def _fit_text(text: str, width: int) -> str:
    total = 0
    for n, sign in enumerate(text):
        total += display_width(sign)
        if total > width:
            return text[:n]
    return text

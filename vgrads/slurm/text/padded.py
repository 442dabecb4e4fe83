"""Tables of sacct and sacctmgr: padded columns, or fields between bars.

Source: --format, --parsable and --parsable2 in sacct(1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgrads.slurm.text.padding import pad_left, pad_right, parse_width, run_of

PARSABLE, PARSABLE2 = "parsable", "parsable2"


@dataclass(frozen=True)
class PaddedColumn:
    """A title with the width of its column; texts are on the right unless ``left``."""

    title: str
    width: int
    left: bool = False

    def pad(self, text: str, mark: str = "+") -> str:
        """Return a text in this width; a longer one is truncated and ends with the mark."""
        if len(text) > self.width:
            text = text[: max(0, self.width - len(mark))] + mark
        return pad_right(text, self.width) if self.left else pad_left(text, self.width)


@dataclass(frozen=True)
class PaddedTable:
    """How rows are printed: padded, or between delimiters (``style`` PARSABLE ends lines with
    one)."""

    columns: Sequence[PaddedColumn]
    style: str = ""
    delimiter: str = "|"
    header: bool = True

    def render(self, rows: Iterable[Sequence[str]]) -> str:
        """Return the table."""
        if self.style:
            end = self.delimiter if self.style == PARSABLE else ""
            titles = [[column.title for column in self.columns]] if self.header else []
            return "".join(
                self.delimiter.join(texts) + f"{end}\n" for texts in [*titles, *rows] if texts
            )
        lines = []
        if self.header:
            titles_line = " ".join(c.pad(c.title[: c.width], "") for c in self.columns)
            lines += [titles_line, " ".join(run_of("-", column.width) for column in self.columns)]
        for texts in rows:
            cells = zip(self.columns, texts, strict=True)
            lines.append(" ".join(column.pad(text) for column, text in cells))
        # every column ends with a space, as those of sacct do, also the last one
        return "".join(f"{line} \n" for line in lines)


def split_width(word: str) -> tuple[str, int]:
    """Return the name and the width of ``name%20``; 0 without a width. Raises ValueError, and
    SlurmError for a width that is too large.

    >>> split_width("State%-30")
    ('State', -30)
    """
    name, percent, width = word.partition("%")
    return name, parse_width(width) if width or not percent else int(width)

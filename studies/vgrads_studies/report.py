"""The page of a study: sentences, tables and pictures in one self-contained file."""

from __future__ import annotations

import re
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vgrads.kernel.errors import InputError
from vgrads.kernel.report_page import figure_of
from vgrads.kernel.text_table import TextTable, table_lines
from vgrads.qbets.views import FULL, VIEWS
from vgrads.traces.history import read_history
from vgrads.traces.records import JobLog
from vgrads_studies.picture import picture_file

Rows = Sequence[Sequence[str]]


_ARGPARSE = (
    (r"^argument (?:-\w/)?", ""),
    (r"^the following arguments are required: (.*)", r"\1: is missing"),
    (r"^unrecognized arguments: (-\S+).*", r"\1: no such option"),
    (r"^unrecognized arguments: (.*)", r"unexpected argument '\1'"),
    (r": expected .*argument.*", ": needs a value"),
    (r": invalid int value: ", ": must be a whole number, is "),
    (r": invalid float value: ", ": must be a number, is "),
    (r": invalid choice: (.*) \(choose from (.*)\)$", r": \1 is none of \2"),
)
"""Messages of argparse, and the words of all other errors."""


class StudyParser(ArgumentParser):
    """A parser of the arguments of a study. Wrong ones raise InputError."""

    def __init__(self, name: str, doc: str | None) -> None:
        super().__init__(
            prog=f"vgrads study {name}",
            description=doc,
            formatter_class=RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise InputError in the words of other errors, behind the name of the argument."""
        for pattern, words in _ARGPARSE:
            message = re.sub(pattern, words, message, flags=re.DOTALL)
        raise InputError(message, fix=f"see '{self.prog} --help'")


def study_parser(name: str, doc: str | None) -> ArgumentParser:
    """Return a parser with the options of all studies: --json, --report, --seed."""
    parser = StudyParser(name, doc)
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout")
    parser.add_argument(
        "--report", type=picture_file, metavar="FILE.html", help="write an HTML page with diagrams"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    return parser


def add_view(parser: ArgumentParser) -> None:
    """Add --view: which jobs the forecasts of a study are learned from."""
    parser.add_argument(
        "--view",
        choices=tuple(VIEWS),
        default=FULL,
        help="jobs that forecasts know at each instant: "
        + "; ".join(f"{name}, {what}" for name, what in VIEWS.items()),
    )


LEAST_JOBS = 1000
"""Minimum number of jobs in a log from which questions are drawn: with fewer, all answers come from
one week."""


def read_enough(path: Path) -> JobLog:
    """Read a history that is long enough for a study. Raise InputError for any other."""
    log = read_history(path)
    if len(log) < LEAST_JOBS:
        raise InputError(
            f"has {len(log)} jobs, a study of promises needs {LEAST_JOBS}",
            where=str(path),
            fix="evaluate bounds on a short log with 'vgrads backtest'",
        )
    return log


def need_files(paths: Sequence[Path]) -> None:
    """Raise InputError for the first missing file."""
    for path in paths:
        if not path.is_file():
            raise InputError("no such file", where=str(path))


_WIDTH = 200  # columns: the widest tables of studies are read in files


def print_table(table: TextTable) -> None:
    """Print a table to stdout."""
    print("\n".join(table_lines(table, _WIDTH)) + "\n", flush=True)


def markdown_table(head: Sequence[str], rows: Rows) -> str:
    """Return a table as Markdown: the first column is text, the others are figures."""
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def picture(draw: Callable[[Path], None]) -> str:
    """Return the SVG that ``draw`` writes, for embedding in a page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.svg"
        draw(path)
        return figure_of(path.read_text(encoding="utf-8"))


def as_json(value: object) -> Any:
    """Convert infinity, which JSON does not support, to null: it marks events that never
    happened."""
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value

"""The page of a study: sentences, tables and pictures in one file that needs nothing else."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import write_text
from vgrads.traces.history import read_history
from vgrads.traces.records import JobLog

Rows = Sequence[Sequence[str]]
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#1c2430;background:#fff;
max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0}
th,td{padding:.25rem .7rem;border-bottom:1px solid #d8dee6;text-align:right}
th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}
code{background:#f1f4f8;padding:0 .3rem}"""


def study_parser(name: str, doc: str | None) -> ArgumentParser:
    """What all studies have: --json, --report, --seed."""
    parser = ArgumentParser(
        prog=f"vgrads study {name}", description=doc, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="a page with pictures")
    parser.add_argument("--seed", type=int, default=0, help="of everything random")
    return parser


LEAST_JOBS = 1000
"""Jobs of a log from which questions are drawn: with fewer, the answers of one week are all there
is."""


def read_enough(path: Path) -> JobLog:
    """A history that is long enough to be studied; InputError for any other."""
    log = read_history(path)
    if len(log) < LEAST_JOBS:
        raise InputError(
            f"has {len(log)} jobs, a study of promises needs {LEAST_JOBS}",
            where=str(path),
            fix="'vgrads backtest' tells how bounds did on a short one",
        )
    return log


def need_files(paths: Sequence[Path]) -> None:
    """InputError for the first that is not there."""
    for path in paths:
        if not path.is_file():
            raise InputError("no such file", where=str(path))


def html_table(head: Sequence[str], rows: Rows) -> str:
    """A table; every cell is text."""
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def text_table(head: Sequence[str], rows: Rows) -> str:
    """The same as Markdown."""
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def picture(draw: Callable[[Path], None]) -> str:
    """What ``draw`` writes as SVG, to stand in a page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.svg"
        draw(path)
        text = path.read_text(encoding="utf-8")
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def write_page(path: Path, title: str, parts: Sequence[str]) -> None:
    """The page; parts are HTML. InputError where it cannot be written."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{escape(title)}</title>'
    )
    body = f"<h1>{escape(title)}</h1>" + "".join(parts)
    write_text(
        path,
        (
            "<!doctype html><html "
            f'lang="en"><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>'
        ),
    )


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def as_json(value: object) -> Any:
    """Infinity has no place in JSON: what never happened is null."""
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value

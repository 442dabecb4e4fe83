"""The terminal: consoles, progress bars, warnings. Few imports: every command uses it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

_PIPED_WIDTH = 160


_SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {
    code: "\ufffd" for code in range(127, 160)
}
"""Control characters and their visible replacements: output of tasks must not move the cursor."""


class _Quiet(Console):
    """A console on which only vgrads itself sends control sequences."""

    def render(self, *renderable: Any, **options: Any) -> Iterator[Segment]:
        for segment in super().render(*renderable, **options):
            plain = segment.control or segment.text.isprintable()
            yield segment if plain else segment._replace(text=segment.text.translate(_SHOWN))


def console(stderr: bool = False) -> Console:
    """Return a console on stdout or stderr; into a pipe it does not break lines at 80 columns.

    Names from users and tasks are printed literally, without markup: a bracket is a bracket.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return _Quiet(file=stream, width=width, markup=False, highlight=False)


def rows_under(*names: str, title: str = "", whole: Sequence[str] = ()) -> Table:
    """Return a table without rows. No cell is truncated on a narrow terminal; columns of ``whole``
    are not broken either."""
    columns = [Column(name, overflow="fold", no_wrap=name in whole) for name in names]
    return Table(*columns, box=SIMPLE_HEAD, title=title or None, title_justify="left")


@contextmanager
def busy(out: Console, what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal while the block runs; call it with the current step."""
    with out.status(Text(what)) as status:
        yield lambda text: status.update(Text(text))


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, float], None]]:
    """Show a progress bar on stderr while the block runs; call it with (done, total)."""
    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_warnings(out: Console, warnings: Iterable[str]) -> None:
    """Print warnings."""
    for text in warnings:
        out.print(f"warning: {text}", style="yellow", highlight=False, markup=False)

"""The terminal: consoles, bars of progress, warnings. Few imports: every command writes there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

_PIPED_WIDTH = 160


def console(stderr: bool = False) -> Console:
    """A console on stdout or stderr; into a pipe it does not break lines at 80 columns."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _PIPED_WIDTH)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, float], None]]:
    """A bar on stderr while the block runs; call it with (done, total)."""
    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_warnings(out: Console, warnings: Iterable[str]) -> None:
    """Things that were odd but bearable."""
    for text in warnings:
        out.print(f"warning: {text}", style="yellow", highlight=False, markup=False)

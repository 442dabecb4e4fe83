"""The terminal: consoles, tables, progress bars, warnings. Few imports: every command uses it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.segment import Segment
from rich.text import Text

from vgrads.kernel.compile_state import announce_compilation
from vgrads.kernel.text_table import REORDERING, TextTable, layout, wrap
from vgrads.portal.cli.wide import WIDE

if TYPE_CHECKING:
    from vgrads.traces.records import JobLog

_PIPED_WIDTH, _NARROWEST = 160, 20


_SHOWN = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
    | {code: "\ufffd" for code in range(127, 160)}
    | {ord(sign): "\ufffd" for sign in REORDERING}
)
"""Control characters and their visible replacements: output of tasks must not move the cursor, and
a name must not reorder the text around it."""


class _Quiet(Console):
    """A console on which only vgrads itself sends control sequences, and that breaks no word."""

    def render(self, *renderable: Any, **options: Any) -> Iterator[Segment]:
        for segment in super().render(*renderable, **options):
            plain = segment.control or segment.text.isprintable()
            yield segment if plain else segment._replace(text=segment.text.translate(_SHOWN))

    def print(self, *objects: object, **options: Any) -> None:
        """Print tables and texts of this console's width; a word longer than a line remains
        whole. ``soft_wrap``: leave the lines of a text as they are."""
        soft = options.get("soft_wrap")
        shown = (
            printable(item, self.width)
            if isinstance(item, TextTable) or (isinstance(item, str) and not soft)
            else item
            for item in objects
        )
        as_laid_out: dict[str, Any] = {"overflow": "ignore", "crop": False}
        super().print(*shown, **(as_laid_out | options))


class _Lasting:
    """A stream of which nothing more is heard where it cannot be written any more: on a full disk,
    or a terminal that was closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def console(stderr: bool = False, lasting: bool = False) -> Console:
    """Return a console on stdout or stderr; into a pipe its width is that of ``COLUMNS``, else 160.
    ``lasting``: it never fails, for what must be done whether or not somebody can be told.

    Names from users and tasks are printed literally, without markup: a bracket is a bracket.
    """
    stream = sys.stderr if stderr else sys.stdout
    if lasting:
        stream = cast("TextIO", _Lasting(stream))
    columns = os.environ.get("COLUMNS", "")
    width = None if stream.isatty() else _PIPED_WIDTH
    if columns.isascii() and columns.isdigit():
        width = max(_NARROWEST, int(columns))
    return _Quiet(file=stream, width=width, markup=False, highlight=False)


def printable(item: TextTable | str, width: int) -> Text | str:
    """Return a table or a sentence as text of this width."""
    if isinstance(item, TextTable):
        return table_text(item, width)
    return "\n".join(wrap(item, width))


def table_text(table: TextTable, width: int) -> Text:
    """Return a table as text for a terminal of this width; with ``--wide`` all of its columns."""
    lines = layout(table, width, WIDE.get())
    text = Text(no_wrap=True, overflow="ignore")
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for part, style in line:
            text.append(part, style or None)
    return text


@contextmanager
def busy(out: Console, what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal while the block runs; call it with the current step. It says so
    when functions are compiled."""
    step = what

    def show(text: str) -> None:
        nonlocal step
        step = text
        status.update(_step_text(out, text))

    def show_compilation(begins: bool) -> None:
        now = f"{step}: compiling, once on this machine" if begins else step
        status.update(_step_text(out, now))

    with out.status(_step_text(out, what)) as status, announce_compilation(show_compilation):
        yield show


def _step_text(out: Console, step: str) -> Text:
    """Return a step in one line beside the spinner."""
    text = Text(step)
    # the spinner and the spaces beside it are 3 wide
    text.truncate(out.width - 3, overflow="ellipsis")
    return text


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, float], None]]:
    """Show a progress bar on stderr while the block runs; call it with (done, total). It says so
    when functions are compiled."""
    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(what), total=None)

        def show_compilation(begins: bool) -> None:
            now = f"{what}: compiling, once on this machine" if begins else what
            bar.update(task, description=escape(now))

        with announce_compilation(show_compilation):
            yield lambda done, total: bar.update(task, completed=done, total=total)


def print_reading(out: Console, name: str, log: JobLog) -> None:
    """Print what became of the lines of a history's file, in one line, and its warnings, of which
    that line is one if too many records could not be used."""
    if log.report is not None and log.report.summary() not in log.warnings:
        out.print(f"{name}: {log.report.line()}", highlight=False, markup=False)
    print_warnings(out, log.warnings)


def print_notes(out: Console, notes: Iterable[str]) -> None:
    """Print information that is no warning."""
    for text in notes:
        out.print(f"note: {text}", highlight=False, markup=False)


def print_warnings(out: Console, warnings: Iterable[str]) -> None:
    """Print warnings."""
    for text in warnings:
        out.print(f"warning: {text}", style="yellow", highlight=False, markup=False)

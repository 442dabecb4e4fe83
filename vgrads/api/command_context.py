"""Context for commands of other packages, registered under ``vgrads.commands``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vgrads.traces.log_queue import LogQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """Access of a command to histories and output.

    ``history``: returns the file and the queue for a file, SITE or SITE/QUEUE; ``answer``: prints
    the JSON document if the first argument is true, otherwise the text that the function returns;
    ``busy``: shows a step while it lasts; ``warn``: prints warnings; ``set_wide``: sets whether
    tables show all columns.
    """

    history: Callable[[Path], tuple[Path, LogQueue]]
    answer: Callable[[bool, dict[str, Any], Callable[[], Any]], None]
    busy: Callable[[str], AbstractContextManager[object]]
    warn: Callable[[Iterable[str]], None]
    set_wide: Callable[[bool], bool]

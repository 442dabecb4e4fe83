"""What the command line lends to commands that it does not know: those registered under
``vgrads.commands``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vgrads.traces.records import LogQueue  # numpy, which printing help does not need


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """How a command finds histories and answers.

    ``history``: the file and the queue that a user means by a file, SITE or SITE/QUEUE; ``answer``:
    prints the JSON document where the first argument is true, else what the function returns for
    people; ``warn``: prints warnings.
    """

    history: Callable[[Path], tuple[Path, LogQueue]]
    answer: Callable[[bool, dict[str, Any], Callable[[], Any]], None]
    warn: Callable[[Iterable[str]], None]

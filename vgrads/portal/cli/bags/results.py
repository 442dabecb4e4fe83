"""Where the results of bags are written: to a folder or a table of the user, or to the bag's own
folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from vgrads.api.bags.results_folder import BagResults, check_target, is_table, write_results
from vgrads.api.config import dispatcher_folder
from vgrads.kernel.errors import InputError
from vgrads.portal.records.reading.bags import BagEntry


class ResultOptions(Protocol):
    """``out``: the folder, or the table; ``separate``: a file for what each task printed."""

    @property
    def out(self) -> Path | None: ...
    @property
    def separate(self) -> bool: ...


def check_out(out: Path | None, bags: int) -> None:
    """Raise InputError where results could not be written there, before anything runs."""
    if out is None:
        return
    if bags > 1 and is_table(out):
        raise InputError("names a table, which takes one bag", where="--out", fix="name a folder")
    check_target(out)


def write_results_of(row: BagEntry, how: ResultOptions, rows: Sequence[BagEntry] = ()) -> Path:
    """Write the results of a bag; return where they are. ``rows``: all bags of the command, each of
    which gets a folder of its own in ``out``. Without ``out`` they are in the folder of the bag,
    with a table where the bag is not large."""
    folder = dispatcher_folder(row.dispatcher)
    if how.out is not None:
        target = how.out / _folder_name(row, rows) if len(rows) > 1 else how.out
        write_results(folder, row.number, target, how.separate)
        return target.absolute()
    own = folder / "bags" / f"{row.number:04d}" / "results"
    own.mkdir(parents=True, exist_ok=True)
    if BagResults(folder, row.number).may_have_table:
        write_results(folder, row.number, own)
    return own


def _folder_name(row: BagEntry, rows: Sequence[BagEntry]) -> str:
    alike = sum(other.name == row.name for other in rows)
    return row.name if alike == 1 and not row.name.startswith(".") else row.id

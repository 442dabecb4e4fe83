"""A dispatcher's folder: its keys and its submitted bags.

``bags/N/document.json``, and in ``bags/N/given/`` the files that its parameters were read from, so
that a task stays the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.document import OPEN, BagDocument, LinesDocument, build_bag
from vgrads.dispatch.parameters import GrowingCommands
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.block_files import blocks_bag, is_of_blocks
from vgrads.dispatch.storage.function_files import FunctionFiles
from vgrads.dispatch.storage.status import news_pipe, read_json
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.kernel.extras import require
from vgrads.kernel.files import write_whole
from vgrads.kernel.record_file import LINES, RecordFile
from vgrads.kernel.units import format_duration
from vgrads.kernel.user_files import copy_user_file
from vgrads.kernel.wakeups import wake

CLOSED = "closed"
"""File in the folder of an open bag: no more commands can be added; it has the reason, where the
user did not close the bag."""
CLIENT = "client"
"""File in the folder of an open bag: its time is that of the last sign of life of the client."""


@dataclass(frozen=True)
class StoredBag:
    """A bag as stored in a dispatcher's folder."""

    number: int
    document: BagDocument
    bag: BagSpec
    files: BagFiles

    @property
    def _growing(self) -> GrowingCommands | None:
        lines = self.bag.commands.lines if isinstance(self.bag.commands, Listed) else None
        return lines if isinstance(lines, GrowingCommands) else None

    def added(self) -> int:
        """Return the number of commands added to an open bag since the last check."""
        growing = self._growing
        return 0 if growing is None else growing.look()

    def rest(self) -> None:
        """Close the file of an open bag to which nothing is being added."""
        growing = self._growing
        if growing is not None:  # an empty one is false
            growing.rest()


def reserve_number(folder: Path, first: int) -> int:
    """Return the first number from ``first`` on, above those of all bags in a dispatcher's folder,
    and reserve it: bags that are submitted at the same time must not share a folder, nor get that
    of a bag whose record was deleted."""
    numbers = folder / "numbers"
    numbers.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = max(first, max(list_bags(folder), default=-1) + 1)
    while True:
        with suppress(FileExistsError):
            os.close(os.open(numbers / str(number), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            return number
        number += 1


def release_number(folder: Path, number: int) -> None:
    """Release a number of a bag that was not submitted after all."""
    (folder / "numbers" / str(number)).unlink(missing_ok=True)


def keep_bag(folder: Path, number: int, document: BagDocument, source: Path) -> StoredBag:
    """Store a bag in a dispatcher's folder, with the files that its tasks are read from.
    ``source``: its original folder."""
    if document.policy is not None or document.policy_file is not None:
        require("policies", "a policy", "policy")
    path = folder / "bags" / f"{number:04d}"
    (path / "given").mkdir(parents=True, exist_ok=True)
    for name in _read_from(document):
        target = path / "given" / _name_inside(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy_user_file(source / name, target)
        except OSError as error:
            raise InputError(
                f"'{name}' cannot be read: {error.strerror}", where=str(source)
            ) from error
    if document.open:
        (path / "given" / OPEN).touch()
    stored = {
        "document": _rename_files(document).model_dump(mode="json"),
        "source": str(source),
    }
    # the last file: list_bags counts the bag from here on, and all else of it must be there
    write_whole(path / "document.json", json.dumps(stored).encode())
    return open_bag(folder, number)


def _read_from(document: BagDocument) -> list[str]:
    names = [p.lines for p in document.parameters.values() if isinstance(p, LinesDocument)]
    return [*names, *filter(None, (document.table, document.commands_file, document.policy_file))]


def _name_inside(name: str) -> str:
    """Return the stored name of a file with any path."""
    path = Path(name)
    if not path.is_absolute() and ".." not in path.parts:
        return name
    return f"{hashlib.sha256(name.encode()).hexdigest()[:32]}-{path.name}"


def _rename_files(document: BagDocument) -> BagDocument:
    """Return the document with the stored names of its files."""
    files = {n: getattr(document, n) for n in ("table", "commands_file", "policy_file")}
    parameters = {
        name: LinesDocument(lines=_name_inside(p.lines)) if isinstance(p, LinesDocument) else p
        for name, p in document.parameters.items()
    }
    moved = {n: _name_inside(name) for n, name in files.items() if name is not None}
    return document.model_copy(update={**moved, "parameters": parameters})


def open_bag(folder: Path, number: int) -> StoredBag:
    """Open a bag of a dispatcher's folder."""
    path = folder / "bags" / f"{number:04d}"
    try:
        stored = json.loads((path / "document.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path / "document.json")) from error
    document = validate(BagDocument, stored["document"], str(path / "document.json"))
    bag = build_bag(document, path / "given")
    if is_of_blocks(path):
        return StoredBag(number, document, *blocks_bag(bag, path))
    files = FunctionFiles if document.functions else BagFiles
    return StoredBag(number, document, bag, files(bag, path, Path(stored["source"])))


def open_readable_bags(folder: Path) -> list[StoredBag]:
    """Return the bags of a dispatcher's folder, without those that can no longer be opened."""
    numbers = []
    for number in list_bags(folder):
        with suppress(InputError):
            numbers.append(open_bag(folder, number))
    return numbers


def name_of(folder: Path, number: int) -> str:
    """Return the name of a bag, even where the rest of it cannot be read."""
    stored = read_json(folder / "bags" / f"{number:04d}" / "document.json", {})
    name = stored.get("document", {}).get("name") if isinstance(stored, dict) else None
    return str(name or f"bag {number}")


class NotOpen(InputError):
    """The bag accepts no more tasks."""


def check_open(folder: Path, number: int) -> None:
    """Raise NotOpen, with the reason, where a bag accepts no more tasks."""
    path = folder / "bags" / f"{number:04d}" / "given"
    if not (path / OPEN).exists():
        raise NotOpen(
            "is not open: it accepts no tasks after its submission",
            where="bag",
            fix="submit a bag with open: true",
        )
    reason = read_reason_closed(folder, number)
    if reason is not None:
        raise NotOpen(
            f"is closed: {reason or 'it accepts no more tasks'}",
            where="bag",
            fix="submit another bag",
        )


def append_commands(
    folder: Path, number: int, commands: Iterable[str], durable: bool = True
) -> int:
    """Append commands to an open bag; return how many. They are on disk, as a unit, on return, if
    ``durable``. Raise NotOpen where it accepts no more."""
    path = folder / "bags" / f"{number:04d}" / "given"
    # as JSON, since a command may contain line breaks
    lines = [json.dumps(command) + "\n" for command in commands]
    # before the file is opened, which would create it and so make the bag an open one
    check_open(folder, number)
    with RecordFile(path / OPEN, LINES, durable=durable, lock="wait") as file:
        check_open(folder, number)  # it may have been closed since
        file.append("".join(lines).encode())
    wake(news_pipe(folder))
    return len(lines)


def close_bag(folder: Path, number: int) -> None:
    """Close a bag: no more commands can be added."""
    (folder / "bags" / f"{number:04d}" / "given" / CLOSED).touch()
    wake(news_pipe(folder))


def is_closed(folder: Path, number: int) -> bool:
    """Return True where no more commands can be added."""
    return read_reason_closed(folder, number) is not None


def read_reason_closed(folder: Path, number: int) -> str | None:
    """Return the reason where no more commands can be added, empty where the user closed the bag;
    None while it is open."""
    try:
        return (folder / "bags" / f"{number:04d}" / "given" / CLOSED).read_text()
    except FileNotFoundError:
        return None


def note_client(folder: Path, number: int) -> None:
    """Record a sign of life of an open bag's client."""
    path = folder / "bags" / f"{number:04d}" / "given"
    if (path / OPEN).exists():
        with suppress(OSError):  # a full disk
            (path / CLIENT).touch()


def close_if_silent(folder: Path, number: int, document: BagDocument) -> None:
    """Close an open bag whose client has given no sign of life for the time that its document
    states, if any."""
    if document.silence is None:
        return
    silence_s = float(document.silence)
    path = folder / "bags" / f"{number:04d}" / "given"
    if _measure_silence_s(path) <= silence_s:
        return
    with RecordFile(path / OPEN, LINES, lock="wait"):  # no commands are added at that time
        if _measure_silence_s(path) > silence_s and not (path / CLOSED).exists():
            reason = f"its client sent nothing for {format_duration(silence_s)}"
            with suppress(OSError):
                write_whole(path / CLOSED, reason.encode())


def _measure_silence_s(path: Path) -> float:
    times = []
    for name in (OPEN, CLIENT):
        with suppress(FileNotFoundError):
            times.append((path / name).stat().st_mtime)
    return time.time() - max(times, default=0.0)


def list_bags(folder: Path) -> list[int]:
    """Return the numbers of a dispatcher's bags."""
    return sorted(int(p.parent.name) for p in (folder / "bags").glob("*/document.json"))

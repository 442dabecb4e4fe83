"""A dispatcher's folder: its keys, its bags as they were handed over, how it stands, and who works
on it.

``bags/N/document.json``, and in ``bags/N/given/`` the files that its parameters were read from, so
that a task is the same whenever it is looked at; ``status.json`` says how it stood last.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.bags.bag import Bag, Listed
from vgrads.dispatch.document import OPEN, BagDocument, LinesDocument, build_bag
from vgrads.dispatch.lines import Growing
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.block_files import blocks_bag, is_of_blocks
from vgrads.dispatch.storage.journal import write_whole
from vgrads.execmgr.run_keys import make_keys
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError

CLOSED = "closed"
"""Beside the commands of an open bag: no more will come."""


@dataclass(frozen=True)
class KeptBag:
    """A bag as it lies in a dispatcher's folder."""

    number: int
    document: BagDocument
    bag: Bag
    files: BagFiles

    @property
    def _growing(self) -> Growing | None:
        lines = self.bag.commands.lines if isinstance(self.bag.commands, Listed) else None
        return lines if isinstance(lines, Growing) else None

    def grown(self) -> int:
        """Commands of an open bag that have come since the last look."""
        growing = self._growing
        return 0 if growing is None else growing.look()

    def rest(self) -> None:
        """Hold no file of an open bag to which nothing comes any more."""
        growing = self._growing
        if growing is not None:  # one without commands is false
            growing.rest()


def keep_bag(folder: Path, number: int, document: BagDocument, source: Path) -> KeptBag:
    """Put a bag into a dispatcher's folder, with the files that its tasks are read from.
    ``source``: its own folder."""
    place = folder / "bags" / f"{number:04d}"
    (place / "given").mkdir(parents=True, exist_ok=True)
    for name in _read_from(document):
        target = place / "given" / _inside(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(source / name, target)
        except OSError as error:
            raise InputError(
                f"'{name}' cannot be read: {error.strerror}", where=str(source)
            ) from error
    if document.open:
        (place / "given" / OPEN).touch()
    kept = {"document": _moved(document).model_dump(mode="json"), "source": str(source)}
    write_whole(place / "document.json", json.dumps(kept).encode())
    return open_bag(folder, number)


def _read_from(document: BagDocument) -> list[str]:
    names = [p.lines for p in document.parameters.values() if isinstance(p, LinesDocument)]
    return [*names, *filter(None, (document.table, document.commands_file, document.policy_file))]


def _inside(name: str) -> str:
    """Where a file is kept that may lie anywhere."""
    path = Path(name)
    if not path.is_absolute() and ".." not in path.parts:
        return name
    return f"{hashlib.sha256(name.encode()).hexdigest()[:8]}-{path.name}"


def _moved(document: BagDocument) -> BagDocument:
    """The document with the names under which its files are kept."""
    files = {n: getattr(document, n) for n in ("table", "commands_file", "policy_file")}
    parameters = {
        name: LinesDocument(lines=_inside(p.lines)) if isinstance(p, LinesDocument) else p
        for name, p in document.parameters.items()
    }
    moved = {n: _inside(name) for n, name in files.items() if name is not None}
    return document.model_copy(update={**moved, "parameters": parameters})


def open_bag(folder: Path, number: int) -> KeptBag:
    """A bag of a dispatcher's folder."""
    place = folder / "bags" / f"{number:04d}"
    try:
        kept = json.loads((place / "document.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=str(place / "document.json")) from error
    document = validate(BagDocument, kept["document"], str(place / "document.json"))
    bag = build_bag(document, place / "given")
    if is_of_blocks(place):
        return KeptBag(number, document, *blocks_bag(bag, place))
    return KeptBag(number, document, bag, BagFiles(bag, place, Path(kept["source"])))


def readable_bags(folder: Path) -> list[KeptBag]:
    """The bags of a dispatcher's folder, without those that cannot be opened any more."""
    found = []
    for number in kept_bags(folder):
        with suppress(InputError):
            found.append(open_bag(folder, number))
    return found


def name_of(folder: Path, number: int) -> str:
    """What a bag is called, also where nothing else of it can be read."""
    kept = _read(folder / "bags" / f"{number:04d}" / "document.json", {})
    name = kept.get("document", {}).get("name") if isinstance(kept, dict) else None
    return str(name or f"bag {number}")


class NotOpen(InputError):
    """A bag takes no more tasks."""


def check_open(folder: Path, number: int) -> None:
    """NotOpen, with the reason, where a bag takes no more tasks."""
    place = folder / "bags" / f"{number:04d}" / "given"
    if not (place / OPEN).exists():
        raise NotOpen(
            "is not open: it takes no tasks beside those it was submitted with",
            where="bag",
            fix="submit a bag with open: true",
        )
    if (place / CLOSED).exists():
        raise NotOpen("is closed: it takes no more tasks", where="bag", fix="submit another bag")


def more_commands(folder: Path, number: int, commands: Iterable[str]) -> int:
    """Put commands to an open bag; how many. They are on the disk, in one piece, when this returns.
    NotOpen where it takes no more."""
    place = folder / "bags" / f"{number:04d}" / "given"
    lines = [json.dumps(command) + "\n" for command in commands]
    check_open(folder, number)
    with (place / OPEN).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        try:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise
    return len(lines)


def close_bag(folder: Path, number: int) -> None:
    """No more commands come."""
    (folder / "bags" / f"{number:04d}" / "given" / CLOSED).touch()


def is_closed(folder: Path, number: int) -> bool:
    """True where no more commands come."""
    return (folder / "bags" / f"{number:04d}" / "given" / CLOSED).exists()


def kept_bags(folder: Path) -> list[int]:
    """The numbers of a dispatcher's bags."""
    return sorted(int(p.parent.name) for p in (folder / "bags").glob("*/document.json"))


@dataclass(frozen=True)
class Keys:
    """A dispatcher's certificate and key (PEM), and the secret that hosts' keys are made from."""

    certificate: str
    key: Path
    secret: bytes


def keys_of(folder: Path) -> Keys:
    """The keys of a dispatcher's folder, made the first time."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    certificate, key, secret = (folder / name for name in ("cert.pem", "key.pem", "secret"))
    if not secret.exists():
        pem, private = make_keys()
        for path, body in (
            (certificate, pem.encode()),
            (key, private.encode()),
            (secret, secrets.token_bytes(32)),
        ):
            _write_secret(path, body)
    return Keys(certificate.read_text(), key, secret.read_bytes())


def _write_secret(path: Path, body: bytes) -> None:
    draft = path.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
    draft.replace(path)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Be the one that works on a dispatcher's folder; InputError while another process is."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError("another dispatcher is at work on it", where=folder.name) from error
        yield


def is_worked_on(folder: Path) -> bool:
    """True while a process works on a dispatcher's folder."""
    try:
        with only_one(folder):
            return False
    except InputError:
        return True


def write_status(folder: Path, status: dict[str, Any]) -> None:
    """How it stands, for whoever looks."""
    _replace(folder / "status.json", status)


def read_status(folder: Path) -> dict[str, Any]:
    """How it stood last; empty where nothing was written yet."""
    return dict(_read(folder / "status.json", {}))


def write_host_names(folder: Path, names: Sequence[str]) -> None:
    """The names of all hosts that ever came, by number."""
    _replace(folder / "hosts.json", names)


def host_names(folder: Path) -> list[str]:
    """The names of hosts by number, as far as they are known."""
    return list(_read(folder / "hosts.json", []))


def write_latest(folder: Path, number: int, ends: dict[str, Any]) -> None:
    """The latest ends of a bag."""
    _replace(folder / "bags" / f"{number:04d}" / "latest.json", ends)


def read_latest(folder: Path, number: int) -> dict[str, Any]:
    """The latest ends of a bag: ``last`` and ``wrong``, the newest first."""
    found = _read(folder / "bags" / f"{number:04d}" / "latest.json", {})
    return {"last": [], "wrong": []} | dict(found)


def _replace(path: Path, value: object) -> None:
    """Whole or as before."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(value))
    draft.replace(path)


def _read(path: Path, nothing: object) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return nothing

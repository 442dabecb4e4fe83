"""Results of calls by key: files of an executor's name, which later programs read."""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.agent.functions.packing import unpack, write_packed
from vgrads.executor.encoding import PYTHON
from vgrads.kernel.files import replace_file

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubmittedCall:
    """Where a call was submitted that outlives its program: the address of its bag, its task."""

    bag: str
    task: int


class KeyedResults:
    """A folder with the value of each key whose call has returned, and with the bag and task of
    each that a service has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, key: str, kind: str) -> Path:
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / digest[:2] / f"{digest[2:]}.{kind}"

    def value(self, key: str) -> list[memoryview]:
        """Return the parts of a stored value, which are not copied; none where there is none."""
        try:
            with self._path(key, "value").open("rb") as file:
                body = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            head, *parts = unpack(memoryview(body))
            stated: Mapping[str, Any] = json.loads(bytes(head))
        except (OSError, ValueError):  # none, or cut off when the machine failed: called again
            return []
        return parts if stated["python"] == PYTHON else []

    def store(self, key: str, parts: Sequence[Any]) -> None:
        """Store the parts of a value; without room, report that later programs call again."""
        head = json.dumps({"key": key, "python": PYTHON}).encode()
        try:
            with replace_file(self._path(key, "value")) as file:
                write_packed([head, *parts], file)
            # only after the value is stored: where both exist, the value counts
            self._path(key, "call").unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or error
            _log.warning("the result of key %r was not stored: %s", key, reason)

    def call(self, key: str) -> SubmittedCall | None:
        """Return where the call of a key was submitted, if it was."""
        try:
            stated = json.loads(self._path(key, "call").read_text())
            return SubmittedCall(str(stated["bag"]), int(stated["task"]))
        except (OSError, ValueError, LookupError):
            return None

    def note(self, key: str, call: SubmittedCall) -> None:
        """Store where the call of a key is submitted, before it is. Raise OSError."""
        stated = {"key": key, "bag": call.bag, "task": call.task}
        with replace_file(self._path(key, "call")) as file:
            file.write(json.dumps(stated).encode())


@dataclass(frozen=True, slots=True)
class ResultKey:
    """The key of a call, with the results that it belongs to."""

    results: KeyedResults
    key: str

    def submitting(self, bag: str, task: int) -> None:
        """Note that the call becomes this task of a bag that outlives the program."""
        self.results.note(self.key, SubmittedCall(bag, task))

    def returned(self, parts: Sequence[Any]) -> None:
        """Store the value of the call."""
        self.results.store(self.key, parts)

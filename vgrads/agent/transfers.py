"""Tasks with files: they start when their inputs are here, and are reported when their outputs are
sent.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Collection

from .attempts import AgentTask, AttemptOutcome, Key, could_not_run
from .launcher import give_to
from .session import Session
from .store import FetchFailed, FileCache, is_digest
from .tasks import TaskQueue

if TYPE_CHECKING:
    from .settings import Environment

_CHECK_S = 1.0  # between checks that the files of interpreters are here
_UNSENT = -1000  # in place of exit code 0: not all outputs were written and sent


class Transfers:
    """The tasks of an agent that wait for inputs or send outputs."""

    def __init__(self, store: FileCache, scratch: Path, tasks: TaskQueue, session: Session) -> None:
        """``tasks``: receives tasks whose inputs are all here; ``session``: receives the reports of
        the others."""
        self._store, self._scratch, self._tasks, self._session = store, scratch, tasks, session
        self.moving: dict[Key, AgentTask] = {}
        self._lacking: dict[str, list[AgentTask]] = {}  # digest → tasks that wait for it
        self._checked_s: dict[
            tuple[str, ...], float
        ] = {}  # program and setup → when they were here

    def fetch(self, task: AgentTask) -> None:
        """Fetch the inputs of a task."""
        wrong = [name for name, digest in task.inputs.items() if not is_digest(digest)]
        if wrong:
            self._refuse(task, f"the input {wrong[0]!r} cannot be read at the dispatcher")
            return
        self.moving[task.key] = task
        task.missing = {digest for digest in task.inputs.values() if not self._store.has(digest)}
        if task.bag.interpreter:
            task.missing |= self._missing_of(task.bag.interpreter, task.came_s)
        for digest in task.missing:
            if digest not in self._lacking:
                self._store.fetch(digest)
            self._lacking.setdefault(digest, []).append(task)
        if not task.missing:
            self._make_ready(task)

    def _missing_of(self, environment: Environment, now_s: float) -> set[str]:
        """Return the files of an environment that are not here; a check holds for a second."""
        digests = (environment.program, environment.setup)
        if now_s - self._checked_s.get(digests, -_CHECK_S) < _CHECK_S:
            return set()
        missing = {digest for digest in digests if digest and not self._store.has(digest)}
        if not missing:
            self._checked_s[digests] = now_s
        return missing

    def _refuse(self, task: AgentTask, why: str) -> None:
        self._session.add("ended", could_not_run(task, why).to_wire())

    def _make_ready(self, task: AgentTask) -> None:
        """Pass on a task whose inputs are all here."""
        del self.moving[task.key]
        # waiting for a connection or its turn is not transfer time
        task.ready_s = time.monotonic()
        task.fetched_s = max(0.0, task.ready_s - task.coming_s)
        if task.bag.interpreter:  # reads the files where they are
            self._tasks.waiting.append(task)
            return
        folder = self._scratch / "{}.{}.{}".format(*task.key)
        try:
            self._store.place(folder, task.inputs, task.outputs, task.bag.executable)
            if task.bag.account:
                give_to(task.bag.account, str(folder))
        except (OSError, ValueError, FetchFailed) as error:  # ValueError: a null byte in a name
            shutil.rmtree(folder, ignore_errors=True)
            self._refuse(task, str(error))
            return
        task.folder = str(folder)
        self._tasks.waiting.append(task)

    def send(self, end: AttemptOutcome) -> None:
        """Send the outputs of a task that succeeded, then report its end."""
        self.moving[end.task.key] = end.task
        outputs = [] if end.code else end.task.outputs
        account = end.task.bag.account
        self._store.send(end, end.task.key, Path(end.task.folder), outputs, account)

    def look(self) -> None:
        """Process received inputs and sent outputs."""
        while self._store.fetched:
            digest, wrong, began_s = self._store.fetched.popleft()
            if not wrong:
                self._session.add("cached", digest)
            for task in self._lacking.pop(digest, []):
                task.missing.discard(digest)
                if self.moving.get(task.key) is not task:  # returned since
                    continue
                if wrong:
                    del self.moving[task.key]
                    self._refuse(task, wrong)
                    continue
                task.coming_s = min(task.coming_s, max(began_s, task.came_s))
                if not task.missing:
                    self._make_ready(task)
        while self._store.sent:
            end, sent_s, wrong_ones = self._store.sent.popleft()
            del self.moving[end.task.key]
            if wrong_ones:
                err = "\n".join(filter(None, [end.err.rstrip(), *wrong_ones]))
                end = end._replace(err=err, code=_UNSENT if end.code == 0 else end.code)
            self._session.add("ended", end.to_wire(sent_s))

    def take_back(self, keys: Collection[Key]) -> list[Key]:
        """Drop those of these tasks that have not started; return them."""
        taken = [key for key, task in self.moving.items() if key in keys and not task.began_s]
        for key in taken:
            del self.moving[key]
        return taken

"""Tasks with files: they are begun when their inputs are here, and told as ended when their outputs
are sent.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Collection

from .session import Talk
from .store import Hopeless, Store, is_digest
from .tasks import End, Key, Task, Tasks, could_not_run


class Transfers:
    """The tasks of a host that wait for inputs or send outputs."""

    def __init__(self, store: Store, scratch: Path, tasks: Tasks, talk: Talk) -> None:
        """``tasks``: where those go all inputs of which are here; ``talk``: what is told of the
        others."""
        self._store, self._scratch, self._tasks, self._talk = store, scratch, tasks, talk
        self.moving: dict[Key, Task] = {}
        self._lacking: dict[str, list[Task]] = {}  # digest → tasks that wait for it

    def fetch(self, task: Task) -> None:
        """Bring what a task needs."""
        wrong = [name for name, digest in task.inputs.items() if not is_digest(digest)]
        if wrong:
            self._refuse(task, f"the input '{wrong[0]}' cannot be read at the dispatcher")
            return
        self.moving[task.key] = task
        task.missing = {one for one in task.inputs.values() if not self._store.has(one)}
        for digest in task.missing:
            if digest not in self._lacking:
                self._store.fetch(digest)
            self._lacking.setdefault(digest, []).append(task)
        if not task.missing:
            self._make_ready(task)

    def _refuse(self, task: Task, why: str) -> None:
        self._talk.add("ended", could_not_run(task, why).told())

    def _make_ready(self, task: Task) -> None:
        """All its inputs are here."""
        del self.moving[task.key]
        folder = self._scratch / "{}.{}.{}".format(*task.key)
        # waiting for a connection or its turn is no time of the link
        task.ready_s = time.monotonic()
        task.fetched_s = max(0.0, task.ready_s - task.coming_s)
        try:
            self._store.place(folder, task.inputs, task.outputs)
        except (OSError, Hopeless) as error:
            shutil.rmtree(folder, ignore_errors=True)
            self._refuse(task, str(error))
            return
        task.folder = str(folder)
        self._tasks.waiting.append(task)

    def send(self, end: End) -> None:
        """Send a task's outputs, then tell its end."""
        self.moving[end.task.key] = end.task
        self._store.send(end, end.task.key, Path(end.task.folder), end.task.outputs)

    def look(self) -> None:
        """Go on with what has come and what was sent."""
        while self._store.fetched:
            digest, wrong, began_s = self._store.fetched.popleft()
            if not wrong:
                self._talk.add("cached", digest)
            for task in self._lacking.pop(digest, []):
                task.missing.discard(digest)
                if self.moving.get(task.key) is not task:  # given back meanwhile
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
                end = end._replace(err=err, code=-1000 if end.code == 0 else end.code)
            self._talk.add("ended", end.told(sent_s))

    def take_back(self, keys: Collection[Key]) -> list[Key]:
        """Give up those of these that have not begun; which they were."""
        taken = [key for key, task in self.moving.items() if key in keys and not task.began_s]
        for key in taken:
            del self.moving[key]
        return taken

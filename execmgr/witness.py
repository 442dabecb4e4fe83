"""Keeps how tasks were done (:mod:`execmgr.provenance`), in a thread of its own: nobody waits for a digest.

What is not kept, since its manager was killed or the disk is full, is done again by the next run: no more than that.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue

from execmgr.engine import TaskOrder
from execmgr.provenance import RECORDS, Made, can_stand, line_of, noted_reads, recipe_of, trace
from execmgr.task_folder import TaskFolder

_log = logging.getLogger("vgrads.provenance")


class Witness:
    """Writes the records of the tasks whose outputs count."""

    def __init__(self, folder: TaskFolder) -> None:
        self._folder = folder
        self._waiting: SimpleQueue[TaskOrder | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, order: TaskOrder) -> None:
        """The outputs of this copy are where they belong."""
        if not can_stand(order):
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="witness")
            self._thread.start()
        self._waiting.put(order)

    def close(self) -> None:
        """Finish what it was told of."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (order := self._waiting.get()) is not None:
            try:
                self._keep(order)
            except (OSError, ValueError) as error:
                _log.info("task %s/%s will be done again: %s", *order.key[:2], error)

    def _keep(self, order: TaskOrder) -> None:
        reads = noted_reads(self._folder.place(order))
        results, key = self._folder.results(order.key[0]), order.key[:2]
        made = Made(
            key=key, beside=str(self._folder.set_folder), recipe=recipe_of(order, order.manner, key), reads=reads,
            outputs={name: trace(results / name) for name in order.outputs},
        )  # fmt: skip
        with (self._folder.run_folder / RECORDS).open("a") as records:
            records.write(line_of(made))

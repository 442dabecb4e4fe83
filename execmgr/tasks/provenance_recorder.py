"""Records the provenance of tasks (:mod:`vgrads.execmgr.tasks.provenance`) in a separate thread: no
task waits for a digest.

A record that is missing because the manager was killed or the disk is full only makes the next run
repeat the task. Files are read in another process (:mod:`vgrads.execmgr.tasks.file_reader`); those
that are not the run's own with the account of its tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue

from vgrads.execmgr.tasks.file_reader import RunFilesReader
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.helper_thread import HelperThread
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.provenance import (
    CompletedTask,
    FileState,
    append_record,
    can_stand,
    compute_fingerprints,
    recipe_of,
    states_of,
    traces,
)
from vgrads.planner.snapshot import ReplicaKey

_IDLE_S = 2.0
_log = logging.getLogger("vgrads.provenance")


class ProvenanceRecorder:
    """Reads the files of tasks at their start, and writes the records of those whose outputs
    count."""

    def __init__(self, folder: TaskFolder) -> None:
        self._folder = folder
        self._inputs: dict[tuple[ReplicaKey, int], Mapping[str, FileState]] = {}
        self._helper = HelperThread("provenance", self._work)
        self._files = RunFilesReader(folder.account, (folder.run_folder, folder.set_folder))

    def look(self, order: TaskOrder) -> None:
        """Read the state of the files that count for an attempt, before it starts."""
        if can_stand(order):
            # without the states of its files an attempt is not recorded, so its task is run again
            with suppress(OSError):
                self._inputs[order.key, order.attempt] = states_of(self._folder.inputs.reads(order))

    def put(self, order: TaskOrder) -> None:
        """Record an attempt whose outputs are committed."""
        if (order.key, order.attempt) in self._inputs:
            self._helper.put(order)

    def close(self) -> None:
        """Finish the queued records."""
        self._helper.close()
        self._files.close()

    def _work(self, waiting: SimpleQueue[TaskOrder | None]) -> None:
        while (order := self._next(waiting)) is not None:
            try:
                append_record(self._folder.run_folder, self._completed(order))
            except OSError as error:
                _log.info("task %s/%s will be run again: %s", *order.key[:2], error)

    def _next(self, waiting: SimpleQueue[TaskOrder | None]) -> TaskOrder | None:
        """Return the next item; the process that reads files ends while there is none."""
        with suppress(Empty):
            return waiting.get(timeout=_IDLE_S)
        self._files.close()
        return waiting.get()

    def _completed(self, order: TaskOrder) -> CompletedTask:
        """Return the record of an attempt; OSError if a file is missing or changed."""
        results, key = self._folder.results(order.key[0]), order.key[:2]
        return CompletedTask(
            key=key,
            siblings=str(self._folder.set_folder),
            recipe=recipe_of(order, order.environment, key),
            reads=compute_fingerprints(self._inputs.pop((order.key, order.attempt)), self._files),
            outputs=traces({name: results / name for name in order.outputs}, self._files),
        )

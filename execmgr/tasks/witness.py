"""Keeps how tasks were done (:mod:`vgrads.execmgr.tasks.provenance`), in a thread of its own:
nobody waits for a digest.

What is not kept, since its manager was killed or the disk is full, is done again by the next run:
no more than that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue

from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.helper_thread import HelperThread
from vgrads.execmgr.tasks.provenance import (
    RECORDS,
    Made,
    Seen,
    as_seen,
    can_stand,
    line_of,
    recipe_of,
    seen_of,
    trace,
)
from vgrads.planner.snapshot import CopyKey

_log = logging.getLogger("vgrads.provenance")


class Witness:
    """Sees what tasks begin with, and writes the records of those whose outputs count."""

    def __init__(self, folder: TaskFolder) -> None:
        self._folder = folder
        self._seen: dict[tuple[CopyKey, int], Mapping[str, Seen]] = {}
        self._helper = HelperThread("witness", self._work)

    def look(self, order: TaskOrder) -> None:
        """An attempt is about to begin: see the files that count for it as they are."""
        if can_stand(order):
            with suppress(OSError):
                self._seen[order.key, order.attempt] = seen_of(self._folder.inputs.reads(order))

    def put(self, order: TaskOrder) -> None:
        """The outputs of this attempt are where they belong."""
        if (order.key, order.attempt) in self._seen:
            self._helper.put(order)

    def close(self) -> None:
        """Finish what it was told of."""
        self._helper.close()

    def _work(self, waiting: SimpleQueue[TaskOrder | None]) -> None:
        while (order := waiting.get()) is not None:
            try:
                line = line_of(self._made(order))
                with (self._folder.run_folder / RECORDS).open("a") as records:
                    records.write(line)
            except OSError as error:
                _log.info("task %s/%s will be done again: %s", *order.key[:2], error)

    def _made(self, order: TaskOrder) -> Made:
        """How it was done; OSError where that cannot be told."""
        results, key = self._folder.results(order.key[0]), order.key[:2]
        return Made(
            key=key,
            beside=str(self._folder.set_folder),
            recipe=recipe_of(order, order.manner, key),
            reads=as_seen(self._seen.pop((order.key, order.attempt))),
            outputs={name: trace(results / name) for name in order.outputs},
        )

"""What an engine is told to run for a copy that starts."""

from __future__ import annotations

from dataclasses import replace

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.growth import grown
from vgrads.execmgr.core.states import RunState
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.planner.snapshot import CopyKey
from vgrads.workflows.manner import Manner, with_env
from vgrads.workflows.task import Task


def task_order(book: Book, state: RunState, key: CopyKey) -> TaskOrder:
    """The task as it was released, with what failures of the copy have added to its memory and
    time."""
    placement = book.placements[key]
    task = book.snapshot.task(placement.task_key)
    leave = state.released.get(placement.task_key)
    if leave is not None:
        task = replace(task, command=leave.command, memory_mib=leave.memory_mib)
    more = grown(book, state.copies, key)
    return TaskOrder(
        key=key,
        site=book.site_of(key),
        slot=placement.slot,
        procs=task.threads or task.procs,
        command=task.command,
        inputs=task.inputs,
        outputs=task.outputs,
        runtime_s=book.median_s(key) * more.time,
        attempt=state.copies[key].attempt,
        memory_mib=task.memory_mib * more.memory,
        manner=_manner(book, key, task),
        fetches=tuple(file.of(*placement.task_key) for file in task.fetches),
        sends=tuple(file.of(*placement.task_key) for file in task.sends),
    )


def _manner(book: Book, key: CopyKey, task: Task) -> Manner:
    """How a task runs where it is planned: a container that any engine may run by the first that
    its site has."""
    manner = with_env(task.manner, book.snapshot.wanted.env)
    box = manner.boxed
    if box is None or box.engine:
        return manner
    engines = book.uses[book.slot_of(key)].slot.containers
    return replace(manner, container=replace(box, engine=engines[0]))

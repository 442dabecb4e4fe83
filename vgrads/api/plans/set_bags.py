"""Bags within workflow sets: the tasks of a bag in pieces, each of which is one task of the plan.

A plan places tasks one by one; those of a bag are alike and too many for that. A piece runs some of
them, one after the other, on the processors that one of them needs.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vgrads.bags.bag import BagSpec
from vgrads.dispatch.document import BagDocument, LinesDocument, build_bag, load_bag
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowDocument
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import ErrorRule, TaskEnvironment

_LEAST_PIECES, _MOST_PIECES, _PIECE_S = 100, 1000, 600.0
"""A plan of more tasks takes long; a piece that lasts long leaves gaps at the ends of slots."""
_MOST_TASKS = 1_000_000
_LONGEST = 100_000
"""Bytes of the commands of a piece: a command of a task must not have more than 120,000."""
_OF_THE_SET = ("deadline", "probability", "budget_usd", "of")
_UNUSED = ("hosts", "weight", "owner", "output_bytes", "most_copies", "tail_latched", "silence")
_REFUSED = {
    "fraction": "list the tasks that must be done as a bag of their own",
    "at_least": "list the tasks that must be done as a bag of their own",
    "limit": "write 'timeout 60 COMMAND' as its command",
    "sites": "the plan chooses the sites; name fewer in the set's file of sites",
    "pass_env": "write pass_env in the set",
    "open": "run it with 'vgrads bags run'",
    "functions": "run it with 'vgrads bags run'",
    "policy": "run it with 'vgrads bags run'",
    "policy_file": "run it with 'vgrads bags run'",
    "copies": "run it with 'vgrads bags run'",
    "tail_below": "run it with 'vgrads bags run'",
    "failover": "run it with 'vgrads bags run'",
    "account": "run it with 'vgrads bags run'",
}
_RUN = """\
failed=0
run() {{
  tries={tries}
  while ! /bin/sh -c "$2"; do
    tries=$((tries - 1))
    if [ $tries -le 0 ]; then echo "task $1 of the bag failed" >&2; failed=1; return; fi
  done
}}
"""


def make_bag_workflow(entry: WorkflowDocument, folder: Path | None) -> Workflow:
    """Return the workflow of a set's entry of the kind ``bag``: its pieces, which depend on no
    other. ``folder``: where the files are that it names; None: it must not name any.

    Raises InputError with the field where the bag uses what plans cannot do.
    """
    if entry.file is None:
        document = validate(BagDocument, {"name": entry.name, **(entry.bag or {})}, "bag")
        if folder is None:
            _refuse_files(document)
        where, bag = "bag", _build_bag(document, folder or Path())
    elif folder is None:
        raise InputError(
            "names a file, but this service provides no files",
            where="workflows.file",
            fix="write the fields of the bag into 'bag'",
        )
    else:
        where = str(folder / entry.file)
        document, bag = load_bag(folder / entry.file)
    _refuse_unsupported(document, bag, where)
    tasks = tuple(_cut_pieces(document, bag))
    return make_workflow(
        entry.name or bag.name, tasks, {}, where, (_note(document, bag, tasks), *bag.notes)
    )


def _refuse_files(document: BagDocument) -> None:
    lists = [name for name, p in document.parameters.items() if isinstance(p, LinesDocument)]
    for field in ("commands_file", "table", "policy_file"):
        if getattr(document, field) is not None:
            lists.append(field)
    if lists:
        raise InputError(
            "names a file, but this service provides no files",
            where=f"bag: {lists[0]}",
            fix="write its values or commands into the bag",
        )


def _build_bag(document: BagDocument, folder: Path) -> BagSpec:
    try:
        return build_bag(document, folder)
    except InputError as error:
        raise error.within("bag") from None


def _refuse_unsupported(document: BagDocument, bag: BagSpec, where: str) -> None:
    for field, fix in _REFUSED.items():
        if field in document.model_fields_set:
            raise InputError(
                "is not possible for a bag within a set", where=f"{where}: {field}", fix=fix
            )
    if document.runtime_s is None:
        raise InputError(
            "is not given: a plan needs the run time of a bag's tasks",
            where=f"{where}: runtime_s",
            fix="give runtime_s",
        )
    if len(bag.commands) > _MOST_TASKS:
        raise InputError(
            f"has {format_count(len(bag.commands), 'task')}; at most {_MOST_TASKS:,} are "
            "possible within a set",
            where=where,
            fix="run it with 'vgrads bags run'",
        )


def _cut_pieces(document: BagDocument, bag: BagSpec) -> Iterator[Task]:
    tasks, each_s = len(bag.commands), float(document.runtime_s or 0.0)
    count = min(tasks, _MOST_PIECES, max(_LEAST_PIECES, math.ceil(tasks * each_s / _PIECE_S)))
    alone = TaskEnvironment(env=tuple(bag.env.items()), errors=(ErrorRule(retries=bag.retries),))
    together = replace(alone, errors=(ErrorRule(retries=0),))  # its script repeats tasks
    for n in range(count):
        # whole numbers: pieces differ by one task at most
        begin, end = n * tasks // count, (n + 1) * tasks // count
        for first, after, command in _list_piece_commands(bag, begin, end):
            yield Task(
                id=f"task-{first}" if after == first + 1 else f"tasks-{first}-{after - 1}",
                runtime_s=each_s * (after - first),
                procs=bag.procs,
                command=command,
                inputs=_list_names(bag, bag.inputs, first, after),
                outputs=_list_names(bag, bag.outputs, first, after),
                memory_mib=bag.memory_mib,
                kind=f"{bag.name}, {after - first} tasks",
                environment=alone if after == first + 1 else together,
            )


def _list_piece_commands(bag: BagSpec, begin: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Return the first task of a piece, the one after its last, and its command: of a single task
    its own, of several a script; of those whose text is too long for one script, several
    pieces."""
    if end == begin + 1:
        yield begin, end, bag.commands.command(begin)
        return
    head = _RUN.format(tries=bag.retries + 1)
    first, lines, size = begin, list[str](), 0
    for task in range(begin, end):
        line = f"run {task} {shlex.quote(bag.commands.command(task))}\n"
        size += len(line.encode())
        if lines and size > _LONGEST:
            yield first, task, head + "".join(lines) + "exit $failed"
            first, lines, size = task, [], len(line.encode())
        lines.append(line)
    yield first, end, head + "".join(lines) + "exit $failed"


def _list_names(bag: BagSpec, texts: tuple[str, ...], first: int, after: int) -> tuple[str, ...]:
    names = (name for task in range(first, after) for name in bag.commands.filled(texts, task))
    return tuple(dict.fromkeys(names)) if texts else ()


def _note(document: BagDocument, bag: BagSpec, tasks: tuple[Task, ...]) -> str:
    longest_s = max(task.runtime_s for task in tasks)
    note = (
        f"{bag.name}: a bag of {format_count(len(bag.commands), 'task')}, planned as "
        f"{format_count(len(tasks), 'piece')} of up "
        f"to {format_duration(max(1.0, longest_s))}"
    )
    set_by_set = [name for name in _OF_THE_SET if name in document.model_fields_set]
    unused = [name for name in _UNUSED if name in document.model_fields_set]
    if set_by_set:
        note += f"; of the bag's {', '.join(set_by_set)} those of the set apply"
    if unused:
        note += f"; {', '.join(unused)} have no effect in a set"
    return note

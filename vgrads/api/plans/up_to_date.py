"""Which tasks of a set need not run again: what they were made of is as it was, and what they made
is still there."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vgrads.api.plans.inputs import not_there
from vgrads.execmgr.tasks.folder import results_in
from vgrads.execmgr.tasks.provenance import (
    RECORDS,
    Beside,
    Made,
    Trace,
    can_stand,
    files_beside,
    line_of,
    look,
    reads_of,
    recipe_of,
    records_in,
    trace,
)
from vgrads.kernel.errors import InputError
from vgrads.planner.plan import Done
from vgrads.planner.snapshot import TaskKey
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.dag import Workflow
from vgrads.workflows.manner import Manner, with_env
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier run of the set, and its folder."""

    run: str
    folder: Path


def up_to_date(wanted: WorkflowSet, catalog: Catalog, runs: Iterable[Earlier]) -> tuple[Done, ...]:
    """The tasks that need not run again, by what the newest of these runs kept (newest first).

    None of a set whose tasks are released one by one, or where all sites are simulated.
    """
    if wanted.released or all(site.driver == "simulated" for site in catalog.sites):
        return ()
    known: dict[TaskKey, list[tuple[Earlier, Made]]] = defaultdict(list)
    for one in runs:
        for key, made in records_in(one.folder).items():
            known[key].append((one, made))
    if not known:
        return ()
    asked = _Asked(wanted, known)
    return tuple(done for workflow in wanted.workflows for done in asked.of(workflow))


class _Asked:
    """One look at a set: its files are read once."""

    def __init__(
        self, wanted: WorkflowSet, known: Mapping[TaskKey, list[tuple[Earlier, Made]]]
    ) -> None:
        self._wanted, self._known = wanted, known
        self._folder = Path(wanted.directory).resolve()
        self._beside = Beside(files_beside(self._folder) if self._folder.is_dir() else {})

    def of(self, workflow: Workflow) -> list[Done]:
        """The tasks of a workflow that need not run again."""
        makers: dict[str, list[str]] = defaultdict(list)
        for task in workflow.tasks.values():
            for name in task.outputs:
                makers[name].append(task.id)
        found: dict[str, tuple[Earlier, Made]] = {}
        for task_id in workflow.order:
            chosen = self._made(workflow, workflow.tasks[task_id], makers, found)
            if chosen is not None:
                found[task_id] = chosen
        out = _left_out(workflow, found)
        return [
            Done(
                workflow=workflow.name,
                task=task_id,
                run=made.run or one.run,
                folder=str(one.folder),
            )
            for task_id, (one, made) in found.items()
            if task_id in out
        ]

    def _made(
        self,
        workflow: Workflow,
        task: Task,
        makers: Mapping[str, Sequence[str]],
        found: Mapping[str, tuple[Earlier, Made]],
    ) -> tuple[Earlier, Made] | None:
        """How a task was done as it would be done now; rather where its outputs still lie. None
        where it never was."""
        alone = all(makers[name] == [task.id] for name in task.outputs)
        if not (can_stand(task) and alone and found.keys() >= set(task.parents)):
            return None
        manner = with_env(task.manner, self._wanted.env)
        alike = self._alike((workflow.name, task.id), task, manner)
        if not alike:
            return None
        try:
            reads: dict[str, Path | Trace] = {**reads_of(task, manner, self._beside)}
            for name in task.inputs:
                reads[name] = self._input(task, name, makers.get(name, ()), found)
            fitting = [(one, made) for one, made in alike if _reads_the_same(made.reads, reads)]
        except (OSError, LookupError):  # an input is not there
            return None
        whole = [one for one in fitting if not _gone(workflow.name, *one)]
        return next(iter((*whole, *fitting)), None)

    def _alike(self, key: TaskKey, task: Task, manner: Manner) -> list[tuple[Earlier, Made]]:
        """What is known of a task when it did the same, but for the content of files."""
        known = self._known.get(key, ())
        recipe, here = recipe_of(task, manner, key) if known else "", str(self._folder)
        return [one for one in known if (one[1].recipe, one[1].beside) == (recipe, here)]

    def _input(
        self,
        task: Task,
        name: str,
        makers: Sequence[str],
        found: Mapping[str, tuple[Earlier, Made]],
    ) -> Path | Trace:
        """A declared input: as its maker left it, or where it lies; LookupError where that is not
        sure."""
        if makers and list(makers) != [task.id]:
            maker, *others = makers
            if others or maker not in found:
                raise LookupError(name)
            return found[maker][1].outputs[name]
        return self._beside.files.get(name) or self._folder / name


def _reads_the_same(were: Mapping[str, Trace], there: Mapping[str, Path | Trace]) -> bool:
    """Files by absolute names that were not there when the task began are what it wrote itself."""
    are = {name: one for name, one in there.items() if name in were or not name.startswith("/")}
    return were.keys() == are.keys() and all(_same(were[name], one) for name, one in are.items())


def _same(was: Trace, now: Path | Trace) -> bool:
    if isinstance(now, Trace):
        return was.same(now)
    unread = not now.is_dir() and look(now) == replace(was, digest="")
    return unread or was.same(trace(now))


def _gone(workflow: str, one: Earlier, made: Made) -> list[str]:
    """Outputs that do not lie any more where a run left them, or were changed there."""
    results = results_in(one.folder, workflow)
    return [name for name, was in made.outputs.items() if not _stands(results / name, was)]


def _stands(place: Path, was: Trace) -> bool:
    try:
        return _same(was, place)
    except OSError:
        return False


def _left_out(workflow: Workflow, found: Mapping[str, tuple[Earlier, Made]]) -> set[str]:
    """Of the tasks that were done as they would be now, those that need not run: what is gone of
    their outputs is read by none but such, and by some; all that they wait for need not run
    either."""
    gone = {task_id: _gone(workflow.name, *one) for task_id, one in found.items()}
    gone = {
        task_id: names + _gone_from_workdir(workflow.tasks[task_id], found[task_id][1])
        for task_id, names in gone.items()
    }
    readers: dict[str, set[str]] = defaultdict(set)
    for task in workflow.tasks.values():
        for name in task.inputs:
            readers[name].add(task.id)
    out = set(found)
    while True:
        kept = {
            task_id
            for task_id in out
            if out.issuperset(workflow.tasks[task_id].parents)
            and all(readers[name] and out >= readers[name] for name in gone[task_id])
        }
        if kept == out:
            return out
        out = kept


def _gone_from_workdir(task: Task, made: Made) -> list[str]:
    """Outputs that a task left in a folder of its user's, and that are not there any more as it
    left them."""
    if not task.manner.workdir:
        return []
    here = Path(task.manner.workdir)
    return [name for name, was in made.outputs.items() if not _stands(here / name, was)]


def without(wanted: WorkflowSet, done: Collection[Done]) -> WorkflowSet:
    """What is left of a set: tasks without those that are done, and as many workflows needed as are
    not whole already; one at least where any is left."""
    if not done:
        return wanted
    gone: dict[str, set[str]] = defaultdict(set)
    for one in done:
        gone[one.workflow].add(one.task)
    # equal workflows share theirs
    shapes: dict[tuple[int, frozenset[str]], Mapping[str, Task]] = {}
    left = []
    for workflow in wanted.workflows:
        shape = id(workflow.tasks), frozenset(gone[workflow.name])
        if shape not in shapes:
            shapes[shape] = _others(workflow.tasks, shape[1])
        if shapes[shape]:
            left.append(replace(workflow, tasks=shapes[shape]) if shape[1] else workflow)
    whole = len(wanted.workflows) - len(left)
    needed = max(min(1, len(left)), wanted.needed - whole)
    return replace(wanted, workflows=tuple(left), needed=needed)


def _others(tasks: Mapping[str, Task], gone: frozenset[str]) -> Mapping[str, Task]:
    return {
        task_id: replace(task, parents=tuple(p for p in task.parents if p not in gone))
        for task_id, task in tasks.items()
        if task_id not in gone
    }


def carry_over(done: Collection[Done], left: WorkflowSet, folder: Path) -> None:
    """Bring what was made before into the folder of a run, with its records; InputError where that
    cannot be, or something that is needed has gone since it was looked for."""
    if not done:
        return
    by_folder: dict[Path, list[Done]] = defaultdict(list)
    for one in done:
        by_folder[Path(one.folder)].append(one)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for place, mine in by_folder.items():
            if place != folder:
                _bring_all(place, mine, folder)
    except OSError as error:
        raise InputError(
            f"what was done before cannot be brought there: {error}",
            where=str(folder),
            fix="--rerun does it again",
        ) from error
    _refuse_gaps(left, folder)


def _bring_all(place: Path, mine: Iterable[Done], folder: Path) -> None:
    records = records_in(place)
    for one in mine:
        made = records.get((one.workflow, one.task))
        if made is not None:
            _bring(made, Earlier(one.run, place), folder)


def _bring(made: Made, earlier: Earlier, folder: Path) -> None:
    workflow = made.key[0]
    old, new = results_in(earlier.folder, workflow), results_in(folder, workflow)
    gone = set(_gone(workflow, earlier, made))
    for name in made.outputs.keys() - gone:
        target = new / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        _link(old / name, target)
    with (folder / RECORDS).open("a") as records:
        records.write(line_of(replace(made, run=earlier.run)))


def _link(source: Path, target: Path) -> None:
    """The same file under another name, or where that cannot be, a copy of it."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True, copy_function=_link_file)
    else:
        target.unlink(missing_ok=True)
        _link_file(source, target)


def _link_file(source: Path | str, target: Path | str) -> None:
    with suppress(OSError):
        os.link(source, target, follow_symlinks=False)
        return
    shutil.copy2(source, target, follow_symlinks=False)


def _refuse_gaps(left: WorkflowSet, folder: Path) -> None:
    for workflow, task, name in not_there(left):
        if not (results_in(folder, workflow) / name).exists():
            raise InputError(
                f"'{name}' of an earlier run is not there any more",
                where=f"{workflow}/{task}",
                fix="plan again, or run all of it: --rerun",
            )

"""Up-to-date tasks of a set, which need not run again: their inputs and commands are unchanged, and
their outputs still exist."""

from __future__ import annotations

import logging
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vgrads.api.plans.inputs import find_missing_inputs
from vgrads.execmgr.tasks.file_reader import FileReader, ReadsFiles, RunFilesReader
from vgrads.execmgr.tasks.folder import results_in
from vgrads.execmgr.tasks.provenance import (
    CompletedTask,
    FileFingerprint,
    SiblingFiles,
    append_record,
    can_stand,
    is_same,
    link_file,
    reads_of,
    recipe_of,
    records_in,
    sibling_files,
)
from vgrads.kernel.errors import InputError
from vgrads.planner.plan import Done
from vgrads.planner.snapshot import TaskKey
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import TaskEnvironment, with_env

_log = logging.getLogger("vgrads.provenance")


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """An earlier run of the set, and its folder."""

    run: str
    folder: Path


def find_up_to_date(
    workflow_set: WorkflowSet, catalog: Catalog, runs: Iterable[EarlierRun], account: int = 0
) -> tuple[Done, ...]:
    """Return the tasks that need not run again, by the records of the newest of these runs (newest
    first). ``account``: under which files that commands name are read, if this process is root.

    None for a set whose tasks are released one by one, or if all sites are simulated.
    """
    if workflow_set.released or all(site.driver == "simulated" for site in catalog.sites):
        return ()
    earlier_records: dict[TaskKey, list[tuple[EarlierRun, CompletedTask]]] = defaultdict(list)
    for earlier in runs:
        for key, completed in records_in(earlier.folder).items():
            earlier_records[key].append((earlier, completed))
    if not earlier_records:
        return ()
    folder = Path(workflow_set.directory).resolve()
    ours = {folder, *(run.folder for pairs in earlier_records.values() for run, _ in pairs)}
    with RunFilesReader(account, ours) as files:
        check = _UpToDateCheck(workflow_set, earlier_records, files)
        done = tuple(done for workflow in workflow_set.workflows for done in check.of(workflow))
    if note := files.note():
        _log.warning("set '%s': %s", workflow_set.name, note)
    return done


def exclude_tasks(
    done: tuple[Done, ...], workflow_set: WorkflowSet, again: Collection[str]
) -> tuple[Done, ...]:
    """Return the tasks that need not run, except these (``WORKFLOW/TASK``, or ``TASK`` in every
    workflow) and those that depend on them. Raise InputError for a name that no task has."""
    if not again:
        return done
    chosen: set[TaskKey] = set()
    unknown = set(again)
    for workflow in workflow_set.workflows:
        for task_id in workflow.order:
            names = {task_id, f"{workflow.name}/{task_id}"} & set(again)
            unknown -= names
            parents = workflow.tasks[task_id].parents
            if names or any((workflow.name, parent) in chosen for parent in parents):
                chosen.add((workflow.name, task_id))
    if unknown:
        raise InputError(f"no task '{min(unknown)}' in set '{workflow_set.name}'", where="TASK")
    return tuple(entry for entry in done if (entry.workflow, entry.task) not in chosen)


class _UpToDateCheck:
    """One check of a set: its files are read once."""

    def __init__(
        self,
        workflow_set: WorkflowSet,
        records: Mapping[TaskKey, list[tuple[EarlierRun, CompletedTask]]],
        files: ReadsFiles,
    ) -> None:
        self._workflow_set, self._records, self._files = workflow_set, records, files
        self._folder = Path(workflow_set.directory).resolve()
        self._siblings = SiblingFiles(sibling_files(self._folder) if self._folder.is_dir() else {})

    def of(self, workflow: Workflow) -> list[Done]:
        """Return the tasks of a workflow that need not run again."""
        makers: dict[str, list[str]] = defaultdict(list)
        for task in workflow.tasks.values():
            for name in task.outputs:
                makers[name].append(task.id)
        matches: dict[str, tuple[EarlierRun, CompletedTask]] = {}
        for task_id in workflow.order:
            chosen = self._outputs_of(workflow, workflow.tasks[task_id], makers, matches)
            if chosen is not None:
                matches[task_id] = chosen
        out = _select_unchanged(workflow, matches, self._files)
        return [
            Done(
                workflow=workflow.name,
                task=task_id,
                run=completed.run or earlier.run,
                folder=str(earlier.folder),
            )
            for task_id, (earlier, completed) in matches.items()
            if task_id in out
        ]

    def _outputs_of(
        self,
        workflow: Workflow,
        task: Task,
        makers: Mapping[str, Sequence[str]],
        matches: Mapping[str, tuple[EarlierRun, CompletedTask]],
    ) -> tuple[EarlierRun, CompletedTask] | None:
        """Return the record of a task that matches its current definition, preferably with existing
        outputs. None if there is none."""
        # a file that several tasks write shows the result of the last one only
        alone = all(makers[name] == [task.id] for name in task.outputs)
        if not (can_stand(task) and alone and matches.keys() >= set(task.parents)):
            return None
        environment = with_env(task.environment, self._workflow_set.env)
        alike = self._alike((workflow.name, task.id), task, environment)
        if not alike:
            return None
        try:
            reads: dict[str, Path | FileFingerprint] = {
                **reads_of(task, environment, self._siblings)
            }
            for name in task.inputs:
                reads[name] = self._input(task, name, makers.get(name, ()), matches)
            fitting = [
                (earlier, completed)
                for earlier, completed in alike
                if _compare_inputs(completed.reads, reads, self._files)
            ]
        except (OSError, LookupError):  # an input is missing
            return None
        # with missing outputs this task, or those that read them, would have to run again
        whole = [candidate for candidate in fitting if not self._gone(workflow, candidate)]
        return next(iter((*whole, *fitting)), None)

    def _gone(self, workflow: Workflow, candidate: tuple[EarlierRun, CompletedTask]) -> list[str]:
        return _list_missing_outputs(workflow.name, *candidate, self._files)

    def _alike(
        self, key: TaskKey, task: Task, environment: TaskEnvironment
    ) -> list[tuple[EarlierRun, CompletedTask]]:
        """Return the records of a task with the same definition, except for the content of
        files."""
        records = self._records.get(key, ())
        recipe, here = recipe_of(task, environment, key) if records else "", str(self._folder)
        return [
            candidate
            for candidate in records
            if (candidate[1].recipe, candidate[1].siblings) == (recipe, here)
        ]

    def _input(
        self,
        task: Task,
        name: str,
        makers: Sequence[str],
        matches: Mapping[str, tuple[EarlierRun, CompletedTask]],
    ) -> Path | FileFingerprint:
        """Return a declared input: as the producing task left it, or its file; LookupError if that
        is uncertain."""
        if makers and list(makers) != [task.id]:
            maker, *others = makers
            if others or maker not in matches:
                raise LookupError(name)
            return matches[maker][1].outputs[name]
        return self._siblings.files.get(name) or self._folder / name


def _compare_inputs(
    were: Mapping[str, FileFingerprint],
    there: Mapping[str, Path | FileFingerprint],
    files: ReadsFiles,
) -> bool:
    """Compare input files. Files with absolute names that did not exist when the task started are
    its own outputs."""
    are = {name: trace for name, trace in there.items() if name in were or not name.startswith("/")}
    return were.keys() == are.keys() and all(
        is_same(were[name], trace, files) for name, trace in are.items()
    )


def _list_missing_outputs(
    workflow: str, earlier: EarlierRun, completed: CompletedTask, files: ReadsFiles
) -> list[str]:
    """Return outputs that a run produced and that are missing or changed."""
    results = results_in(earlier.folder, workflow)
    return [
        name
        for name, was in completed.outputs.items()
        if not _is_unchanged(results / name, was, files)
    ]


def _is_unchanged(path: Path, was: FileFingerprint, files: ReadsFiles) -> bool:
    try:
        return is_same(was, path, files)
    except OSError:
        return False


def _select_unchanged(
    workflow: Workflow,
    matches: Mapping[str, tuple[EarlierRun, CompletedTask]],
    files: ReadsFiles,
) -> set[str]:
    """Return the tasks with matching records that need not run: missing outputs are read by at
    least one task, and only by tasks that need not run; all their parents need not run either."""
    gone = {
        task_id: _list_missing_outputs(workflow.name, *pair, files)
        for task_id, pair in matches.items()
    }
    gone = {
        task_id: names
        + _list_missing_in_workdir(workflow.tasks[task_id], matches[task_id][1], files)
        for task_id, names in gone.items()
    }
    readers: dict[str, set[str]] = defaultdict(set)
    for task in workflow.tasks.values():
        for name in task.inputs:
            readers[name].add(task.id)
    out = set(matches)
    while True:
        remaining = {
            task_id
            for task_id in out
            if out.issuperset(workflow.tasks[task_id].parents)
            and all(readers[name] and out >= readers[name] for name in gone[task_id])
        }
        # a task that must run may need others to run again: repeated until no more do
        if remaining == out:
            return out
        out = remaining


def _list_missing_in_workdir(task: Task, completed: CompletedTask, files: ReadsFiles) -> list[str]:
    """Return outputs that a task left in a folder of the user, and that are missing or changed."""
    if not task.environment.workdir:
        return []
    here = Path(task.environment.workdir)
    return [
        name
        for name, was in completed.outputs.items()
        if not _is_unchanged(here / name, was, files)
    ]


def remove_done(workflow_set: WorkflowSet, done: Collection[Done]) -> WorkflowSet:
    """Return the remainder of a set: without completed tasks, and with the needed number reduced by
    the complete workflows; at least one if any is left."""
    if not done:
        return workflow_set
    gone: dict[str, set[str]] = defaultdict(set)
    for carried in done:
        gone[carried.workflow].add(carried.task)
    # equal workflows share their tasks
    shapes: dict[tuple[int, frozenset[str]], Mapping[str, Task]] = {}
    left = []
    for workflow in workflow_set.workflows:
        shape = id(workflow.tasks), frozenset(gone[workflow.name])
        if shape not in shapes:
            shapes[shape] = _list_other_tasks(workflow.tasks, shape[1])
        if shapes[shape]:
            left.append(replace(workflow, tasks=shapes[shape]) if shape[1] else workflow)
    whole = len(workflow_set.workflows) - len(left)
    needed = max(min(1, len(left)), workflow_set.needed - whole)
    return replace(workflow_set, workflows=tuple(left), needed=needed)


def _list_other_tasks(tasks: Mapping[str, Task], gone: frozenset[str]) -> Mapping[str, Task]:
    return {
        task_id: replace(task, parents=tuple(p for p in task.parents if p not in gone))
        for task_id, task in tasks.items()
        if task_id not in gone
    }


def carry_over(done: Collection[Done], left: WorkflowSet, folder: Path) -> None:
    """Link earlier outputs into the folder of a run, with their records; InputError if that is not
    possible, or a needed file has disappeared since the check."""
    if not done:
        return
    by_folder: dict[Path, list[Done]] = defaultdict(list)
    for carried in done:
        by_folder[Path(carried.folder)].append(carried)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, mine in by_folder.items():
            if path != folder:
                _bring_all(path, mine, folder)
    except OSError as error:
        raise InputError(
            f"results of earlier runs cannot be copied there: {error}",
            where=str(folder),
            fix="run all tasks again with --rerun",
        ) from error
    _refuse_gaps(left, folder)


def _bring_all(path: Path, mine: Iterable[Done], folder: Path) -> None:
    records = records_in(path)
    with FileReader() as files:
        for done_task in mine:
            completed = records.get((done_task.workflow, done_task.task))
            if completed is not None:
                _bring(completed, EarlierRun(done_task.run, path), folder, files)


def _bring(completed: CompletedTask, earlier: EarlierRun, folder: Path, files: ReadsFiles) -> None:
    workflow = completed.key[0]
    old, new = results_in(earlier.folder, workflow), results_in(folder, workflow)
    gone = set(_list_missing_outputs(workflow, earlier, completed, files))
    for name in completed.outputs.keys() - gone:
        target = new / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        _link(old / name, target)
    # after the outputs, because the record says that they are there
    append_record(folder, replace(completed, run=earlier.run))


def _link(source: Path, target: Path) -> None:
    """Create a hard link, or a copy if that is not possible."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True, copy_function=link_file)
    else:
        # a link cannot replace a file
        target.unlink(missing_ok=True)
        link_file(source, target)


def _refuse_gaps(left: WorkflowSet, folder: Path) -> None:
    for workflow, task, name in find_missing_inputs(left):
        if not (results_in(folder, workflow) / name).exists():
            raise InputError(
                f"'{name}' of an earlier run no longer exists",
                where=f"{workflow}/{task}",
                fix="plan again, or run all tasks with --rerun",
            )

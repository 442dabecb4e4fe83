"""A CWL workflow and its input object as tasks: ``cwltool --pack`` reads it, steps and scatters are
unfolded here.

The width of a scatter is determined by the input object, or by another scatter; if it is determined
by the output of a tool, it is known only as the workflow runs, and the workflow is rejected.
https://www.commonwl.org/v1.2/Workflow.html
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from vgrads.kernel.documents import load_mapping
from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.reading import MOST_TASKS
from vgrads.workflows.runtimes import Runtimes, timed
from vgrads.workflows.task import Task

Json = Mapping[str, Any]
_NUMBERS = re.compile(r"(\.\d+)+_*$")  # of parts of a scatter
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a link: the tasks that produce it; ``items`` if it is a list of known length."""

    parents: tuple[str, ...] = ()
    items: tuple[_Value, ...] | None = None

    @staticmethod
    def constant(value: object) -> _Value:
        """Return a value of the input object."""
        return _Value((), tuple(map(_Value.constant, value)) if isinstance(value, list) else None)

    @staticmethod
    def listed(items: Iterable[_Value]) -> _Value:
        parts = tuple(items)
        return _Value(_list_all_parents(parts), parts)


def _list_all_parents(values: Iterable[_Value]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parent for value in values for parent in value.parents))


Values = Mapping[str, _Value]


def read_cwl(
    path: Path, runtimes: Runtimes, inputs: Path | None = None, entry: str = ""
) -> Workflow:
    """Read the tasks of a CWL workflow, or of one tool; ``inputs``: its input object (YAML or
    JSON); ``entry``: the name of the process where the file has several, otherwise ``main``.

    Run times are those of ``runtimes`` by step or tool, otherwise estimated from ``ToolTimeLimit``.
    """
    packed = _pack(path, entry)
    graph = packed.get("$graph", [packed])
    reader = _CwlReader(
        {entry["id"]: entry for entry in graph if "id" in entry}, runtimes, str(path)
    )
    process = _find_main(graph, str(path))
    document = load_mapping(inputs) if inputs is not None else {}
    values = {
        _take_last(i): _Value.constant(document.get(_take_last(i), i.get("default")))
        for i in process["inputs"]
    }
    if process["class"] == "Workflow":
        reader.workflow(process, values, "", _NO_REQUIREMENTS)
    else:
        reader.process(process, values, path.stem, _NO_REQUIREMENTS)
    notes = tuple(sorted(reader.notes))
    return make_workflow(path.stem, reader.tasks.values(), where=str(path), notes=notes)


def _pack(path: Path, entry: str) -> dict[str, Any]:
    """Return the workflow with all its references, normalised, by cwltool in a separate process."""
    program = shutil.which("cwltool")
    begin = (
        # -P: modules in the working folder must not replace those of cwltool
        [sys.executable, "-P", "-m", "cwltool"]
        if find_spec("cwltool")
        else [program]
        if program
        else None
    )
    if begin is None:
        raise InputError(
            "cwltool, which reads CWL, is not installed",
            where=str(path),
            fix="pip install 'vgrads[cwl]'",
        )
    command = [
        *begin,
        "--pack",
        "--quiet",
        "--disable-color",
        "--skip-schemas",
        f"{path.absolute()}#{entry}" if entry else str(path.absolute()),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"cwltool cannot be run: {error}", where=str(path)) from error
    try:
        packed: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        text = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        first, *more = text[:12] or [f"exit code {done.returncode} and no error message"]
        raise InputError(f"cwltool reports: {first}", tuple(more), where=str(path)) from None
    return packed


def _find_main(graph: Sequence[Json], where: str) -> Json:
    mains = [entry for entry in graph if entry.get("id") in ("#main", None)] or list(graph)
    results = [entry for entry in mains if entry.get("class") == "Workflow"] or mains
    if len(results) != 1:
        raise InputError("has several workflows, but none is named main", where=where)
    return results[0]


def _take_last(entry: Json | str) -> str:
    """Return the last part of an id: ``#main/align/reads`` is ``reads``."""
    name = entry if isinstance(entry, str) else str(entry["id"])
    return name.rpartition("/")[2].lstrip("#")


class _Requirements(NamedTuple):
    """Hints and requirements by class: the nearest to the tool counts, and a requirement more than
    any hint."""

    hints: Json
    required: Json

    def by(self, process: Json) -> _Requirements:
        """Return the same with the requirements of a workflow, a step or a tool added."""
        return _Requirements(
            # later ones are nearer to the tool, and replace those before
            {**self.hints, **{item["class"]: item for item in process.get("hints", ())}},
            {**self.required, **{item["class"]: item for item in process.get("requirements", ())}},
        )

    def of(self, name: str) -> Json:
        result: Json = {**self.hints, **self.required}.get(name, {})
        return result


_NO_REQUIREMENTS = _Requirements({}, {})


@dataclass(slots=True)
class _CwlReader:
    """Unfolds processes into tasks; ``notes``: information for planning."""

    graph: Mapping[str, Json]
    runtimes: Runtimes
    where: str
    tasks: dict[str, Task] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)

    def workflow(
        self, process: Json, values: Values, prefix: str, requested: _Requirements
    ) -> Values:
        """Unfold all steps of a workflow, in an order that its links allow; return its outputs."""
        value_of = {
            i["id"]: values.get(_take_last(i), _Value.constant(i.get("default")))
            for i in process["inputs"]
        }
        waiting = list(process["steps"])
        requested = requested.by(process)
        while waiting:
            ready = [
                step
                for step in waiting
                if all(s in value_of for i in step["in"] for s in _list_sources(i))
            ]
            if not ready:
                named = ", ".join(sorted(map(_take_last, waiting)))
                raise InputError(
                    f"these steps are on a dependency cycle, or depend on one: {named}",
                    where=self.where,
                )
            for step in ready:
                result = self._step(step, value_of, prefix, requested)
                value_of |= {f"{step['id']}/{name}": value for name, value in result.items()}
                waiting.remove(step)
        return {
            _take_last(out): _resolve_link(_list_sources(out, "outputSource"), out, value_of)
            for out in process["outputs"]
        }

    def process(self, process: Json, values: Values, name: str, requested: _Requirements) -> Values:
        """Unfold one process with its inputs: a task for a tool, none for an expression, many for a
        workflow."""
        if process["class"] == "Workflow":
            return self.workflow(process, values, f"{name}.", requested)
        parents = _list_all_parents(values.values())
        if process["class"] != "ExpressionTool":
            parents = (self._task(process, parents, name, requested.by(process)),)
        return {_take_last(out): _Value(parents) for out in process["outputs"]}

    def _step(self, step: Json, value_of: Values, prefix: str, requested: _Requirements) -> Values:
        run = step["run"]
        process = self.graph[run] if isinstance(run, str) else run
        name = prefix + _take_last(step)
        if "when" in step:
            self.notes.add(
                f"counts step {name} as if it ran; its condition (when) is evaluated while the "
                "workflow runs"
            )
        values = {_take_last(i): _resolve_link(_list_sources(i), i, value_of) for i in step["in"]}
        requested = requested.by(step)
        over = step.get("scatter")
        if over is None:
            return self.process(process, values, name, requested)
        names = [_take_last(item) for item in ([over] if isinstance(over, str) else over)]
        lists = [self._items(values[word], word, name) for word in names]
        pairs = self._combined(lists, step.get("scatterMethod", "dotproduct"), name)
        created = [
            self.process(
                process, {**values, **dict(zip(names, pair, strict=True))}, f"{name}.{n}", requested
            )
            for n, pair in enumerate(pairs)
        ]
        nested = step.get("scatterMethod") == "nested_crossproduct"
        width = [len(items) for items in lists] if nested else [len(pairs)]
        return {
            _take_last(out): _shape_outputs([item[_take_last(out)] for item in created], width)
            for out in step["out"]
        }

    def _items(self, value: _Value, name: str, step: str) -> tuple[_Value, ...]:
        if value.items is not None:
            return value.items
        place = f"{self.where}: step '{step}'"
        if value.parents:
            raise InputError(
                (
                    f"scatters over '{name}', whose length is known only when "
                    f"{value.parents[0]} has run"
                ),
                where=place,
                fix="plan the parts before and after it separately, each with its own inputs",
            )
        raise InputError(
            f"scatters over '{name}', for which no list is given",
            where=place,
            fix="give the input object: --inputs job.yml, or 'inputs: job.yml' in a set",
        )

    def _combined(
        self, lists: Sequence[tuple[_Value, ...]], method: str, step: str
    ) -> list[tuple[_Value, ...]]:
        if method == "dotproduct" and len({len(items) for items in lists}) > 1:
            widths = ", ".join(str(len(items)) for items in lists)
            raise InputError(
                f"scatters over lists of different lengths: {widths}",
                where=f"{self.where}: step '{step}'",
            )
        count = len(lists[0]) if method == "dotproduct" else math.prod(map(len, lists))
        if count + len(self.tasks) > MOST_TASKS:
            raise InputError(f"more than {MOST_TASKS} tasks", where=f"{self.where}: step '{step}'")
        return list(zip(*lists, strict=True) if method == "dotproduct" else product(*lists))

    def _task(
        self, tool: Json, parents: tuple[str, ...], name: str, requested: _Requirements
    ) -> str:
        while name in self.tasks:  # a step may have the name of a part of a scatter
            name += "_"
        step = _NUMBERS.sub("", name).rpartition(".")[2]
        kind = _take_last(str(tool.get("id", ""))).removesuffix(".cwl")
        kind = step if kind in ("", "run", "main") else kind
        resources = requested.of("ResourceRequirement")
        limit = _read_number(requested.of("ToolTimeLimit").get("timelimit"))
        cores = _find_least(resources, "cores")
        self.tasks[name] = Task(
            id=name,
            kind=kind,
            parents=parents,
            procs=max(1, math.ceil(cores)),
            memory_mib=_find_least(resources, "ram"),
            **timed(self.runtimes, (name, step, kind), None, limit),
        )
        if any(isinstance(value, str) and "$" in value for value in resources.values()):
            self.notes.add(f"does not know the resources of {kind}: they are an expression")
        return name


def _list_sources(link: Json, key: str = "source") -> list[str]:
    result = link.get(key) or []
    return [result] if isinstance(result, str) else list(result)


def _resolve_link(sources: Sequence[str], link: Json, value_of: Values) -> _Value:
    """Return the value of a link: of one source, of several merged, or a default."""
    if not sources:
        return _Value.constant(link.get("default"))
    values = [value_of[source] for source in sources]
    # linkMerge makes a list even of a single source
    if len(values) == 1 and "linkMerge" not in link:
        return values[0]
    if link.get("linkMerge") != "merge_flattened":
        return _Value.listed(values)
    if any(value.items is None and value.parents for value in values):  # a file, or a list of them
        return _Value(_list_all_parents(values))
    return _Value.listed(
        item for value in values for item in (value.items if value.items is not None else (value,))
    )


def _shape_outputs(values: Sequence[_Value], width: Sequence[int]) -> _Value:
    """Return outputs of a scatter as a list, or as nested lists for a nested cross product."""
    if len(width) == 1:
        return _Value.listed(values)
    inner = math.prod(width[1:])
    return _Value.listed(
        _shape_outputs(values[n * inner : (n + 1) * inner], width[1:]) for n in range(width[0])
    )


def _find_least(resources: Json, what: str) -> float:
    """Return the requested minimum, or the maximum if there is none; 0 if neither is a number."""
    return (
        _read_number(resources.get(f"{what}Min"))
        or _read_number(resources.get(f"{what}Max"))
        or 0.0
    )


def _read_number(value: object) -> float | None:
    """Return a number above 0; None if missing, or for an expression."""
    # a truth value is an int in Python, and no number in CWL
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < float("inf") else None

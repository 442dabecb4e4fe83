"""Pilot runs on recorded workflows: by how much they narrow the predicted run time of a set, and
how much of its work they take.

A set is planned without any record, its pilots are chosen as by ``vgrads plan --run-pilots``, their
recorded times are learned, and the set is predicted again. ``whole``: a pilot is a task of its kind
in the set, of the size that says most. ``reduced``: it is the recorded task whose input is nearest
to a tenth of the smallest, on the same node, as ``--calibrate`` proposes. Whether a task
could run alone is not recorded: all are taken as if they could.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from vgrads.api.plans.pilot_choice import (
    SHARE,
    choose_pilot_size,
    choose_pilots,
    count_kinds,
    distance,
)
from vgrads.api.plans.runtimes import (
    MIB,
    NOTHING,
    RunTimes,
    add_run_times,
    derive_kind,
    learn_run_times,
)
from vgrads.kernel.streams import stream
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.traces.task_record import TaskRecord
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import EXACT
from vgrads.workflows.task import UNSTATED, Task
from vgrads_studies.report import markdown_table
from vgrads_studies.runtimes.recorded_tasks import (
    LOCAL,
    SIZES,
    records,
    single_site,
    traces,
    wfformat,
    wfformat_runs,
    workflows,
)

_DRAWS = 4000
_NUMBER = re.compile(r"_(?:ID)?[0-9]+$")  # at the end of a recorded task's name


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotGain:
    """Sets of one workflow (one for each node): means of the width of the predicted interval of the
    total run time before and after the pilots (logarithm of the .9 over the .1 quantile), of their
    ratio, of the number of pilots, and of the share of the work that they took; the largest share;
    how many sets have a ratio of at most a half for at most a twentieth of the work; and in how
    many the recorded total is inside the interval before and after."""

    workflow: str
    pilots: str
    sets: int
    kinds: int
    tasks: int
    number: float
    before: float
    after: float
    ratio: float
    spent: float
    most_spent: float
    halved: int
    inside_before: int
    inside_after: int


def pilot_gains(folder: Path) -> list[PilotGain]:
    """Return the table; ``folder`` has ``nextflow/`` and ``workflows/wfformat/``."""
    nextflow = folder / "nextflow"
    results = []
    for name in workflows(nextflow):
        frames = traces(nextflow, name)
        full = {
            node: records(frame[frame.label == "test"], node, SIZES[0])
            for node, frame in frames.items()
        }
        every = {node: records(frame, node, SIZES[0]) for node, frame in frames.items()}
        results += [
            _row(name, "reduced", [(full[node], every[node]) for node in full if node != LOCAL]),
            _row(name, "whole", [(run, run) for run in full.values()]),
            _row(f"{name}, all sizes", "whole", [(run, run) for run in every.values()]),
        ]
    for path in wfformat_runs(folder):
        run = [replace(r, kind=_kind(r)) for r in wfformat(path)]
        results.append(_row(path.name.split(".")[0], "whole", [(run, run)]))
    return results


def _kind(record: TaskRecord) -> str:
    """Return the program; of a whole script the name of its task without its number."""
    return _NUMBER.sub("", record.task) if " " in record.kind else record.kind


def _row(
    name: str, pilots: str, sets: Sequence[tuple[list[TaskRecord], list[TaskRecord]]]
) -> PilotGain:
    gains = [_Case(run, rows, pilots == "reduced").result() for run, rows in sets]
    before, after = ([gain[name] for gain in gains] for name in ("before", "after"))
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    spent = [gain["spent"] for gain in gains]
    return PilotGain(
        workflow=name,
        pilots=pilots,
        sets=len(sets),
        kinds=len({r.kind for r in sets[0][0]}),
        tasks=round(fmean(len(run) for run, _ in sets)),
        number=round(fmean(gain["number"] for gain in gains), 1),
        before=round(fmean(before), 2),
        after=round(fmean(after), 2),
        ratio=round(fmean(ratios), 2),
        spent=round(fmean(spent), 4),
        most_spent=round(max(spent), 4),
        halved=sum(r <= 0.5 and s <= SHARE for r, s in zip(ratios, spent, strict=True)),
        inside_before=sum(gain["inside_before"] > 0 for gain in gains),
        inside_after=sum(gain["inside_after"] > 0 for gain in gains),
    )


class _Case:
    """One set of recorded tasks, and the rows of which its pilots are taken."""

    def __init__(
        self, run: Sequence[TaskRecord], rows: Sequence[TaskRecord], reduced: bool
    ) -> None:
        self._run, self._rows, self._reduced = run, rows, reduced
        self._set, self._catalog = _as_set(run), single_site(run[0].machine or "m", 4)

    def result(self) -> Mapping[str, float]:
        """Return the numbers of the set."""
        before, pilots = self._predicted(NOTHING), list(self._chosen())
        after = self._predicted(learn_run_times(learn(TaskHistory(), pilots)))
        real_s = sum(record.seconds for record in self._run)
        narrow, wide = (np.quantile(total, [0.1, 0.9]) for total in (after, before))
        return {
            "number": len(pilots),
            "before": float(np.log(wide[1] / wide[0])),
            "after": float(np.log(narrow[1] / narrow[0])),
            "spent": sum(pilot.seconds for pilot in pilots) / real_s,
            "inside_before": float(wide[0] <= real_s <= wide[1]),
            "inside_after": float(narrow[0] <= real_s <= narrow[1]),
        }

    def _predicted(self, run_times: RunTimes) -> NDArray[np.float64]:
        timed, _ = add_run_times(self._set, run_times, self._catalog)
        return _totals(timed)

    def _chosen(self) -> Iterator[TaskRecord]:
        """Choose by what is predicted without records, then take the recorded times."""
        timed, _ = add_run_times(self._set, NOTHING, self._catalog)
        every = count_kinds(timed, derive_kind)
        candidates = [
            kind.reduced() if self._reduced else replace(kind, pilot_s=kind.shortest_s)
            for kind in every.values()
        ]
        for kind in choose_pilots(candidates, every):
            sizes = [r.input_bytes or 0.0 for r in self._run if r.kind == kind.kind]
            aim = min(sizes) / 10 if self._reduced else choose_pilot_size(sizes)
            rows = [r for r in self._rows if r.kind == kind.kind]
            nearest = min(rows, key=lambda r: distance(r.input_bytes or 0.0, aim))
            yield replace(nearest, run="pilots", workflow="pilots")


def _as_set(run: Sequence[TaskRecord]) -> WorkflowSet:
    tasks: dict[str, list[Task]] = {}
    sizes: dict[str, dict[str, float]] = {}
    for n, record in enumerate(run):
        inputs = (f"in{n}",) if record.input_bytes else ()
        task = Task(id=f"t{n}", runtime_s=UNSTATED, kind=record.kind, inputs=inputs)
        tasks.setdefault(record.run, []).append(task)
        sizes.setdefault(record.run, {})[f"in{n}"] = (record.input_bytes or 0.0) / MIB
    flows = tuple(
        make_workflow(f"w{n}", own, sizes[name]) for n, (name, own) in enumerate(tasks.items())
    )
    return WorkflowSet(name="recorded", workflows=flows, deadline_s=1e9, needed=len(flows))


def _totals(timed: WorkflowSet) -> NDArray[np.float64]:
    """Draw the total run time of a set, with the errors that its tasks share."""
    draws, kinds = stream(0, "totals"), dict[str, NDArray[np.float64]]()
    site, total = draws.standard_normal(_DRAWS), np.zeros(_DRAWS)
    for workflow in timed.workflows:
        flow = draws.standard_normal(_DRAWS)
        for task in workflow.tasks.values():
            spread = task.spread or EXACT
            kind = kinds.setdefault(task.kind, stream(0, "kind", task.kind).standard_normal(_DRAWS))
            own = draws.standard_normal(_DRAWS)
            error = spread.own * own + spread.kind * kind
            total += task.runtime_s * np.exp(error + spread.workflow * flow + spread.site * site)
    return total


def text(rows: Sequence[PilotGain]) -> str:
    """Return the table."""
    head = "workflow,pilots,sets,kinds,tasks,run,before,after,ratio,of work,most,halved,inside"
    cells = [
        (
            *(row.workflow, row.pilots, str(row.sets), str(row.kinds), str(row.tasks)),
            *(f"{row.number:.1f}", f"{row.before:.2f}", f"{row.after:.2f}", f"{row.ratio:.2f}"),
            *(f"{row.spent:.1%}", f"{row.most_spent:.1%}", f"{row.halved}/{row.sets}"),
            f"{row.inside_before} → {row.inside_after}",
        )
        for row in rows
    ]
    return markdown_table(tuple(head.split(",")), cells)

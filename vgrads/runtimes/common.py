"""What all kinds share, estimated from a bounded number of them, and stored as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, sqrt
from typing import Any

import numpy as np

from vgrads.runtimes.laws import DEPARTURE, EXPONENT, NOISE, Array, Laws
from vgrads.runtimes.levels import Levels
from vgrads.runtimes.machines import (
    SCORED_SD,
    UNSCORED_SD,
    Scores,
    check_scores,
    compute_offsets,
    reference,
)
from vgrads.runtimes.pooling import NOTHING, Pooled, Shared, Source, pool
from vgrads.runtimes.samples import STEPS, derive_source, memories, times
from vgrads.runtimes.task_history import KindRecords
from vgrads.runtimes.tools import Tools, level_of, list_names, of_kinds
from vgrads.runtimes.tools import from_json as tools_from_json
from vgrads.runtimes.tools import to_json as tools_to_json
from vgrads.traces.task_record import TaskRecord

Json = dict[str, Any]
NO_MEMORY = Pooled(NOTHING.shared, {}, float(np.log(2**29)))
"""Before any data half a GiB."""
MOST_KINDS = 2000
"""Kinds from which levels are estimated: those with most records, and of the others some evenly
spaced in order of their names."""
_RICHEST = 200
VERSION = f"2 {len(EXPONENT)} {len(NOISE)} {DEPARTURE.sum():.3f} {NOISE.sum():.3f}"
"""Of the estimates: those of another version are made anew."""


@dataclass(frozen=True, eq=False)
class Common:
    """What all kinds share, estimated from all records: ``reference`` is the machine of speed 1 (""
    where no machine is named); ``where`` the log scores of machines relative to it, ``sources`` the
    records of each source by machine, ``tools`` the run times of steps by the tool that they use.
    """

    reference: str = ""
    times: Pooled = NOTHING
    memory: Pooled = NO_MEMORY
    where: Mapping[str, Array] = field(default_factory=dict)
    machines: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tools: Tools = field(default_factory=dict)

    def shares(self, machine: str) -> dict[str, float]:
        """Return how probable it is that a task of a kind without records is of each source: as
        many as at the machine, and one more of a workflow."""
        counts = Counter(self.sources.get(machine, {}))
        counts[STEPS] += 1
        return {name: count / sum(counts.values()) for name, count in counts.items()}

    def is_of_jobs(self, machine: str) -> bool:
        """Return True where most records of a machine are jobs."""
        return self.shares(machine)[STEPS] < 0.5


def estimate(records: KindRecords, scores: Mapping[str, Scores] | None = None) -> Common:
    """Estimate what all kinds share."""
    payload = check_scores(scores or {})
    rows = _select_some(records)
    every = [record for some in rows.values() for record in some]
    base = reference(every, payload)
    names = sorted({record.machine for record in every} | set(payload))
    where = compute_offsets(names, base, payload)
    scored = frozenset(payload) if base in payload else frozenset()
    pooled = pool([times(kind, some, where) for kind, some in rows.items()], base, scored)
    peaks = [sample for kind, some in rows.items() if (sample := memories(kind, some))]
    sources: dict[str, Counter[str]] = {name: Counter() for name in names}
    for some in rows.values():
        source = derive_source(some)
        for record in some:
            sources[record.machine][source] += 1
    return Common(
        reference=base,
        times=pooled,
        memory=pool(peaks, "", frozenset(), NO_MEMORY),
        where=where,
        machines={
            name: _read_machine(name, offset, name in scored, pooled.shared)
            for name, offset in where.items()
        },
        sources=sources,
        tools=_list_tools(rows),
    )


def pool_tools(records: KindRecords) -> Tools:
    """Return the run times of steps by the tool that they use."""
    return _list_tools(_select_some(records))


def _list_tools(rows: Mapping[str, Sequence[TaskRecord]]) -> Tools:
    return of_kinds(
        (list_names(kind, some[0].tool), level_of(some))
        for kind, some in rows.items()
        if derive_source(some) == STEPS
    )


def _select_some(records: KindRecords) -> dict[str, Sequence[TaskRecord]]:
    names = sorted(records.kinds, key=lambda kind: (-records.count(kind), kind))
    rest = sorted(names[_RICHEST:])
    step = max(1, -(-len(rest) // MOST_KINDS))
    return {kind: records.of(kind) for kind in sorted([*names[:_RICHEST], *rest[::step]])}


def _read_machine(name: str, offset: Array, scored: bool, shared: Shared) -> tuple[float, float]:
    """Return an entry of ``RuntimeModel.machines``; the departure of a machine with records was
    solved for together with the weights."""
    own, sd = shared.machines.get(name, (0.0, SCORED_SD if scored else UNSCORED_SD))
    unsure = 0.0 if name in shared.machines else float(offset @ shared.weights_cov @ offset)
    return own - float(offset @ shared.weights), hypot(sd, sqrt(unsure))


def to_json(common: Common) -> str:
    """Return a document from which :func:`from_json` restores exactly this."""
    document = {
        "version": VERSION,
        "reference": common.reference,
        "times": _describe_pooled(common.times),
        "memory": _describe_pooled(common.memory),
        "where": {name: list(offset) for name, offset in common.where.items()},
        "machines": dict(common.machines),
        "sources": {name: dict(counts) for name, counts in common.sources.items()},
        "tools": tools_to_json(common.tools),
    }
    return json.dumps(document, allow_nan=False)


def from_json(text: str) -> Common | None:
    """Read the output of :func:`to_json`; None for that of another version."""
    document: Json = json.loads(text)
    if document.get("version") != VERSION:
        return None
    return Common(
        reference=document["reference"],
        times=_read_pooled(document["times"]),
        memory=_read_pooled(document["memory"]),
        where={name: np.array(offset) for name, offset in document["where"].items()},
        machines={name: (shift, sd) for name, (shift, sd) in document["machines"].items()},
        sources=document["sources"],
        tools=tools_from_json(document["tools"]),
    )


def _describe_pooled(pooled: Pooled) -> Json:
    shared = pooled.shared
    return {
        "mean": pooled.mean,
        "weights": shared.weights.tolist(),
        "weights_cov": shared.weights_cov.tolist(),
        "machines": shared.machines,
        # JSON has no keys of two parts: rows of workflow, run and shift
        "runs": [[*run, shift] for run, shift in shared.runs.items()],
        "run_sd": shared.run_sd,
        "sources": {
            name: {
                "levels": [source.levels.mean, source.levels.weights, source.levels.kinds],
                "points": source.levels.points,
                "shapes": source.laws.shapes.tolist(),
                "noises": source.laws.noises.tolist(),
                "strays": source.strays,
            }
            for name, source in pooled.sources.items()
        },
    }


def _read_pooled(document: Json) -> Pooled:
    shared = Shared(
        weights=np.array(document["weights"]),
        weights_cov=np.array(document["weights_cov"]),
        machines={name: (shift, sd) for name, (shift, sd) in document["machines"].items()},
        runs={(flow, run): shift for flow, run, shift in document["runs"]},
        run_sd=document["run_sd"],
    )
    sources = {}
    for name, row in document["sources"].items():
        mean, weights, kinds = row["levels"]
        sources[name] = Source(
            Levels(mean, tuple(weights), kinds, tuple(row["points"])),
            Laws(np.array(row["shapes"]), np.array(row["noises"])),
            row["strays"],
        )
    return Pooled(shared, sources, document["mean"])

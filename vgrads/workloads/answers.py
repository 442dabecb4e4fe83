"""Bags of tasks: fits of histories, workloads drawn as logs, metrics under scheduling policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.api.queues.history_files import open_history
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import write_text
from vgrads.kernel.units import format_count
from vgrads.kernel.values import field_values
from vgrads.traces.gwf import write_gwf
from vgrads.traces.log_queue import LogQueue
from vgrads.traces.swf import write_swf
from vgrads.workloads.architectures import FLOCKING, Algorithm, simulate
from vgrads.workloads.extract import extract_bags
from vgrads.workloads.fit import Fitted, fit_bags, fit_users
from vgrads.workloads.metrics import by_size, figures
from vgrads.workloads.model import Target, draw_bags
from vgrads.workloads.models import select_model
from vgrads.workloads.scheduling import EARLIEST, SCHEDULINGS, scheduling_named
from vgrads.workloads.selection import SELECTIONS
from vgrads.workloads.system import System, paper_system
from vgrads.workloads.workload import BagColumns

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class FittedHistory:
    """The bags of a history and their fits."""

    name: str
    bags: BagColumns
    fits: Mapping[str, Fitted]
    users: tuple[float, int]
    warnings: tuple[str, ...]


def fit_history(history: Path, queue: LogQueue, gap_s: float | None) -> FittedHistory:
    """Return the bags of a history (None: of all its queues) with all fits. Raise InputError with
    the characteristic that cannot be fitted."""
    log = open_history(history).only_queue(queue)
    bags = extract_bags(log, gap_s)
    try:
        return FittedHistory(
            name=log.name,
            bags=bags,
            fits=fit_bags(bags, log.local_s(bags.submit_s)),
            users=fit_users(bags),
            warnings=log.warnings,
        )
    except InputError as error:
        raise error.within(str(history)) from error


def fits_json(fitted: FittedHistory) -> Json:
    """``vgrads bags fit --json``."""
    sizes = fitted.bags.sizes
    return {
        "bags": len(fitted.bags),
        "tasks": int(sizes.sum()),
        "of_two_or_more": int((sizes >= 2).sum()),
        "users": {"zipf": fitted.users[0], "count": fitted.users[1]},
        "characteristics": {
            name: {
                "values": len(fit.values),
                "fits": [
                    {
                        "family": f.distribution.family,
                        "parameters": list(f.distribution.parameters),
                        "d": f.d,
                    }
                    for f in fit.fits
                ],
            }
            for name, fit in fitted.fits.items()
        },
    }


def generate(out: Path, model: str, target: tuple[float, int, float], seed: int) -> Json:
    """Draw a workload for (load, processors, days) and write it; ``model``: a row of the table, or
    a fit as FILE.json."""
    load, procs, days = target
    writers = {".swf": write_swf, ".gwf": write_gwf}
    if out.suffix not in writers:
        raise InputError("does not end in .swf or .gwf", where=str(out))
    bags = draw_bags(select_model(model), Target(load=load, capacity=float(procs), days=days), seed)
    name = " ".join(model.split())
    note = (
        f"model {name}, load {load}, {format_count(procs, 'processor')}, "
        f"{format_count(f'{days:g}', 'day')}, seed {seed}; nothing has run: waits are 0"
    )
    write_text(out, writers[out.suffix](bags.as_log(f"{name} bags"), note))
    return {
        "file": str(out),
        "bags": len(bags),
        "tasks": len(bags.runtime_s),
        "work_s": float(bags.runtime_s.sum()),
    }


def simulate_workload(
    names: tuple[str, str, str],
    model: str,
    target: tuple[float, float],
    seed: int,
    system: System | None = None,
) -> Json:
    """Return the metrics of a drawn workload under (selection, scheduling, architecture);
    ``system``: the paper's for None."""
    system = system or paper_system()
    load, days = target
    required = Target(load=load, capacity=system.capacity, clusters=len(system.procs), days=days)
    bags = draw_bags(select_model(model), required, seed)
    how = Algorithm(selection=names[0], scheduling=names[1], architecture=names[2])
    return {
        "load": load,
        "bags": len(bags),
        "tasks": len(bags.runtime_s),
        "processors": int(system.procs.sum()),
        **_describe_result(bags, system, how),
    }


def _describe_result(bags: BagColumns, system: System, how: Algorithm) -> Json:
    """Return the metrics of one simulation."""
    outcome = simulate(bags, system, how)
    classes = [
        {
            "from": size_class.low,
            "to": size_class.high,
            "makespan_s": size_class.makespan_s,
            "length": size_class.length,
        }
        for size_class in by_size(outcome)
    ]
    return {
        "selection": how.selection,
        "scheduling": how.scheduling,
        "architecture": how.architecture,
        **field_values(figures(outcome)),
        "by_size": classes,
    }


def play_history(
    history: tuple[Path, LogQueue],
    names: tuple[str | None, str | None, str],
    system: System | None,
    gap_s: float | None,
    seed: int,
) -> Json:
    """Return the metrics of the bags of a (history, queue) under every policy that is not named,
    the lowest makespan first.

    Run times are taken as those of a processor of speed 1. ``load``: work over the capacity of the
    system from the first bag to the last; None where they arrive at once. Raises InputError where
    the policy or the architecture is impossible.
    """
    if system is None:
        raise InputError(
            "a history needs a system to be simulated on",
            where="--clusters",
            fix="write 128x1.0,64x1.5",
        )
    file, queue = history
    log = open_history(file).only_queue(queue)
    bags = extract_bags(log, gap_s, seed)
    rows = [_describe_result(bags, system, how) for how in _list_algorithms(names, system)]
    span_s = float(bags.submit_s[-1] - bags.submit_s[0])
    return {
        "history": str(file),
        "load": float(bags.runtime_s.sum()) / (system.capacity * span_s) if span_s > 0 else None,
        "bags": len(bags),
        "tasks": len(bags.runtime_s),
        "parallel": int((log.started & (log.run_s > 0) & (log.procs > 1)).sum()),
        "processors": int(system.procs.sum()),
        "clusters": [
            {"procs": int(n), "speed": float(v)}
            for n, v in zip(system.procs, system.speed, strict=True)
        ],
        "policies": sorted(rows, key=lambda row: (row["makespan_s"], row["length"])),
    }


def _list_algorithms(names: tuple[str | None, str | None, str], system: System) -> list[Algorithm]:
    """Return every requested pair of policies, each once: ECT makes selection irrelevant, and RR is
    WQR-1."""
    selection, scheduling, architecture = names
    if architecture == "sep-c" and len(system.procs) > 1:
        raise InputError(
            "a history does not record the cluster of a bag",
            where="--architecture sep-c",
            fix="use csp or fcondor",
        )
    flock = architecture == "fcondor"
    selections = [selection] if selection else ["S-T"] if flock else list(SELECTIONS)
    several = FLOCKING if flock else [name for name in SCHEDULINGS if name != "WQR-1"]
    return [
        Algorithm(selection=name, scheduling=other, architecture=architecture)
        for other in ([scheduling] if scheduling else several)
        for name in (selections if scheduling_named(other).place != EARLIEST else selections[:1])
    ]


def policies() -> Json:
    """``vgrads bags policies --json``."""
    return {
        "selection": [
            {"name": name, "about": selection.about} for name, selection in SELECTIONS.items()
        ],
        "scheduling": [
            {
                "name": name,
                "resources": scheduling.knows[0],
                "tasks": scheduling.knows[1],
                "replicas": scheduling.replicas,
                "about": scheduling.about,
            }
            for name, scheduling in SCHEDULINGS.items()
        ],
    }

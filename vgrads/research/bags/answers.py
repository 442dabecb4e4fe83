"""Bags of tasks: fits of histories, workloads drawn as logs, outcomes under policies as figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vgrads.api.queues.histories import open_history
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import write_text
from vgrads.research.bags.architectures import FLOCKING, Algorithm, simulate
from vgrads.research.bags.extract import extract_bags
from vgrads.research.bags.fit import Fitted, fit_bags, fit_users
from vgrads.research.bags.metrics import by_size, figures
from vgrads.research.bags.model import Target, draw_bags
from vgrads.research.bags.models import model_given
from vgrads.research.bags.scheduling import EARLIEST, SCHEDULINGS, scheduling_named
from vgrads.research.bags.selection import SELECTIONS
from vgrads.research.bags.system import System, paper_system
from vgrads.research.bags.workload import Bags
from vgrads.traces.gwf import write_gwf
from vgrads.traces.records import LogQueue
from vgrads.traces.swf import write_swf

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class FittedHistory:
    """The bags of a history and what fits them."""

    name: str
    bags: Bags
    fits: Mapping[str, Fitted]
    users: tuple[float, int]
    warnings: tuple[str, ...]


def fit_history(history: Path, queue: LogQueue, gap_s: float | None) -> FittedHistory:
    """Bags of a history (None: of all its queues) with all fits; InputError names what cannot be
    fitted."""
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


def fits_json(found: FittedHistory) -> Json:
    """``vgrads bags fit --json``."""
    sizes = found.bags.sizes
    return {
        "bags": len(found.bags),
        "tasks": int(sizes.sum()),
        "of_two_or_more": int((sizes >= 2).sum()),
        "users": {"zipf": found.users[0], "count": found.users[1]},
        "characteristics": {
            name: {
                "values": len(one.values),
                "fits": [
                    {
                        "family": f.distribution.family,
                        "parameters": list(f.distribution.parameters),
                        "d": f.d,
                    }
                    for f in one.fits
                ],
            }
            for name, one in found.fits.items()
        },
    }


def generate(out: Path, model: str, target: tuple[float, int, float], seed: int) -> Json:
    """Draw a workload for (load, processors, days) and write it; ``model``: a row of the table, or
    a fit as FILE.json."""
    load, procs, days = target
    writers = {".swf": write_swf, ".gwf": write_gwf}
    if out.suffix not in writers:
        raise InputError("ends neither in .swf nor in .gwf", where=str(out))
    bags = draw_bags(model_given(model), Target(load=load, capacity=float(procs), days=days), seed)
    name = " ".join(model.split())
    note = (
        f"model {name}, load {load}, {procs} processors, {days} days, seed {seed}; nothing has "
        "run: waits are 0"
    )
    write_text(out, writers[out.suffix](bags.as_log(f"{name} bags"), note))
    return {
        "file": str(out),
        "bags": len(bags),
        "tasks": len(bags.runtime_s),
        "work_s": float(bags.runtime_s.sum()),
    }


def play(
    names: tuple[str, str, str],
    model: str,
    target: tuple[float, float],
    seed: int,
    system: System | None = None,
) -> Json:
    """Figures of a drawn workload under (selection, scheduling, architecture); ``system``: the
    paper's for None."""
    system = system or paper_system()
    load, days = target
    wanted = Target(load=load, capacity=system.capacity, clusters=len(system.procs), days=days)
    bags = draw_bags(model_given(model), wanted, seed)
    how = Algorithm(selection=names[0], scheduling=names[1], architecture=names[2])
    return {
        "load": load,
        "bags": len(bags),
        "tasks": len(bags.runtime_s),
        "processors": int(system.procs.sum()),
        **_told(bags, system, how),
    }


def _told(bags: Bags, system: System, how: Algorithm) -> Json:
    """The figures of one simulation."""
    outcome = simulate(bags, system, how)
    classes = [
        {"from": one.low, "to": one.high, "makespan_s": one.makespan_s, "length": one.length}
        for one in by_size(outcome)
    ]
    return {
        "selection": how.selection,
        "scheduling": how.scheduling,
        "architecture": how.architecture,
        **asdict(figures(outcome)),
        "by_size": classes,
    }


def play_history(
    history: tuple[Path, LogQueue],
    names: tuple[str | None, str | None, str],
    system: System | None,
    gap_s: float | None,
    seed: int,
) -> Json:
    """Figures of the bags of a (history, queue) under every policy that is not named, the lowest
    makespan first.

    Run times are taken as those of a processor of speed 1. ``load``: work over what the system can
    do from the first bag to the last; None where they come at once. InputError where the policy or
    the architecture cannot be.
    """
    if system is None:
        raise InputError(
            "a history needs a system to be played on",
            where="--clusters",
            fix="write 128x1.0,64x1.5",
        )
    file, queue = history
    log = open_history(file).only_queue(queue)
    bags = extract_bags(log, gap_s, seed)
    rows = [_told(bags, system, how) for how in _algorithms(names, system)]
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


def _algorithms(names: tuple[str | None, str | None, str], system: System) -> list[Algorithm]:
    """Every pair of policies that is meant, each once: ECT leaves nothing to select, and RR is
    WQR-1."""
    selection, scheduling, architecture = names
    if architecture == "sep-c" and len(system.procs) > 1:
        raise InputError(
            "a history does not say which cluster a bag belongs to",
            where="--architecture sep-c",
            fix="csp or fcondor",
        )
    flock = architecture == "fcondor"
    selections = [selection] if selection else ["S-T"] if flock else list(SELECTIONS)
    several = FLOCKING if flock else [name for name in SCHEDULINGS if name != "WQR-1"]
    return [
        Algorithm(selection=one, scheduling=other, architecture=architecture)
        for other in ([scheduling] if scheduling else several)
        for one in (selections if scheduling_named(other).place != EARLIEST else selections[:1])
    ]


def policies() -> Json:
    """``vgrads bags policies --json``."""
    return {
        "selection": [{"name": name, "about": one.about} for name, one in SELECTIONS.items()],
        "scheduling": [
            {
                "name": name,
                "resources": one.knows[0],
                "tasks": one.knows[1],
                "copies": one.copies,
                "about": one.about,
            }
            for name, one in SCHEDULINGS.items()
        ],
    }

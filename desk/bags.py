"""Bags of tasks: fits of histories, workloads drawn as logs, outcomes under policies as figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bags.architectures import Algorithm, simulate
from bags.extract import extract_bags
from bags.fit import Fitted, fit_bags, fit_users
from bags.metrics import by_size, figures
from bags.model import Target, draw_bags, model_named
from bags.scheduling import SCHEDULINGS
from bags.selection import SELECTIONS
from bags.system import paper_system
from bags.workload import Bags
from desk.histories import open_history
from kernel.errors import InputError
from kernel.files import write_text
from traces.gwf import write_gwf
from traces.swf import write_swf

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class FittedHistory:
    """The bags of a history and what fits them."""

    name: str
    bags: Bags
    fits: Mapping[str, Fitted]
    users: tuple[float, int]


def fit_history(history: Path, queue: str | int | None, gap_s: float) -> FittedHistory:
    """Bags of a history (None: of all its queues) with all fits; InputError names what cannot be fitted."""
    log = open_history(history).only_queue(queue)
    bags = extract_bags(log, gap_s)
    try:
        return FittedHistory(
            name=log.name, bags=bags, fits=fit_bags(bags, log.unix_start_s), users=fit_users(bags)
        )
    except InputError as error:
        raise error.within(str(history)) from error


def fits_json(found: FittedHistory) -> Json:
    """``vgrads bags fit --json``."""
    sizes = found.bags.sizes
    return {
        "bags": len(found.bags), "tasks": int(sizes.sum()), "of_two_or_more": int((sizes >= 2).sum()),
        "users": {"zipf": found.users[0], "count": found.users[1]},
        "characteristics": {
            name: {
                "values": len(one.values),
                "fits": [
                    {"family": f.distribution.family, "parameters": list(f.distribution.parameters), "d": f.d} for f in one.fits
                ],
            }
            for name, one in found.fits.items()
        },
    }  # fmt: skip


def generate(out: Path, model: str, target: tuple[float, int, float], seed: int) -> Json:
    """Draw a workload for (load, processors, days) and write it."""
    load, procs, days = target
    bags = draw_bags(model_named(model), Target(load=load, capacity=float(procs), days=days), seed)
    log = bags.as_log(f"{model} bags")
    note = f"model {model}, load {load}, {procs} processors, {days} days, seed {seed}; nothing has run: waits are 0"
    writers = {".swf": write_swf, ".gwf": write_gwf}
    if out.suffix not in writers:
        raise InputError("ends neither in .swf nor in .gwf", where=str(out))
    write_text(out, writers[out.suffix](log, note))
    return {
        "file": str(out),
        "bags": len(bags),
        "tasks": len(bags.runtime_s),
        "work_s": float(bags.runtime_s.sum()),
    }


def play(names: tuple[str, str, str], model: str, target: tuple[float, float], seed: int) -> Json:
    """Figures of a drawn workload under (selection, scheduling, architecture)."""
    system = paper_system()
    load, days = target
    wanted = Target(load=load, capacity=system.capacity, clusters=len(system.procs), days=days)
    bags = draw_bags(model_named(model), wanted, seed)
    how = Algorithm(selection=names[0], scheduling=names[1], architecture=names[2])
    outcome = simulate(bags, system, how)
    classes = [
        {"from": low, "makespan_s": span, "length": length}
        for low, span, length in by_size(outcome)
    ]
    return {
        "selection": names[0], "scheduling": names[1], "architecture": names[2], "load": load, "bags": len(bags),
        "tasks": len(bags.runtime_s), "processors": int(system.procs.sum()), **asdict(figures(outcome)), "by_size": classes,
    }  # fmt: skip


def policies() -> Json:
    """``vgrads bags policies --json``."""
    return {
        "selection": [{"name": name, "about": one.about} for name, one in SELECTIONS.items()],
        "scheduling": [
            {"name": name, "resources": one.knows[0], "tasks": one.knows[1], "copies": one.copies, "about": _about(one.rank.__doc__)}
            for name, one in SCHEDULINGS.items()
        ],
    }  # fmt: skip


def _about(text: str | None) -> str:
    return (text or "").rstrip(".").lower()

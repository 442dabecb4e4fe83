"""Ensembles of the Cloud Workflow Simulator: of twenty equal workflows as many as a deadline and a
budget allow.

    python benchmarks/bench_ensembles.py [--every] [--single] [--cells CyberShake]
    python benchmarks/bench_ensembles.py --other Inspiral_30.xml Sipht_30.xml [--deadlines 2 6]
    [--budgets .5 1]

One site of virtual machines of one core at $1 for each started hour, ready 120 s after they are
asked for, as many as are wanted. Slots are asked for as ``vgrads plan`` does, some machines wide
where a workflow needs that to be in time; ``--single``: each machine is a slot of its own. The
planner is asked for 20 of 20; what it places whole, within deadline and budget, counts. With
``--every`` it is asked for fewer too, from 20 down to the first number that it promises. Each plan
is checked, then carried out once by the core (``tests/planner/plan_judge.py``): the number done and
the money are those of the execution. ``CWS`` is the best of DPDS, WADPDS and SPSS in the simulator
of 2016, which knows neither transfers nor failures here; ``room`` is what the hours paid for would
hold without any gap.

Its workflows stand in ``../shared/traces/workflows/cws``: ``TASK`` and ``EDGE`` lines, read here.
``--other``: files of ``../shared/traces/workflows/dax``, with deadlines as multiples of the
critical path (behind the boot) and budgets as multiples of the whole work.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.planner.plan_judge import Futures, simulate
from vgrads.api.plans.planning import GridSnapshot, take_snapshot
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.kernel.files import read_text
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Catalog, NodeType, Site
from vgrads.vgrid.offers import Knowledge, OfferRequest, offer_slots
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

WORKFLOWS = Path(__file__).resolve().parents[2] / "shared" / "traces" / "workflows"
COUNT, BOOT_S = 20, 120.0
MOST_VMS = 200


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One question: workflow, budget, deadline; the best of the peer, and what is aimed at."""

    file: str
    usd: float
    deadline_s: float
    peer: int | None = None
    aim: int | None = None


CELLS = (
    Cell(file="CyberShake_100.dag", usd=10, deadline_s=4_654, peer=6, aim=10),
    Cell(file="CyberShake_100.dag", usd=10, deadline_s=8_864, peer=8, aim=10),
    Cell(file="CyberShake_100.dag", usd=20, deadline_s=4_654, peer=13, aim=20),
    Cell(file="CyberShake_100.dag", usd=20, deadline_s=8_864, peer=18, aim=20),
    Cell(file="Montage_1000.dag.gz", usd=42, deadline_s=5_760, peer=9, aim=12),
    Cell(file="Montage_1000.dag.gz", usd=80, deadline_s=5_760, peer=18, aim=20),
    Cell(file="Montage_1000.dag.gz", usd=42, deadline_s=10_970, peer=10, aim=12),
    Cell(file="Montage_1000.dag.gz", usd=80, deadline_s=10_970, peer=20, aim=20),
)


def read_cws(path: Path) -> Workflow:
    """A workflow as the simulator writes it: ``TASK id namespace::name:version seconds``, ``EDGE
    parent child``."""
    parents: dict[str, list[str]] = defaultdict(list)
    lengths: dict[str, float] = {}
    for line in read_text(path).splitlines():
        words = line.split()
        if words[:1] == ["TASK"]:
            lengths[words[1]] = float(words[3])
        elif words[:1] == ["EDGE"]:
            parents[words[2]].append(words[1])
    tasks = [
        Task(id=name, runtime_s=s, parents=tuple(parents[name])) for name, s in lengths.items()
    ]
    return make_workflow(path.name.partition(".")[0], tasks)


def shape_of(file: str) -> Workflow:
    if ".dag" in file:
        return read_cws(WORKFLOWS / "cws" / file)
    return load_workflow(WORKFLOWS / "dax" / file)


def work_s(shape: Workflow) -> float:
    """Processor-seconds of one workflow."""
    return sum(task.runtime_s * task.procs for task in shape.tasks.values())


def other_cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Questions about generated workflows, from short of time and money to neither."""
    for file in options.other:
        shape = shape_of(file)
        for factor in options.deadlines:
            for share in options.budgets:
                usd = math.ceil(share * COUNT * work_s(shape) / 3600.0)
                deadline_s = BOOT_S + factor * shape.critical_path_s()
                yield Cell(file=file, usd=usd, deadline_s=round(deadline_s))


def snapshot_of(shape: Workflow, cell: Cell, needed: int, single: bool) -> Snapshot:
    """Virtual machines of one core, in slots as ``vgrads plan`` asks for them; ``single``: each a
    slot of its own."""
    workflow_set = WorkflowSet(
        name=shape.name,
        workflows=tuple(shape.renamed(f"w{n:02}") for n in range(COUNT)),
        deadline_s=cell.deadline_s,
        needed=needed,
        budget_usd=cell.usd,
    )
    node = NodeType(cores=1, price_usd_per_hour=1.0)
    site = Site(
        name="cloud", kind="cloud", procs=MOST_VMS, nodes=(node,), boot_s=BOOT_S, boot_spread=0.0
    )
    catalog = Catalog(sites=(site,), links={})
    if single:
        request = OfferRequest(procs=1, count=MOST_VMS, until_s=cell.deadline_s)
        return Snapshot(workflow_set=workflow_set, slots=offer_slots(catalog, Knowledge(), request))
    return take_snapshot(
        workflow_set, GridSnapshot(catalog=catalog, logs={}, instants={}, forecasts={}), 0
    )


def carried_out(snapshot: Snapshot, plan: Plan) -> tuple[int, float]:
    """Workflows done by the deadline and dollars paid, by the core; nothing here is left to
    chance."""
    plan.check(snapshot)
    if not plan.placements:
        return 0, 0.0
    simulated = simulate(make_execution(plan, snapshot), Futures(snapshot, plan, 1)[0])
    assert len(simulated.done_s) == plan.scheduled, (
        f"{len(simulated.done_s)} of {plan.scheduled} are done"
    )
    within = simulated.usd <= (snapshot.workflow_set.budget_usd or 0.0) + 1e-9
    return (len(simulated.done_s) if within else 0), simulated.usd


def ask(cell: Cell, options: argparse.Namespace) -> str:
    """A row of the table."""
    shape = shape_of(cell.file)
    snapshot = snapshot_of(shape, cell, COUNT, options.single)
    begun = time.process_time()
    plan = make_plan(snapshot, Options(policy=options.policy))
    seconds = time.process_time() - begun
    done, usd = carried_out(snapshot, plan)
    every = best_of_fewer(snapshot, done, options) if options.every else "–"
    room = min(COUNT, int(cell.usd * 3600.0 / work_s(shape)))
    return (
        f"| {cell.file.partition('.')[0]} | {cell.usd:.0f} | {cell.deadline_s:,.0f} | "
        f"{done} | {every} | {cell.peer or '–'} | "
        f"{cell.aim or '–'} | {room} | {plan.promise.probability:.3f} | {usd:.2f} | "
        f"{sum(use.slot.nodes for use in plan.uses)} | {seconds:.2f} |"
    )


def best_of_fewer(snapshot: Snapshot, least: int, options: argparse.Namespace) -> str:
    """The largest number that is promised where that number is asked for."""
    for needed in range(COUNT, least, -1):
        fewer = replace(snapshot, workflow_set=replace(snapshot.workflow_set, needed=needed))
        plan = make_plan(fewer, Options(policy=options.policy))
        done, _ = carried_out(fewer, plan)
        if plan.feasible and done >= needed:
            return str(done)
    return str(least)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", default="", help="only those whose file name begins so")
    parser.add_argument("--every", action="store_true", help="ask for fewer than 20 too")
    parser.add_argument("--single", action="store_true", help="every machine a slot of its own")
    parser.add_argument("--policy", default="vgrads")
    parser.add_argument(
        "--other", nargs="*", default=(), help="DAX files instead of the simulator's"
    )
    parser.add_argument(
        "--deadlines", nargs="*", type=float, default=(2.0, 6.0), help="× critical path"
    )
    parser.add_argument("--budgets", nargs="*", type=float, default=(0.5, 1.2), help="× all work")
    options = parser.parse_args()
    print(
        "| ensemble | budget $ | deadline s | done | asked for fewer | CWS | aim | room | "
        "promise | paid $ | VMs | CPU s |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |")
    for cell in tuple(other_cells(options)) if options.other else CELLS:
        if cell.file.startswith(options.cells):
            print(ask(cell, options), flush=True)


if __name__ == "__main__":
    main()

"""Plans of very many tasks, carried out in virtual time: seconds and memory.

    python benchmarks/bench_virtual.py [--tasks 100000] [--mixed 20000]

The first plan has one replica of each task, and nothing fails. The second has replicas of every
third task, slots and tasks that fail, and releases early what the promise does not need. Wall-clock
seconds, and in parentheses CPU seconds, which other programs disturb less. Memory is the growth of
the process's peak beyond what a small plan takes: loading the compiler takes as much for any plan.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from dataclasses import replace

from vgrads.drivers.simulated import SimulatedCloud, SiteBehaviour
from vgrads.execmgr.core.execution_plan import ExecutionPlan, make_execution
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.execmgr.core.states import RunState
from vgrads.execmgr.engines.simulated import FailureModel, SimulatedEngine
from vgrads.execmgr.runner import Runner, RunnerSetup
from vgrads.kernel.clock import SimClock
from vgrads.planner.make import make_plan
from vgrads.planner.snapshot import Snapshot
from vgrads.planner.uses import derive_slot_uses
from vgrads.simulator.cloud import CloudRegion
from vgrads.vgrid.slot import Slot, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

SMALL = 2000
TREE = 100
"""Tasks of one workflow."""
LATER_S = 40.0
"""Planned delay of a second replica."""


def trees(count: int) -> WorkflowSet:
    """Workflows of a hundred tasks, each a binary tree."""
    tasks = [
        Task(id=f"t{n}", runtime_s=10.0 + n % 7, parents=(f"t{(n - 1) // 2}",) if n else ())
        for n in range(TREE)
    ]
    tree = make_workflow("w", tasks)
    workflows = tuple(tree.renamed(f"w{n}") for n in range(count // TREE))
    return WorkflowSet(name="virtual", workflows=workflows, deadline_s=1e5, needed=len(workflows))


def offers(count: int, sites: int, procs: int) -> tuple[Slot, ...]:
    """Slots that are there at once, over a number of sites."""
    return tuple(
        Slot(
            id=f"s{n}",
            site=f"s{n % sites}",
            queue="",
            kind="cloud",
            procs=procs,
            curve=make_certain_curve(1.0),
            end_s=1e5,
            shared=f"s{n}",
        )
        for n in range(count)
    )


def plain_plan(count: int) -> ExecutionPlan:
    """Twenty slots, one replica of each task."""
    snapshot = Snapshot(workflow_set=trees(count), slots=offers(20, 20, 64), scenarios=256)
    return make_execution(make_plan(snapshot), snapshot)


def mixed_plan(count: int) -> ExecutionPlan:
    """Sixty slots, nine tenths of the workflows needed, a second replica of every third task in
    another slot."""
    workflow_set = trees(count)
    needed, spare = int(0.9 * count // TREE), int(0.05 * count // TREE)
    snapshot = Snapshot(
        workflow_set=replace(workflow_set, needed=needed), slots=offers(60, 10, 16), scenarios=64
    )
    plan, names = make_plan(snapshot), [slot.id for slot in snapshot.slots]
    following = dict(zip(names, names[1:] + names[:1], strict=True))
    replicas = tuple(
        replace(
            p,
            replica=1,
            slot=following[p.slot],
            start_s=p.start_s + LATER_S,
            end_s=p.end_s + LATER_S,
        )
        for p in plan.placements[::3]
    )
    placements = plan.placements + replicas
    uses = derive_slot_uses(snapshot, placements)
    return make_execution(
        replace(plan, placements=placements, uses=uses, spare_workflows=spare), snapshot
    )


def carry_out(execution: ExecutionPlan, behaviour: SiteBehaviour, model: FailureModel) -> RunState:
    """Run a plan in virtual time; print how long that took."""
    clock = SimClock()
    sites = {use.slot.site for use in execution.uses.values()}
    around = RunnerSetup(
        drivers={
            site: SimulatedCloud(CloudRegion(640), clock, behaviour) for site in sorted(sites)
        },
        engine=SimulatedEngine(clock, model),
        clock=clock,
        journal=MemoryJournal(),
    )
    begin_s, cpu_s = time.perf_counter(), time.process_time()
    state = Runner("r", execution, around).run()
    print(
        f"{len(execution.placements):,} replicas of {len(execution.replicas):,} tasks in "
        f"{len(execution.uses)} slots: {time.perf_counter() - begin_s:.1f} s "
        f"({time.process_time() - cpu_s:.1f} s CPU), {len(state.done):,} tasks done"
    )
    return state


def virtual(count: int) -> RunState:
    """Plan and carry out without faults."""
    return carry_out(plain_plan(count), SiteBehaviour(), FailureModel())


def mixed(count: int) -> RunState:
    """Plan and carry out with replicas, failures and early release."""
    execution = mixed_plan(count)
    model = FailureModel(
        seed=1,
        factor=lambda order: 1.0 + int(order.key[1][1:]) % 7 / 5,
        failures=dict.fromkeys(execution.uses, 0.02),
    )
    return carry_out(
        execution, SiteBehaviour(slot_up=0.95, boot_s=20.0, boot_spread=0.3, seed=3), model
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--mixed", type=int, default=20_000)
    options = parser.parse_args()
    gc.set_threshold(100_000)  # as the command does
    begin = _peak_bytes()
    virtual(SMALL)
    small = _peak_bytes()
    state = virtual(options.tasks)
    grown = _peak_bytes() - small
    print(
        f"{grown / len(state.done):.0f} bytes a task for plan, execution plan, state and journal, "
        f"beyond {(small - begin) / 2**20:.0f} MiB for a small plan and the compiler"
    )
    mixed(options.mixed)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()

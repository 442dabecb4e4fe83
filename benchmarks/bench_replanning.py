"""Planning anew against going on: the share of promises kept when sites refuse what was planned.

    python benchmarks/bench_replanning.py [--runs 60] [--acquire 0.6]

The storm set over the embedded sites, each of whose slots is granted with this probability only;
the same runs, with the same luck, without and with the planner's help. Money is what the slots
asked for may cost.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgrads.api.config import embedded_data
from vgrads.api.plans.execution import RunOutcome, run_plan
from vgrads.api.plans.planning import Planned, open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.api.plans.set_files import load_set
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.execmgr.core.states import RunState
from vgrads.kernel.text_table import pad
from vgrads.vgrid.catalog import load_catalog


class Record(MemoryJournal):
    """A journal that keeps nothing else."""

    def keep_setup(self, setup: Any) -> None:
        pass

    def store_execution(self, version: int, execution: ExecutionPlan) -> None:
        pass

    def mailbox(self) -> None:
        """Return no mailbox: no tasks are released here."""

    def alarms(self) -> None:
        """Send no messages about the promise."""

    def stop_reason(self) -> str:
        return ""


def money_usd(execution: ExecutionPlan, state: RunState) -> float:
    """What the slots that were asked for may cost."""
    return sum(
        execution.uses[slot].cost_usd
        for slot, r in state.slots.items()
        if r.requested_s is not None
    )


def run_all(planned: Planned, runs: int, folder: Path, replan: bool) -> list[RunOutcome]:
    """The same plan with so many kinds of luck."""
    options = (
        RunOptions(run_id="r", folder=folder, seed=seed, replan=replan) for seed in range(runs)
    )
    return [run_plan(planned, run_options, Record()) for run_options in options]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--acquire", type=float, default=0.6)
    options = parser.parse_args()
    workflow_set, _ = load_set(embedded_data() / "lead-storm.yaml")
    catalog = load_catalog(embedded_data() / "sites.toml")
    sites = tuple(replace(site, slot_acquire=options.acquire) for site in catalog.sites)
    planned = plan_set(workflow_set, open_grid(replace(catalog, sites=sites)))
    print(f"promised {planned.plan.promise.probability:.3f}, which counts on no help")
    with tempfile.TemporaryDirectory() as folder:
        for name, replan in (("going on", False), ("planning anew", True)):
            outcomes = run_all(planned, options.runs, Path(folder), replan)
            retained = sum(outcome.kept for outcome in outcomes) / options.runs
            usd = sum(money_usd(o.execution, o.state) for o in outcomes) / options.runs
            print(f"{pad(name, 14)} kept {retained:.2f} of {options.runs} runs, for ${usd:.2f}")


if __name__ == "__main__":
    main()

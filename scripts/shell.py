"""A Python prompt with sites, a planned set, and a run of it that stands half way: ``make shell``.

Sites are those of ``data/sites.toml``, the set is ``data/lead-storm.yaml``; the run was simulated
to its end, and its journal is folded as far as its middle.
"""

from __future__ import annotations

import code
import os
import readline
import rlcompleter
import tempfile
from pathlib import Path

import vgrads
from vgrads.api.plans.execution import RunOutcome
from vgrads.execmgr.core.journal import fold
from vgrads.execmgr.core.step import step
from vgrads.interface.run_results import RunResult
from vgrads.vgrid.catalog import load_catalog

DATA = Path(__file__).parents[1] / "data"
BANNER = """\
catalog    the sites            catalog.site('kittyhawk')
plan       the plan of a set    plan.explain('lead-1/wrf'), plan.gantt('plan.html')
run        its simulated run    run.sentence, run.attempts[:3]
execution  what was carried out, with the plan as it was changed
events     the journal of the run
state      the run half way     state.slots, state.replicas
step       (execution, state, event) -> (state, commands): step(execution, state, events[half])
fold       fold(executions, events[:n]) is the state after n events"""


def collect_names(run: RunResult) -> dict[str, object]:
    """Return what the prompt knows of a run."""
    outcome: RunOutcome = run.outcome
    executions = run.journal.versions
    events = list(run.journal.events)
    half = len(events) // 2
    return {
        "run": run,
        "execution": outcome.execution,
        "executions": executions,
        "events": events,
        "half": half,
        "state": fold(executions, events[:half]),
        "step": step,
        "fold": fold,
    }


def main() -> None:
    """Plan, simulate, ask."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["VGRADS_HOME"] = home  # the user's own records stay as they are
        print("planning data/lead-storm.yaml and simulating its run …")
        plan = vgrads.plan(DATA / "lead-storm.yaml")
        names = {"vgrads": vgrads, "catalog": load_catalog(DATA / "sites.toml"), "plan": plan}
        names |= collect_names(vgrads.run(plan))
        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
        code.interact(banner=BANNER, local=names, exitmsg="")


if __name__ == "__main__":
    main()

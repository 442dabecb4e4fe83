"""Plans that are made with little effort: most tests need a plan, and not the best one. Those of
what the search finds call the planner itself."""

from __future__ import annotations

from dataclasses import replace

from tests.examples import EFFORT
from vgrads.planner import make
from vgrads.planner.make import STANDARD, Options
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot


def make_plan(snapshot: Snapshot, options: Options = STANDARD) -> Plan:
    """Return a plan, with little effort unless the options state another than the usual one."""
    if options.effort == STANDARD.effort:
        options = replace(options, effort=EFFORT)
    return make.make_plan(snapshot, options)

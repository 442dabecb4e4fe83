"""Possible promises with a history: a heat map over deadline and fraction.

At instants of a log, eight similar workflows (LEAD, or a given one) are planned for every
combination of deadline, fraction and budget; counted is how often the plan promises at least the
requested probability. Nothing is executed. An operator can use the result as a price list.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.report_page import html_table, paragraph, write_page
from vgrads.kernel.units import format_duration
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads_studies.picture import diagrams
from vgrads_studies.promises.arena import (
    Arena,
    Case,
    draw_instants,
    forecasts_at,
    most_busy,
    rescheduled,
)
from vgrads_studies.promises.ours import plan_case
from vgrads_studies.promises.replication import lead
from vgrads_studies.report import markdown_table, need_files, picture, read_enough, study_parser

COUNT = 8
DEADLINES = (1.2, 1.5, 2.0, 3.0, 4.0)
"""Multiples of the critical path (at least half an hour)."""
NEEDED = (1, 2, 4, 6, 8)
_HORIZON_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfCell:
    """One combination on one log: how often it could be promised, and its mean cost."""

    log: str
    deadline_s: float
    needed: int
    budget_usd: float
    probability: float
    instants: int
    promised: float
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfQuestion:
    """One combination at all instants of a log."""

    arena: Arena
    shape: Workflow
    pairs: tuple[tuple[float, float], ...]
    deadline_s: float
    needed: int
    budget_usd: float
    probability: float


def _cell(what_if_question: WhatIfQuestion) -> WhatIfCell:
    costs = []
    for number, pair in enumerate(what_if_question.pairs):
        workflow_set = WorkflowSet(
            name="whatif",
            workflows=tuple(what_if_question.shape.renamed(f"w{n}") for n in range(COUNT)),
            deadline_s=what_if_question.deadline_s,
            needed=what_if_question.needed,
            probability=what_if_question.probability,
            budget_usd=what_if_question.budget_usd,
        )
        case = Case(number=number, workflow_set=workflow_set, instants=pair)
        plan = plan_case(what_if_question.arena.grid(case), case, "vgrads")[0].plan
        if plan.meets_request:
            costs.append(plan.cost_usd)
    return WhatIfCell(
        log=what_if_question.arena.log.name,
        deadline_s=what_if_question.deadline_s,
        needed=what_if_question.needed,
        budget_usd=what_if_question.budget_usd,
        probability=what_if_question.probability,
        instants=len(what_if_question.pairs),
        promised=len(costs) / len(what_if_question.pairs),
        cost_usd=float(np.mean(costs)) if costs else None,
    )


def study(
    log_path: Path,
    shape: Workflow,
    count: int,
    budgets: Sequence[float],
    probability: float,
    seed: int,
) -> list[WhatIfCell]:
    """Run every combination, on all cores, with a progress bar."""
    log = replace(rescheduled(read_enough(log_path)), name=history_name(log_path))
    pairs = tuple(draw_instants(log, count, seed, _HORIZON_S))
    arena = Arena(
        log=log,
        procs=most_busy(log),
        forecasts=forecasts_at(log, [at_s for pair in pairs for at_s in pair], Settings()),
    )
    path_s = max(1800.0, shape.critical_path_s())
    what_if_questions = [
        WhatIfQuestion(
            arena=arena,
            shape=shape,
            pairs=pairs,
            deadline_s=factor * path_s,
            needed=needed,
            budget_usd=budget,
            probability=probability,
        )
        for budget, factor, needed in product(budgets, DEADLINES, NEEDED)
    ]
    with process_pool() as pool:
        done = pool.map(_cell, what_if_questions)
        return list(
            track(done, "planning", total=len(what_if_questions), console=Console(stderr=True))
        )


def draw(cells: Sequence[WhatIfCell], path: Path) -> None:
    """Draw a heat map for each budget: how often promised, and at what mean cost."""
    budgets = sorted({cell.budget_usd for cell in cells})
    deadlines = sorted({cell.deadline_s for cell in cells})
    with diagrams(path, len(budgets), (4.6 * len(budgets), 4.2)) as axes:
        for axis, budget in zip(axes, budgets, strict=True):
            mine = {(c.deadline_s, c.needed): c for c in cells if c.budget_usd == budget}
            table = np.array([[mine[d, n].promised for d in deadlines] for n in NEEDED])
            axis.imshow(table, origin="lower", vmin=0, vmax=1, cmap="viridis", aspect="auto")
            for (row, n), (column, d) in product(enumerate(NEEDED), enumerate(deadlines)):
                cost = mine[d, n].cost_usd
                text = f"{table[row, column]:.0%}" + (f"\n${cost:.0f}" if cost else "")
                dark = table[row, column] < 0.6
                axis.text(
                    column,
                    row,
                    text,
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="#fefefe" if dark else "#111111",
                )
            axis.set_xticks(range(len(deadlines)), [format_duration(d) for d in deadlines])
            axis.set_yticks(range(len(NEEDED)), [f"{n} of {COUNT}" for n in NEEDED])
            axis.set(title=f"budget ${budget:g}", xlabel="deadline")


def _conclusion(cells: Sequence[WhatIfCell]) -> str:
    """Return the range of the shares of instants at which a promise could be given."""
    least, most = (choose(cells, key=lambda c: c.promised) for choose in (min, max))
    return (
        f"A promise could be given at {least.promised:.0%} of the instants with a deadline of "
        f"{format_duration(least.deadline_s)}, {least.needed} of {COUNT} workflows and "
        f"${least.budget_usd:g}, up to {most.promised:.0%} with "
        f"{format_duration(most.deadline_s)}, {most.needed} of {COUNT} and ${most.budget_usd:g}."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = study_parser("whatif", __doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--workflow", type=Path, help="a recorded workflow; default: LEAD")
    parser.add_argument("--count", type=int, default=20, help="instants")
    parser.add_argument(
        "--budget",
        action="append",
        type=float,
        help="budget in USD, repeatable; default: 0, 10 and 30",
    )
    parser.add_argument(
        "--probability", type=float, default=0.9, help="required probability of a promise"
    )
    chosen = parser.parse_args(arguments)
    need_files([chosen.log, *([chosen.workflow] if chosen.workflow else [])])
    shape = load_workflow(chosen.workflow) if chosen.workflow else lead()
    cells = study(
        chosen.log,
        shape,
        chosen.count,
        chosen.budget or [0.0, 10.0, 30.0],
        chosen.probability,
        chosen.seed,
    )
    head = ("deadline", "needed", "budget (USD)", "could be promised", "mean cost (USD)")
    rows = [
        [
            format_duration(c.deadline_s),
            f"{c.needed} of {COUNT}",
            f"{c.budget_usd:g}",
            f"{c.promised:.0%}",
            "–" if c.cost_usd is None else f"{c.cost_usd:.2f}",
        ]
        for c in cells
    ]
    if chosen.report:
        text = (
            f"Share of {chosen.count} instants at which a promise of {chosen.probability} "
            "could be given, and its mean cost."
        )
        parts = [paragraph(text), picture(lambda file: draw(cells, file)), html_table(head, rows)]
        title = f"What could be promised on {history_name(chosen.log)}?"
        write_page(chosen.report, title, _conclusion(cells), parts)
    if chosen.json:
        sys.stdout.write(json.dumps({"rows": [asdict(cell) for cell in cells]}) + "\n")
    else:
        sys.stdout.write(markdown_table(head, rows) + "\n")


if __name__ == "__main__":
    main()

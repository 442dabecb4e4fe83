"""Speed of machines at real sites: a benchmark runs there like any task, and its score is
stored."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgrads.agent.programs.machine_score import parse_score, score_script
from vgrads.api.config import run_folder
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.api.wiring import are_all_simulated
from vgrads.kernel.errors import InfeasibleError, SiteError, VgradsError
from vgrads.kernel.user_files import read_user_file
from vgrads.portal.jobs.runs import create_run
from vgrads.portal.records.reader import new_id
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.store import Store
from vgrads.runtimes.machines import Scores
from vgrads.vgrid.catalog import Catalog, Site
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

Json = dict[str, Any]
_TAKES_S, _WITHIN_S = 60.0, 3600.0
_SCRIPT, _ANSWER = "machine_score.py", "score.json"


def score_sites(catalog: Catalog, notify: Callable[[str], None]) -> Iterator[Json]:
    """Return a row for each real site: its scores, or why there are none. One task each, in one
    slot of one processor."""
    with Store() as store:
        for site in catalog.sites:
            if are_all_simulated([site]):
                continue
            notify(f"running the benchmark at {site.name}")
            try:
                scores = _score(store, catalog, site)
            except (VgradsError, ValueError, OSError) as error:
                yield {"site": site.name, "cpu": None, "io": None, "problem": str(error)}
                continue
            RunTimeRecords(store.engine).put_score(site.name, scores)
            yield {
                "site": site.name,
                "cpu": round(scores.cpu, 1),
                "io": round(scores.io, 1),
                "problem": None,
            }


def _score(store: Store, catalog: Catalog, site: Site) -> Scores:
    with tempfile.TemporaryDirectory(prefix="vgrads-score-") as folder:
        (Path(folder) / _SCRIPT).write_text(score_script(), encoding="utf-8")
        grid = open_grid(replace(catalog, sites=(site,), links={}), observed=store.acquisitions())
        planned = plan_set(_make_workflow_set(folder), grid)
        if not planned.plan.feasible:
            raise InfeasibleError(
                "no slot is available for the benchmark", lacking=planned.plan.lacking
            )
        run_id = new_id("run")
        options = RunOptions(run_id=run_id, folder=run_folder(run_id), own=True)
        create_run(store, planned, options).execute()
    answers = sorted(options.folder.rglob(_ANSWER))
    if not answers:
        raise SiteError(
            f"the benchmark returned no answer; see 'vgrads logs {run_id}'",
            site=site.name,
            transient=True,
        )
    score = parse_score(read_user_file(answers[0]).decode())
    return Scores(cpu=score.cpu_score, io=score.io_score)


def _make_workflow_set(folder: str) -> WorkflowSet:
    """Return a set of one task; any positive probability of a run suffices."""
    task = Task(
        id="score",
        runtime_s=_TAKES_S,
        kind="machine_score",
        command=f"python3 -I {_SCRIPT} > {_ANSWER}",
        inputs=(_SCRIPT,),
        outputs=(_ANSWER,),
    )
    flow = make_workflow("score", [task])
    return WorkflowSet(
        name="benchmark",
        workflows=(flow,),
        deadline_s=_WITHIN_S,
        needed=1,
        probability=0.5,
        directory=folder,
    )

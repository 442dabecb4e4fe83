"""Run the failed tasks of a run again, and those that failed only because of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from vgrads.api.plans.planning import Planned
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.operations.plans.requests import PlanningOptions
from vgrads.portal.cli.plans.planning import plan_here
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import SetDocument, WorkflowDocument, build_set


def plan_again(run_id: str, tasks: Sequence[str]) -> tuple[Planned, str]:
    """Plan the set of a run that has ended, without the tasks that are done; return the plan and
    the id of the set. ``tasks``: these run again even if they are done. Raise InputError where
    nothing is left."""
    with Store() as store:
        run = store.get_run(run_id)
        if run.state in GOES_ON:
            raise InputError(
                f"run '{run_id}' has not ended",
                fix=f"vgrads resume {run_id} continues it, vgrads cancel {run_id} ends it",
            )
        record = RunRecord(store.engine, run_id)
        setup, row = record.setup(), store.get_set(run.set_id)
        directory = record.executions()[0].snapshot.workflow_set.directory
    assert row is not None  # a run refers to its set
    document = validate(SetDocument, json.loads(row.document), run_id)
    workflow_set = build_set(document, _explain_no_file, run_id, directory=directory)
    options = PlanningOptions(at=setup.options.at)
    planned = plan_here(workflow_set, setup.catalog, None, options, again=tasks)
    if not planned.snapshot.workflow_set.workflows:
        raise InputError(
            f"all tasks of run '{run_id}' are done",
            fix="name the tasks to run again: vgrads retry RUN TASK",
        )
    return planned, run.set_id


def _explain_no_file(entry: WorkflowDocument) -> Workflow:
    raise InputError(f"names the file '{entry.file}'; a stored set has none")

"""``vgrads change``: the request of a run that goes on; the new promise is shown first."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import typer

from vgrads.execmgr.core.journal import change_from_json, fold
from vgrads.execmgr.core.states import RequestRecord
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_usd
from vgrads.operations.runs.requests import ChangeRequest
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.plans.status_text import clock
from vgrads.portal.jobs.run_changes import preview_change, send_change
from vgrads.portal.jobs.runs import unended
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store

Json = dict[str, Any]
_PATIENCE_S, _PAUSE_S = 10.0, 0.3


def change_run(run_id: str, request: ChangeRequest, as_json: bool) -> int:
    """Change the request of a run; return the exit code."""
    with Store() as store:
        unended(store, run_id)
        preview = preview_change(store.url, run_id, request)
        if not as_json:
            typer.echo(f"now:  {_describe_request(preview['before'])}")
            typer.echo(f"then: {_describe_request(preview['after'])}")
        if request.preview or not _is_confirmed(request, as_json):
            answer_with(as_json, preview | {"message": "unchanged"}, lambda: "unchanged")
            return 0
        # the manager applies the change: it alone writes the journal of a run that goes on
        message = send_change(store, run_id, change_from_json(preview["change"]))
        decided = await_decision(store, run_id, message)
    if decided is None:
        text = (
            "its manager has not answered yet; the change is applied once it runs: "
            f"'vgrads resume {run_id}' continues an interrupted run"
        )
    elif decided.refused:
        raise InputError(decided.refused, where=run_id)
    else:
        text = f"changed: the promise is {decided.promise or 0.0:.3f}"
    answer_with(as_json, preview | {"message": text}, lambda: text)
    return 0


def _is_confirmed(request: ChangeRequest, as_json: bool) -> bool:
    # where nobody can answer, giving the command is the answer
    if request.yes or as_json or not sys.stdin.isatty():
        return True
    return typer.confirm("change it?")


def await_decision(
    store: Store, run_id: str, message: int, pause: Callable[[float], None] = time.sleep
) -> RequestRecord | None:
    """Return what a run's manager has decided about a message; None while it does not answer."""
    record, begin_s = RunRecord(store.engine, run_id), time.monotonic()
    while True:
        # a change makes another plan, so the plans are read again together with the events
        state = fold(record.executions(), record.stored.events())
        for entry in state.requests:
            if entry.message == message:
                return entry
        if time.monotonic() - begin_s > _PATIENCE_S:
            return None
        pause(_PAUSE_S)


def _describe_request(request: Json) -> str:
    needed = format_count(request["needed"], "workflow")
    budget = request["budget_usd"]
    money = "" if budget is None else f" for at most {format_usd(budget)}"
    promise = "–" if request["promise"] is None else f"{request['promise']:.3f}"
    return (
        f"{needed} by {clock(request['due'])}{money}: the promise is {promise}, "
        f"{request['probability']:g} requested"
    )

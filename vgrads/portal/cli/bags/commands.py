"""What the commands of ``vgrads bags`` do. Few imports: listing bags must be fast."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from vgrads.kernel.errors import InputError
from vgrads.operations.bags.requests import (
    BagLogsRequest,
    BagResultsRequest,
    BagStatusRequest,
    BagWorkOptions,
    CancelBagRequest,
    ExplainBagRequest,
    InviteRequest,
    ResumeBagRequest,
    RetryBagRequest,
    RunBagsRequest,
)
from vgrads.operations.fields import describe_fields
from vgrads.portal.cli.bags.group import bags_app
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.requests import CommandOutput, LinesOutput, NoOutput

if TYPE_CHECKING:
    from vgrads.portal.cli.bags.run import HowToWork


def run(request: RunBagsRequest, output: CommandOutput) -> int:
    """``vgrads bags run``."""
    from vgrads.portal.cli.bags.matrix_commands import compute_matrix
    from vgrads.portal.cli.bags.matrix_documents import read_matrix
    from vgrads.portal.cli.bags.run import run_bags

    names = ("deadline", "probability", "budget_usd")
    stated = {name: getattr(request, name) for name in names}
    goal = {name: value for name, value in stated.items() if value is not None}
    for file in request.files:
        matrix = read_matrix(file, goal, request.sites, request.out)
        if matrix is None:
            continue
        if len(request.files) > 1:
            raise InputError("describes a matrix, which is run alone", where=str(file))
        _refuse_options_of_bags(request)
        return compute_matrix(matrix, output)
    return run_bags(request.files, _make_options(request, output, rerun=request.rerun, goal=goal))


def _refuse_options_of_bags(request: RunBagsRequest) -> None:
    """Raise InputError for an option that a matrix does not have."""
    names = ("policy", "service", "contact", "separate", "rerun")
    for field in describe_fields(RunBagsRequest):
        if field.name in names and getattr(request, field.name) != field.default:
            raise InputError("does not apply to a matrix", where=field.name)


def _make_options(
    request: BagWorkOptions,
    output: CommandOutput,
    rerun: bool = False,
    goal: Mapping[str, Any] | None = None,
) -> HowToWork:
    from vgrads.portal.cli.bags.run import HowToWork

    return HowToWork(
        sites=request.sites,
        policy=request.policy,
        service=request.service,
        contact=request.contact,
        as_json=output.as_json,
        out=request.out,
        separate=request.separate,
        rerun=rerun,
        goal=goal or {},
    )


def resume(request: ResumeBagRequest, output: CommandOutput) -> int:
    """``vgrads bags resume``."""
    from vgrads.portal.cli.bags.run import resume_bags

    return resume_bags(request.bag, _make_options(request, output))


def retry(request: RetryBagRequest, output: CommandOutput) -> int:
    """``vgrads bags retry``."""
    from vgrads.portal.cli.bags.run import retry_bag

    if request.failed and request.tasks:
        raise InputError("cannot be combined with numbers of tasks", where="failed")
    return retry_bag(request.bag, request.tasks or None, _make_options(request, output))


def results(request: BagResultsRequest, output: CommandOutput) -> int:
    """``vgrads bags results``."""
    from vgrads.portal.cli.bags.run import HowToWork, show_results

    how = HowToWork(sites=None, as_json=output.as_json, out=request.out, separate=request.separate)
    payload = show_results(request.bag, how)
    answer_with(output.as_json, payload, lambda: f"Results: {payload['results']}")
    return 0


def cancel(request: CancelBagRequest, output: CommandOutput) -> int:
    """``vgrads bags cancel``."""
    from vgrads.portal.cli.bags.run import HowToWork, cancel_bag

    text = cancel_bag(request.bag, HowToWork(sites=request.sites))
    answer_with(output.as_json, {"bag": request.bag, "message": text}, lambda: text)
    return 0


def status(request: BagStatusRequest, output: CommandOutput) -> int:
    """``vgrads bags status``."""
    from vgrads.portal.cli.bags.status_text import bags_table, status_json
    from vgrads.portal.records.reading.bags import get_bag, read_newest_bags
    from vgrads.portal.records.reading.opening import open_reader

    with open_reader() as reader:
        rows = read_newest_bags(reader) if request.bag is None else [get_bag(reader, request.bag)]
    payload = {"bags": [status_json(row) for row in rows]}
    answer_with(output.as_json, payload, lambda: bags_table(rows))
    return 0


def logs(request: BagLogsRequest, output: LinesOutput) -> int:
    """``vgrads bags logs``."""
    from vgrads.portal.cli.bags.run import show_logs

    show_logs(request.bag, request.tasks, request.failed, output.as_json)
    return 0


def invite(request: InviteRequest, _: NoOutput) -> int:
    """``vgrads bags invite``."""
    from vgrads.api.bags.ad_hoc_agents import write_invitation
    from vgrads.api.config import dispatcher_folder
    from vgrads.portal.records.reading.bags import get_bag
    from vgrads.portal.records.reading.opening import open_reader

    with open_reader() as reader:
        row = get_bag(reader, request.bag)
    folder = dispatcher_folder(row.dispatcher)
    typer.echo(write_invitation(folder, row.dispatcher, request.name, request.contact), nl=False)
    return 0


def explain(request: ExplainBagRequest, output: CommandOutput) -> int:
    """``vgrads bags explain``."""
    from rich.text import Text

    from vgrads.portal.cli.bags.run import explain_nodes, explain_task
    from vgrads.portal.cli.bags.status_text import nodes_text

    if request.task is None:
        if request.host:
            raise InputError("needs the number of a task", where="host")
        decisions = explain_nodes(request.bag)
        answer_with(output.as_json, decisions, lambda: Text(nodes_text(decisions)))
        return 0
    payload = explain_task(request.bag, request.task, request.host)
    lines = [
        f"task {payload['task']}: {payload.get('state', 'waits')}",
        f"$ {payload['command']}",
        *payload["reasons"],
        *(line for item in payload.get("hosts", ()) for line in _explain_host(item)),
    ]
    answer_with(output.as_json, payload, lambda: Text("\n".join(lines)))
    return 0


def _explain_host(payload: dict[str, Any]) -> list[str]:
    """Explain why an agent does not get a task."""
    lines = [
        f"{payload['host']} of {payload['site']}:"
        + ("" if payload["why"] else " may get the task in its turn")
    ]
    for reason in payload["why"]:
        lines.append(f"  {reason['words']}")
        if reason["slot"]:
            values = ", ".join(f"{name} = {value}" for name, value in reason["values"].items())
            lines.append(
                f"    {reason['slot']} = {reason['expression']}"
                + (f"    [{values}]" if values else "")
            )
    return lines


@bags_app.command("schema", epilog="Example: `vgrads bags schema`")
def schema() -> None:
    """Print the JSON Schema of a bag's file, for editors and programs that write bags."""
    from vgrads.dispatch.document import BagDocument

    typer.echo(json.dumps(BagDocument.model_json_schema(), indent=2))

"""Commands that run bags: ``vgrads bags run``, ``status``, ``resume``, ``cancel``, ``logs``,
``explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.kernel.errors import InputError
from vgrads.portal.cli.bags.group import bags_app
from vgrads.portal.cli.options import (
    AsJson,
    GoalBudget,
    GoalDeadline,
    GoalProbability,
    Service,
    Sites,
    Wide,
    answer_with,
    make_console,
)

BagId = Annotated[
    str, typer.Argument(metavar="BAG", help="Id of a bag, as listed by `bags status`.")
]
Order = Annotated[
    str,
    typer.Option(
        "--policy", help="Order between bags: fair-share (between owners), or next-available."
    ),
]

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for the outputs of all tasks, a table of all tasks (results.csv) and what "
        "they printed; FILE.csv or FILE.parquet: only the table.",
        show_default=False,
    ),
]
Separate = Annotated[
    bool, typer.Option("--separate", help="Write what each task printed to a file of its own.")
]
Contact = Annotated[
    str,
    typer.Option(
        "--contact",
        help=(
            "Names under which agents of pools reach this machine, for bags with `hosts: "
            "{guests: true}`."
        ),
    ),
]


@bags_app.command(
    "run",
    epilog=(
        "Examples: `vgrads bags run data/bag.yaml` · `vgrads bags run A.yaml B.yaml --sites "
        "sites.toml`"
    ),
)
def run(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.yaml…", help="Bag files, each with a command template and its parameters."
        ),
    ],
    sites: Sites = None,
    policy: Order = "fair-share",
    service: Service = None,
    contact: Contact = "",
    out: Out = None,
    separate: Separate = False,
    deadline: GoalDeadline = None,
    probability: GoalProbability = None,
    budget: GoalBudget = None,
    rerun: Annotated[
        bool,
        typer.Option(
            "--rerun",
            help="Do all tasks, also those that an earlier run of the bag has done: with the same "
            "command, environment and inputs, and unchanged outputs.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run bags of independent tasks: request nodes, assign tasks, collect results, release nodes.
    Default: on this machine. Tasks that an earlier run of the bag has done are not repeated."""
    from vgrads.portal.cli.bags.run import HowToWork, run_bags

    goal = {"deadline": deadline, "probability": probability, "budget_usd": budget}
    how = HowToWork(
        sites=sites,
        policy=_check_policy(policy),
        service=service,
        contact=contact,
        as_json=as_json,
        rerun=rerun,
        out=out,
        separate=separate,
        goal={name: value for name, value in goal.items() if value is not None},
    )
    raise typer.Exit(run_bags(files, how))


@bags_app.command("resume", hidden=True, epilog="Example: `vgrads bags resume BAG`")
def resume(
    bag: BagId,
    sites: Sites = None,
    policy: Order = "fair-share",
    service: Service = None,
    contact: Contact = "",
    out: Out = None,
    separate: Separate = False,
    as_json: AsJson = False,
) -> None:
    """Resume a bag whose dispatcher was interrupted or killed. Agents that kept running reconnect,
    and their results are accepted."""
    from vgrads.portal.cli.bags.run import HowToWork, resume_bags

    how = HowToWork(
        sites=sites,
        policy=_check_policy(policy),
        service=service,
        contact=contact,
        as_json=as_json,
        out=out,
        separate=separate,
    )
    raise typer.Exit(resume_bags(bag, how))


@bags_app.command(
    "retry", hidden=True, epilog="Examples: `vgrads bags retry BAG` · `vgrads bags retry BAG 7 9`"
)
def retry(
    bag: BagId,
    tasks: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="[TASK]...",
            min=0,
            help="Do these tasks again, done or not.",
            show_default=False,
        ),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Do what failed or was not run. The default.")
    ] = False,
    sites: Sites = None,
    policy: Order = "fair-share",
    service: Service = None,
    contact: Contact = "",
    out: Out = None,
    separate: Separate = False,
    as_json: AsJson = False,
) -> None:
    """Do failed tasks of a bag again, in the same bag; what is done is not repeated."""
    from vgrads.kernel.errors import InputError
    from vgrads.portal.cli.bags.run import HowToWork, retry_bag

    if failed and tasks:
        raise InputError("cannot be combined with numbers of tasks", where="--failed")
    how = HowToWork(
        sites=sites,
        policy=_check_policy(policy),
        service=service,
        contact=contact,
        as_json=as_json,
        out=out,
        separate=separate,
    )
    raise typer.Exit(retry_bag(bag, tasks or None, how))


@bags_app.command(
    "results",
    epilog="Examples: `vgrads bags results BAG --out DIR` · `vgrads bags results BAG --out T.csv`",
)
def results(
    bag: BagId, out: Out = None, separate: Separate = False, as_json: AsJson = False
) -> None:
    """Write the results of a bag so far, and show where they are."""
    from vgrads.portal.cli.bags.run import HowToWork, show_results

    how = HowToWork(sites=None, as_json=as_json, out=out, separate=separate)
    payload = show_results(bag, how)
    answer_with(as_json, payload, lambda: f"Results: {payload['results']}")


@bags_app.command("cancel", hidden=True, epilog="Example: `vgrads bags cancel BAG`")
def cancel(bag: BagId, sites: Sites = None) -> None:
    """Cancel the remaining tasks of a bag, and release its nodes."""
    from vgrads.portal.cli.bags.run import HowToWork, cancel_bag

    make_console().print(cancel_bag(bag, HowToWork(sites=sites)))


@bags_app.command(
    "status", hidden=True, epilog="Examples: `vgrads bags status` · `vgrads bags status BAG --json`"
)
def status(
    bag: Annotated[
        str | None,
        typer.Argument(metavar="BAG", help="Id of a bag. Default: all bags.", show_default=False),
    ] = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show the status of bags."""
    from vgrads.portal.cli.bags.status_text import bags_table, status_json
    from vgrads.portal.records.reading.bags import get_bag, newest_bags
    from vgrads.portal.records.reading.opening import open_reader

    with open_reader() as reader:
        rows = newest_bags(reader) if bag is None else [get_bag(reader, bag)]
    answer_with(as_json, {"bags": [status_json(row) for row in rows]}, lambda: bags_table(rows))


@bags_app.command(
    "logs",
    hidden=True,
    epilog="Examples: `vgrads bags logs BAG --failed` · `vgrads bags logs BAG --task 7`",
)
def logs(
    bag: BagId,
    task: Annotated[
        list[int] | None, typer.Option("--task", min=0, help="Show only this task. Repeatable.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Show only failed attempts.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document per line.")
    ] = False,
) -> None:
    """Show the output of tasks, and the result of each attempt."""
    from vgrads.portal.cli.bags.run import show_logs

    show_logs(bag, task or (), failed, as_json)


@bags_app.command(
    "invite",
    epilog=(
        "Example: `vgrads bags invite BAG --contact 192.0.2.7 > join.sh`, then `sh join.sh` "
        "elsewhere"
    ),
)
def invite(
    bag: BagId,
    name: Annotated[
        str,
        typer.Option("--name", help="Common name of the agents that are started with this script."),
    ] = "guests",
    contact: Annotated[
        str, typer.Option("--contact", help="Address under which the agents reach this machine.")
    ] = "",
) -> None:
    """Print a script that connects a machine to the bag's dispatcher as an ad-hoc agent, for bags
    with `hosts: {guests: true}`. It contains a key."""
    from vgrads.api.bags.ad_hoc_agents import invitation
    from vgrads.api.config import dispatcher_folder
    from vgrads.portal.records.reading.bags import get_bag
    from vgrads.portal.records.reading.opening import open_reader

    with open_reader() as reader:
        row = get_bag(reader, bag)
    typer.echo(
        invitation(dispatcher_folder(row.dispatcher), row.dispatcher, name, contact), nl=False
    )


@bags_app.command(
    "explain",
    hidden=True,
    epilog="Examples: `vgrads bags explain BAG` · `vgrads bags explain BAG 7 --host node3`",
)
def explain(
    bag: BagId,
    task: Annotated[
        int | None,
        typer.Argument(metavar="N", min=0, help="Number of the task.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Explain only why this agent does not have the task.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Explain the state of a task of a bag, and why agents do not get it: policy slot, expression,
    values. Without a task: why nodes were requested and released, with the numbers."""
    from rich.text import Text

    from vgrads.portal.cli.bags.run import explain_nodes, explain_task
    from vgrads.portal.cli.bags.status_text import nodes_text

    if task is None:
        if host:
            raise InputError("needs the number of a task", where="--host")
        decisions = explain_nodes(bag)
        answer_with(as_json, decisions, lambda: Text(nodes_text(decisions)))
        return
    payload = explain_task(bag, task, host)
    lines = [
        f"task {payload['task']}: {payload.get('state', 'waits')}",
        f"$ {payload['command']}",
        *payload["reasons"],
        *(line for item in payload.get("hosts", ()) for line in _of_host(item)),
    ]
    answer_with(as_json, payload, lambda: Text("\n".join(lines)))


def _of_host(payload: dict[str, Any]) -> list[str]:
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
    import json

    from vgrads.dispatch.document import BagDocument

    typer.echo(json.dumps(BagDocument.model_json_schema(), indent=2))


def _check_policy(policy: str) -> str:
    from vgrads.bags.choice import POLICIES
    from vgrads.kernel.errors import InputError

    if policy not in POLICIES:
        raise InputError(
            f"unknown policy '{policy}'",
            where="--policy",
            fix=f"choose one of {', '.join(POLICIES)}",
        )
    return policy

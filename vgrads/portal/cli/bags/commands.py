"""Commands that carry bags out: ``vgrads bags run``, ``status``, ``resume``, ``cancel``, ``logs``,
``explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.portal.cli.bags.group import bags_app
from vgrads.portal.cli.options import AsJson, Service, Sites, answer_with, make_console

BagId = Annotated[
    str, typer.Argument(metavar="BAG", help="Id of a bag, as `bags status` lists it.")
]
Order = Annotated[
    str,
    typer.Option(
        "--policy", help="Whose tasks are next: fair-share (between owners), or next-available."
    ),
]

Contact = Annotated[
    str,
    typer.Option(
        "--contact",
        help=(
            "Under which names hosts of pools find this machine, for bags with `hosts: "
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
            metavar="FILE.yaml…", help="Bags: a command template and its parameters each."
        ),
    ],
    sites: Sites = None,
    policy: Order = "fair-share",
    service: Service = None,
    contact: Contact = "",
    as_json: AsJson = False,
) -> None:
    """Run bags of independent tasks: hosts come, tasks stream out, results come in, hosts go.
    Default: on this machine."""
    from vgrads.portal.cli.bags.run import HowToWork, run_bags

    how = HowToWork(
        sites=sites, policy=_known(policy), service=service, contact=contact, as_json=as_json
    )
    raise typer.Exit(run_bags(files, how))


@bags_app.command("resume", epilog="Example: `vgrads bags resume BAG`")
def resume(
    bag: BagId,
    sites: Sites = None,
    policy: Order = "fair-share",
    service: Service = None,
    contact: Contact = "",
    as_json: AsJson = False,
) -> None:
    """Go on with a bag whose dispatcher was interrupted or killed; hosts that worked on meanwhile
    are believed."""
    from vgrads.portal.cli.bags.run import HowToWork, resume_bags

    how = HowToWork(
        sites=sites, policy=_known(policy), service=service, contact=contact, as_json=as_json
    )
    raise typer.Exit(resume_bags(bag, how))


@bags_app.command("cancel", epilog="Example: `vgrads bags cancel BAG`")
def cancel(bag: BagId, sites: Sites = None) -> None:
    """Drop what has not ended of a bag, and give its hosts back."""
    from vgrads.portal.cli.bags.run import HowToWork, cancel_bag

    make_console().print(cancel_bag(bag, HowToWork(sites=sites)))


@bags_app.command(
    "status", epilog="Examples: `vgrads bags status` · `vgrads bags status BAG --json`"
)
def status(
    bag: Annotated[
        str | None,
        typer.Argument(metavar="BAG", help="One bag; all of them without.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How bags stand."""
    from vgrads.portal.cli.bags.run import bags_table, status_json
    from vgrads.portal.records.bags import Bags
    from vgrads.portal.records.store import Store

    with Store() as store:
        bags = Bags(store.engine)
        rows = bags.newest() if bag is None else [bags.get(bag)]
    answer_with(as_json, {"bags": [status_json(row) for row in rows]}, lambda: bags_table(rows))


@bags_app.command(
    "logs", epilog="Examples: `vgrads bags logs BAG --failed` · `vgrads bags logs BAG --task 7`"
)
def logs(
    bag: BagId,
    task: Annotated[
        list[int] | None, typer.Option("--task", min=0, help="Only this task; may be given again.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what went wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document a line.")] = False,
) -> None:
    """What tasks printed, and how each attempt ended."""
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
        str, typer.Option("--name", help="What the hosts that use it are called together.")
    ] = "guests",
    contact: Annotated[
        str, typer.Option("--contact", help="Under which they find this machine.")
    ] = "",
) -> None:
    """Print a script that brings a machine to the bag's dispatcher, for bags with `hosts: {guests:
    true}`. It holds a key."""
    from vgrads.api.bags.guests import invitation
    from vgrads.portal.jobs.bags import dispatcher_folder
    from vgrads.portal.records.bags import Bags
    from vgrads.portal.records.store import Store

    with Store() as store:
        row = Bags(store.engine).get(bag)
    typer.echo(
        invitation(dispatcher_folder(row.dispatcher), row.dispatcher, name, contact), nl=False
    )


@bags_app.command(
    "explain",
    epilog="Examples: `vgrads bags explain BAG 7` · `vgrads bags explain BAG 7 --host node3`",
)
def explain(
    bag: BagId,
    task: Annotated[int, typer.Argument(metavar="N", min=0, help="Number of the task.")],
    host: Annotated[str, typer.Option("--host", help="Only why this host does not have it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Why a task of a bag stands where it stands, and why hosts do not have it: slot, expression,
    values."""
    from rich.text import Text

    from vgrads.portal.cli.bags.run import explain_task

    told = explain_task(bag, task, host)
    lines = [
        f"task {told['task']}: {told.get('state', 'waits')}",
        f"$ {told['command']}",
        *told["reasons"],
        *(line for one in told.get("hosts", ()) for line in _of_host(one)),
    ]
    answer_with(as_json, told, lambda: Text("\n".join(lines)))


def _of_host(told: dict[str, Any]) -> list[str]:
    """Why a host does not have a task."""
    lines = [
        f"{told['host']} of {told['site']}:" + ("" if told["why"] else " may have it, in its turn")
    ]
    for reason in told["why"]:
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
    """The JSON Schema of a bag's file, for editors and programs that write bags."""
    import json

    from vgrads.dispatch.document import BagDocument

    typer.echo(json.dumps(BagDocument.model_json_schema(), indent=2))


def _known(policy: str) -> str:
    from vgrads.bags.choice import POLICIES
    from vgrads.kernel.errors import InputError

    if policy not in POLICIES:
        raise InputError(
            f"'{policy}' is no dispatch policy",
            where="--policy",
            fix=f"one of {', '.join(POLICIES)}",
        )
    return policy

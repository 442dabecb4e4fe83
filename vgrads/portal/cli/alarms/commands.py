"""What the commands about alarms do: their targets, rules, acknowledgement. Targets of the
command line are the operator's and have no limits."""

from __future__ import annotations

import getpass
import sys
from dataclasses import replace
from pathlib import Path

import typer
import yaml

from vgrads.kernel.errors import InputError, SiteError
from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count
from vgrads.operations.alarms import (
    AcknowledgeRequest,
    AddTargetRequest,
    ListTargetsRequest,
    RemoveTargetRequest,
    RulesRequest,
    TryTargetRequest,
)
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.requests import CommandOutput, NoOutput, TableOutput
from vgrads.portal.records.reader import OPERATOR


def add_target(request: AddTargetRequest, output: CommandOutput) -> int:
    """``vgrads alarms add``."""
    from vgrads.portal.jobs.alarm_delivery import check_target
    from vgrads.portal.records.alarm_targets import AlarmTarget, AlarmTargets
    from vgrads.portal.records.store import Store

    if request.url == "-":
        request = replace(request, url=_read_url())
    with Store() as store:
        targets = AlarmTargets(store.engine)
        targets.refuse_another(OPERATOR, request.name)
        address = check_target(request.url, None)
        entry = targets.add(
            OPERATOR, AlarmTarget(request.name, request.url, is_limited=False), address
        )
    payload = {"name": entry.name, "address": address, "created": entry.created.isoformat()}
    answer_with(
        output.as_json,
        payload,
        lambda: f"added {entry.name}: {address} (try it: vgrads alarms test {entry.name})",
    )
    return 0


def _read_url() -> str:
    """Return the URL of standard input; at a terminal it is not shown."""
    line = getpass.getpass("URL: ") if sys.stdin.isatty() else sys.stdin.readline()
    return line.strip()


def list_targets(_: ListTargetsRequest, output: TableOutput) -> int:
    """``vgrads alarms list``."""
    from vgrads.portal.records.alarm_targets import AlarmTargets
    from vgrads.portal.records.store import Store

    with Store() as store:
        entries = AlarmTargets(store.engine).list(OPERATOR)
    rows = [
        {"name": e.name, "address": e.address, "created": e.created.isoformat()} for e in entries
    ]
    columns = (Column("name"), Column("address", shorten=True), Column("added (UTC)", fold=1))
    cells = ((e.name, e.address, e.created.strftime("%Y-%m-%d %H:%M")) for e in entries)
    answer_with(
        output.as_json, {"targets": rows}, lambda: TextTable(columns, tuple(map(Row, cells)))
    )
    return 0


def remove_target(request: RemoveTargetRequest, _: NoOutput) -> int:
    """``vgrads alarms remove``."""
    from vgrads.portal.records.alarm_targets import AlarmTargets
    from vgrads.portal.records.store import Store

    with Store() as store:
        if not AlarmTargets(store.engine).remove(OPERATOR, request.name):
            raise _make_missing_error(request.name)
    typer.echo(f"removed {request.name}")
    return 0


def show_or_set_rules(request: RulesRequest, output: CommandOutput) -> int:
    """``vgrads alarms rules``."""
    from vgrads.kernel.documents import load_mapping, parse_mapping, validate
    from vgrads.portal.records.owner_rules import OwnerRules
    from vgrads.portal.records.store import Store
    from vgrads.workflows.alarm_rules import AlarmRulesDocument, written_rules

    with Store() as store:
        stored = OwnerRules(store.engine)
        if request.reset:
            stored.store(OPERATOR, None)
        elif request.file is not None:
            if request.file == "-":
                data = dict(parse_mapping(sys.stdin.read(), "standard input"))
            else:
                data = load_mapping(Path(request.file))
            document = validate(AlarmRulesDocument, data, request.file)
            stored.store(OPERATOR, document.rules)
        rules = stored.find(OPERATOR)
    payload = {"alarms": None if rules is None else written_rules(rules)}
    words = "the usual rule: every change of a promise that comes into danger, to all targets"
    text = words if rules is None else yaml.safe_dump(payload, sort_keys=False).rstrip()
    answer_with(output.as_json, payload, lambda: text)
    return 0


def acknowledge(request: AcknowledgeRequest, output: CommandOutput) -> int:
    """``vgrads alarms acknowledge``."""
    from vgrads.portal.cli.plans.family import run_of
    from vgrads.portal.jobs.run_alarms import acknowledge_alarms
    from vgrads.portal.records.store import Store

    run_id = run_of(request.run, "acknowledge")
    with Store() as store:
        upto = acknowledge_alarms(store, run_id, OPERATOR)
    words = f"acknowledged {format_count(upto, 'alarm')} of {run_id}"
    answer_with(output.as_json, {"run": run_id, "upto": upto}, lambda: words)
    return 0


def try_target(request: TryTargetRequest, output: CommandOutput) -> int:
    """``vgrads alarms test``."""
    from vgrads.portal.jobs.alarm_delivery import TRIAL, AllowedTargets, deliver
    from vgrads.portal.records.alarm_targets import AlarmTargets
    from vgrads.portal.records.store import Store

    with Store() as store:
        target = AlarmTargets(store.engine).find(OPERATOR, request.name)
    if target is None:
        raise _make_missing_error(request.name)
    (delivery,) = deliver([target], *TRIAL, AllowedTargets())
    # with JSON, the answer itself says it
    if not delivery.ok and not output.as_json:
        error = SiteError(delivery.reason, site=request.name, transient=True)
        error.where = f"target {request.name}"
        raise error
    payload = {"target": request.name, "ok": delivery.ok, "reason": delivery.reason}
    answer_with(output.as_json, payload, lambda: f"delivered to {request.name}")
    return 0 if delivery.ok else SiteError.exit_code


def _make_missing_error(name: str) -> InputError:
    return InputError(
        f"no target '{name[:64]}'", where="NAME", fix="list targets with 'vgrads alarms list'"
    )

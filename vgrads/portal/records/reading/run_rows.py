"""Status of runs for lists, from their rows alone, which is fast; and what an id or a name
means."""

from __future__ import annotations

import json
from datetime import UTC, timedelta
from typing import Any, Literal, NamedTuple

from vgrads.kernel.errors import InputError
from vgrads.portal.records.heartbeat import Heartbeat, is_dead
from vgrads.portal.records.reader import RecordReader, as_instant

Json = dict[str, Any]
GOES_ON = ("running", "interrupted")
"""States of a run that is not terminal."""
_SHOWN = 20  # ids of an ambiguous name
_POOL = "pool:"  # prefix of an id that means only a pool
AT_WORK, GONE, UNKNOWN = "at work", "gone", "not known yet"


_ROWS = """
    SELECT r.id, r.set_id, r.state, r.started, r.outcome, s.name, s.summary
    FROM run r JOIN workflow_set s ON r.set_id = s.id
"""


def run_rows(
    reader: RecordReader, run_id: str | None = None, limit: int = 50, active: bool = False
) -> list[Json]:
    """Return the newest runs, only active ones, or one. Raise InputError if there is none of that
    name."""
    states = ", ".join(f"'{state}'" for state in GOES_ON)
    which = f"WHERE r.state IN ({states})" if active else ""
    which = which if run_id is None else "WHERE r.id = :run_id"
    values = {} if run_id is None else {"run_id": run_id}
    query = f"{_ROWS} {which} ORDER BY r.started DESC LIMIT :most"
    stored = reader.rows(query, most=limit, **values)
    if run_id is not None and not stored:
        raise InputError(f"no run '{run_id}'", fix="list runs with 'vgrads status'")
    rows = [_make_row(reader, *values) for values in stored]
    return [
        row | {"hint": _advise_on_run(reader, row["run"])} if row["manager"] == GONE else row
        for row in rows
    ]


def count_runs(reader: RecordReader) -> int:
    """Return the number of runs."""
    ((count,),) = reader.rows("SELECT COUNT(*) FROM run")
    return int(count)


def manager_of(reader: RecordReader, run_id: str, state: str) -> str | None:
    """Return whether an active run has a manager; None for a terminal one."""
    if state not in GOES_ON:
        return None
    query = "SELECT owner, heartbeats, heartbeat_s, beaten_s FROM run_lease WHERE run_id = :run_id"
    leases = reader.rows(query, run_id=run_id)
    if not leases or not leases[0][0]:
        return GONE
    owner, count, at_s, beaten_s = leases[0]
    now_s = reader.now_s()
    dead = is_dead(Heartbeat(owner, count, at_s, None if now_s is None else now_s - beaten_s))
    return UNKNOWN if dead is None else GONE if dead else AT_WORK


def _make_row(reader: RecordReader, run_id: str, set_id: str, *values: Any) -> Json:
    state, stored_start, outcome, name, stored_summary = values
    start, summary = as_instant(stored_start), json.loads(stored_summary)
    started = start if start.tzinfo else start.replace(tzinfo=UTC)
    request = {
        "deadline_s": summary.get("deadline_s"),
        "needed": summary.get("needed"),
        "promise": (summary.get("promise") or {}).get("probability"),
    }
    request |= _find_changed_request(reader, run_id)
    deadline_s = request.pop("deadline_s")
    due = started + timedelta(seconds=deadline_s) if deadline_s is not None else None
    return {
        "run": run_id,
        "set": set_id,
        "name": name,
        "state": state,
        "started": started.isoformat(),
        "due": due.isoformat() if due else None,
        **request,
        "cost_usd": summary.get("cost_usd"),
        "manager": manager_of(reader, run_id, state),
        "hint": None,
        "outcome": json.loads(outcome),
    }


def _find_changed_request(reader: RecordReader, run_id: str) -> Json:
    """Return what the changes of a run's request have changed: ``deadline_s``, ``needed``, and the
    promise for it. The journal is read only where there may be one: it may be long."""
    query = "SELECT name FROM run_archive WHERE run_id = :run_id AND name = 'book-1'"
    if not reader.rows(query, run_id=run_id):  # never planned again, as for a change
        return {}
    begin = '{"kind": "change"%'
    query = "SELECT id FROM run_message WHERE run_id = :run_id AND body LIKE :begin LIMIT 1"
    if not reader.rows(query, run_id=run_id, begin=begin):
        return {}
    query = (
        "SELECT body FROM run_event WHERE run_id = :run_id AND body LIKE :begin ORDER BY position"
    )
    changed: Json = {}
    for (body,) in reader.rows(query, run_id=run_id, begin=begin):
        event = json.loads(body)
        if not event.get("refused"):
            fields = {name: event["change"][name] for name in ("deadline_s", "needed")}
            changed |= {name: value for name, value in fields.items() if value is not None}
            changed["promise"] = event["promise"]
    return changed


def _advise_on_run(reader: RecordReader, run_id: str) -> str:
    """Return advice about a run without a manager."""
    query = "SELECT name FROM run_archive WHERE run_id = :run_id AND name = 'book-0'"
    if reader.rows(query, run_id=run_id):
        return (
            f"its manager has ended: 'vgrads resume {run_id}' continues the run, 'vgrads cancel "
            f"{run_id}' releases all slots"
        )
    if is_queued(reader, run_id):
        return (
            "it has not started: a service starts it ('vgrads serve'), 'vgrads cancel "
            f"{run_id}' ends it"
        )
    return (
        f"it was stopped before it started: 'vgrads cancel {run_id}' ends it; then run its set "
        "again"
    )


def is_queued(reader: RecordReader, run_id: str) -> bool:
    """Return True while a run is queued or taken by a service."""
    query = "SELECT id FROM work WHERE run_id = :run_id AND state IN ('queued', 'taken')"
    return bool(reader.rows(query, run_id=run_id))


class NamedWork(NamedTuple):
    """What an id or a name means: a set, a run, a bag of tasks (also that of a matrix), or a pool.
    ``run_id``: the run itself, or the newest one of the set; empty where there is none."""

    kind: Literal["set", "run", "bag", "pool"]
    id: str
    set_id: str = ""
    run_id: str = ""

    @property
    def unique(self) -> str:
        """Return the id that means this and nothing else."""
        return f"{_POOL}{self.id}" if self.kind == "pool" else self.run_id or self.id


class AmbiguousNameError(InputError):
    """A name of several; ``parts``: their ids."""


class InapplicableError(InputError):
    """An action that what is named does not have, or not now; ``parts``: ids of what prevents
    it."""


def active_run(run_id: str) -> InapplicableError:
    """Return the error of a request for another run of a set that has an active one."""
    fix = "cancel it first, or wait for its end"
    return InapplicableError("a run of the set has not ended", (run_id,), fix=fix)


def find_named(reader: RecordReader, name: str, owner: str | None = None) -> NamedWork:
    """Return what has this id, or is the only one with this name; ``owner``: among what this user
    owns. A set that never ran counts only where nothing else has the name. Raise InputError if
    there is none, AmbiguousNameError if there are several."""
    result = _find_by_id(reader, name, owner) or _find_by_name(reader, name, owner)
    if not result:
        raise InputError(
            f"no run '{name}', and no set, bag or pool of that id or name",
            fix="list runs with 'vgrads status', bags with 'vgrads bags status'",
        )
    if len(result) > 1:
        raise AmbiguousNameError(
            f"'{name}' is the name of {len(result)}",
            tuple(work.unique for work in result[:_SHOWN]),
            fix="state one of these ids",
        )
    return result[0]


def _find_by_id(reader: RecordReader, name: str, owner: str | None) -> list[NamedWork]:
    runs = _find_sets(reader, "r.id", name, owner)
    return (
        [NamedWork("run", name, work.set_id, name) for work in runs]
        or _find_sets(reader, "s.id", name, owner)
        or _find_bags(reader, "id", name, owner)
        or (_find_pools(reader, name.removeprefix(_POOL), owner) if name.startswith(_POOL) else [])
    )


def _find_by_name(reader: RecordReader, name: str, owner: str | None) -> list[NamedWork]:
    sets = _find_sets(reader, "s.name", name, owner)
    others = _find_bags(reader, "name", name, owner) + _find_pools(reader, name, owner)
    return [work for work in sets if work.run_id] + others or sets


def _find_sets(reader: RecordReader, column: str, value: str, owner: str | None) -> list[NamedWork]:
    query = "SELECT s.id, r.id FROM workflow_set s LEFT JOIN run r ON r.set_id = s.id"
    rows = reader.rows(
        f"{query} WHERE {column} = :value {_select_owner(owner, 's.owner')} ORDER BY r.started",
        value=value,
        owner=owner,
    )
    # in the order of their starts, so that the newest run of a set replaces the others
    newest = {id_: run_id for id_, run_id in rows}
    return [NamedWork("set", id_, id_, run_id or "") for id_, run_id in reversed(newest.items())]


def _find_bags(reader: RecordReader, column: str, value: str, owner: str | None) -> list[NamedWork]:
    rows = reader.rows(
        f"SELECT id FROM bag WHERE {column} = :value {_select_owner(owner, 'owner')} "
        "ORDER BY created DESC",
        value=value,
        owner=owner,
    )
    return [NamedWork("bag", id_) for (id_,) in rows]


def _find_pools(reader: RecordReader, name: str, owner: str | None) -> list[NamedWork]:
    query = f"SELECT name FROM pool WHERE name = :name {_select_owner(owner, 'owner')}"
    return [NamedWork("pool", id_) for (id_,) in reader.rows(query, name=name, owner=owner)]


def _select_owner(owner: str | None, column: str) -> str:
    return "" if owner is None else f"AND {column} = :owner"


_NOT_FOR = {
    ("pool", "logs"): (
        "a pool, which has no logs",
        "vgrads pool explain {0} has its decisions, vgrads bags logs BAG the tasks on its nodes",
    ),
    ("pool", "cancel"): (
        "a pool, which has no command to cancel it",
        "Ctrl-C ends 'vgrads pool run' and releases its nodes",
    ),
    ("pool", "archive"): ("a pool, which is listed while it is there", "name a run, set or bag"),
    ("pool", "resume"): ("a pool", "start it again with 'vgrads pool run POOL.yaml'"),
    ("pool", "retry"): ("a pool, which has no tasks of its own", "name the run"),
}


def refuse_inapplicable(work: NamedWork, verb: str) -> None:
    """Raise InapplicableError where this kind of work does not have the action."""
    if (work.kind, verb) in _NOT_FOR:
        what, fix = _NOT_FOR[work.kind, verb]
        raise InapplicableError(f"'{work.id}' is {what}", fix=fix.format(work.id))

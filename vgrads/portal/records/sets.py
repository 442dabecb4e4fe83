"""Workflow sets of the service: heads for lists, plans with revisions, and idempotent
submissions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import and_, delete, or_, update
from sqlmodel import Session, col, select

from vgrads.kernel.errors import InputError
from vgrads.portal.records.idempotency import Key, once
from vgrads.portal.records.reader import new_id
from vgrads.portal.records.reading.run_rows import GOES_ON, InapplicableError, active_run
from vgrads.portal.records.store import new_run, summary_of
from vgrads.portal.records.tables import KeyRow, PlanRow, RunRow, SetRow, WorkRow
from vgrads.portal.records.work import PLAN, RUN

if TYPE_CHECKING:
    from vgrads.planner.plan import Plan
    from vgrads.planner.snapshot import Snapshot

Json = dict[str, Any]
_HEAD = (
    "id",
    "name",
    "created",
    "owner",
    "state",
    "problem",
    "revision",
    "real",
    "planned_s",
    "summary",
    "archived_s",
)


@dataclass(frozen=True, slots=True)
class Head:
    """A set without its plan, for lists."""

    id: str
    name: str
    created: datetime
    owner: str
    state: str
    problem: str
    revision: int
    real: bool
    planned_s: float
    summary: Mapping[str, Any]
    archived_s: float | None

    @property
    def cursor(self) -> str:
        """Return the start of the next page of a list."""
        return f"{self.created.isoformat()}~{self.id}"

    @property
    def etag(self) -> str:
        """Return a tag that changes with the plan."""
        return f'"{self.revision}-{self.state}"'


@dataclass(frozen=True, slots=True)
class NewSet:
    """A set to be stored: ``document`` and ``options`` of planning as JSON; ``tasks``: how many it
    has, None where that is not known."""

    name: str
    document: str
    options: str = "{}"
    tasks: int | None = None


class Sets:
    """The sets of a database."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def head(self, set_id: str) -> Head | None:
        """Return a set; None where there is none."""
        with Session(self._engine) as session:
            row = session.execute(select(*_list_columns()).where(SetRow.id == set_id)).first()
        return self._head(tuple(row)) if row is not None else None

    def heads(
        self,
        owner: str | None = None,
        limit: int = 50,
        after: str = "",
        name: str = "",
        state: str | None = None,
    ) -> list[Head]:
        """Return sets, newest first, of one owner or of all, of a name, in a state; ``after``:
        those after the head with this cursor."""
        query = select(*_list_columns()).order_by(col(SetRow.created).desc(), col(SetRow.id).desc())
        if owner is not None:
            query = query.where(SetRow.owner == owner)
        if name:
            query = query.where(SetRow.name == name)
        if state:
            query = query.where(SetRow.state == state)
        if after:
            created, set_id = _read_cursor(after)
            # sets of the same instant are ordered by their ids
            earlier = and_(SetRow.created == created, SetRow.id < set_id)  # type: ignore[arg-type]
            query = query.where(or_(SetRow.created < created, earlier))  # type: ignore[arg-type]
        with Session(self._engine) as session:
            return [self._head(tuple(row)) for row in session.execute(query.limit(limit)).all()]

    def text(self, set_id: str, what: str) -> str:
        """Return the document, the options, the plan or the chart of a set, as JSON."""
        with Session(self._engine) as session:
            name: str = session.execute(
                select(getattr(SetRow, what)).where(SetRow.id == set_id)
            ).scalar_one()
        return name

    def add(self, owner: str, new: NewSet, real: bool, key: Key | None = None) -> Json:
        """Store a set for planning, and queue the planning; return the answer for the caller."""

        def make(session: Session) -> Json:
            row = SetRow(
                id=new_id("set"),
                name=new.name,
                created=datetime.now(UTC),
                owner=owner,
                real=real,
                plan="{}",
                document=new.document,
                options=new.options,
                gantt="{}",
                state="planning",
                revision=0,
            )
            set_id = row.id
            # work refers to the row of its set
            session.add(row)
            session.flush()
            session.add(WorkRow(kind=PLAN, set_id=set_id, tasks=new.tasks))
            return {
                "id": set_id,
                "name": new.name,
                "plan": f"/v1/workflow-sets/{set_id}/plan",
            }

        return once(self._engine, key, make)

    def plan_again(self, set_id: str, revision: int) -> bool:
        """Queue a set for planning again; return False where its plan no longer has this
        revision."""
        with Session(self._engine) as session:
            row = session.get_one(SetRow, set_id)
            if row.revision != revision or row.state == "planning":
                return False
            row.state, row.archived_s = "planning", None
            session.add(row)
            tasks = json.loads(row.summary).get("counts", {}).get("tasks")
            session.add(WorkRow(kind=PLAN, set_id=set_id, tasks=tasks))
            session.commit()
        return True

    def put_plan(self, set_id: str, plan: Plan, snapshot: Snapshot) -> None:
        """Store the plan of a set."""
        # imported late: the service itself reads and writes no plan as an object
        from vgrads.api.plans.answers import gantt_json, plan_json
        from vgrads.portal.records.archive import pack

        whole = plan_json(plan)
        with Session(self._engine) as session:
            row = session.get_one(SetRow, set_id)
            row.plan, row.gantt = json.dumps(whole), json.dumps(gantt_json(plan, snapshot))
            summary = summary_of(whole, snapshot.workflow_set.budget_usd)
            row.summary, row.planned_s = json.dumps(summary), time.time()
            row.state, row.problem, row.revision = "planned", "", row.revision + 1
            session.add(row)
            session.merge(PlanRow(set_id=set_id, body=pack((plan, snapshot))))
            session.commit()

    def fail(self, set_id: str, problem: str) -> None:
        """Mark a set whose planning failed. An earlier plan stays."""
        with Session(self._engine) as session:
            row = session.get_one(SetRow, set_id)
            row.state, row.problem = "planned" if row.revision else "failed", problem
            session.add(row)
            session.commit()

    def archived(self, set_id: str) -> tuple[Plan, Snapshot] | None:
        """Return the newest plan as an object; None where none was stored."""
        # imported late, as in put_plan
        from vgrads.portal.records.archive import unpack

        with Session(self._engine) as session:
            row = session.get(PlanRow, set_id)
        return unpack(row.body, f"plan of '{set_id}'") if row is not None else None

    def add_run(self, set_id: str, how: Json, key: Key | None = None) -> Json:
        """Queue a run; return the answer for the caller. Raise InapplicableError where the set has
        an active one: its tasks would be run twice at once."""

        def make(session: Session) -> Json:
            refuse_active_run(session, set_id)
            row = new_run(set_id)
            row.how = json.dumps(how)
            run_id = row.id
            # work refers to the row of its run
            session.add(row)
            session.flush()
            session.add(WorkRow(kind=RUN, set_id=set_id, run_id=run_id))
            return {"run": run_id}

        return once(self._engine, key, make)

    def run(self, run_id: str) -> RunRow | None:
        """Return one run."""
        with Session(self._engine) as session:
            return session.get(RunRow, run_id)

    def engine_of(self, run_id: str) -> str:
        """Return the engine of a run's tasks: ``vgrads`` or ``outside``."""
        row = self.run(run_id)
        return str(json.loads(row.how).get("engine", "vgrads")) if row else "vgrads"

    def is_released(self, set_id: str) -> bool:
        """Return True where the tasks of a set start only when they are released."""
        return '"released": true' in self.text(
            set_id, "document"
        )  # quotes within texts are escaped

    def forget(self, set_id: str) -> None:
        """Remove a set that was never planned, with its work; its key may be used again."""
        with Session(self._engine) as session:
            session.execute(delete(KeyRow).where(col(KeyRow.answer).contains(set_id)))
            session.execute(delete(WorkRow).where(col(WorkRow.set_id) == set_id))
            session.execute(delete(SetRow).where(col(SetRow.id) == set_id))
            session.commit()

    def _head(self, row: tuple[Any, ...]) -> Head:
        fields = dict(zip(_HEAD, row, strict=True))
        return Head(**fields | {"summary": json.loads(fields["summary"])})


def refuse_active_run(session: Session, set_id: str) -> None:
    """Raise InapplicableError where a set has an active run; it gets none during the rest of the
    transaction."""
    # written first, so that of two such transactions the second waits for the first
    of_set = update(SetRow).where(col(SetRow.id) == set_id)
    session.execute(of_set.values(state=col(SetRow.state)))
    goes_on = (col(RunRow.set_id) == set_id, col(RunRow.state).in_(GOES_ON))
    if active := session.exec(select(RunRow.id).where(*goes_on)).first():
        raise active_run(active)


def refuse_unended_set(session: Session, set_id: str) -> None:
    """Raise InapplicableError while a set is planned or a run of it has not ended."""
    refuse_active_run(session, set_id)
    planned = (col(SetRow.id) == set_id, col(SetRow.state) == "planning")
    if session.exec(select(SetRow.id).where(*planned)).first():
        fix = "wait until it is planned"
        raise InapplicableError("the set is being planned", (set_id,), fix=fix)


def _list_columns() -> list[Any]:
    return [getattr(SetRow, name) for name in _HEAD]


def _read_cursor(text: str) -> tuple[datetime, str]:
    created, _, set_id = text.partition("~")
    try:
        return datetime.fromisoformat(created), set_id
    except ValueError as error:
        raise InputError("is not a cursor of this list", where="after") from error

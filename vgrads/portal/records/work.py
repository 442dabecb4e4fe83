"""The queue of background work, in the database: each piece is done once, by the first process to
take it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import func, or_, update
from sqlmodel import Session, col, select

from vgrads.kernel.progress import PhaseProgress
from vgrads.portal.records.engine_reader import EngineReader
from vgrads.portal.records.heartbeat import Watch, is_dead
from vgrads.portal.records.lease import heartbeat_of, make_heartbeat
from vgrads.portal.records.reading.run_rows import is_queued
from vgrads.portal.records.tables import SetRow, WorkRow

PLAN, RUN = "plan", "run"
SMALL = 200
"""Most tasks of a set whose planning takes about a second, so that it need not wait for others."""
_PROGRESS_S = 0.5  # between two stored reports
MOST_TRIES = 3
"""Number of processes that may die with a piece of work before it is given up."""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A piece of work that was taken. ``tries``: processes that died with it; ``is_small``: the
    planning of a set with few tasks."""

    id: int
    kind: str
    set_id: str
    run_id: str
    tries: int
    is_small: bool = False


@dataclass(frozen=True, slots=True)
class PlanningProgress:
    """The state of a set's planning: ``taken`` by a service, or still queued; its current phase,
    and since when it has been planned (Unix time); the phase is empty before the first report."""

    taken: bool
    phase: str = ""
    done: int = 0
    total: int = 0
    began_s: float = 0.0


class Works:
    """The queue. Several services may share it."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine, self._watch = engine, Watch()

    def add_run(self, set_id: str, run_id: str) -> None:
        """Queue a run that exists, to be resumed."""
        with Session(self._engine) as session:
            session.add(WorkRow(kind=RUN, set_id=set_id, run_id=run_id))
            session.commit()

    def claim(
        self,
        owner: str,
        kinds: Sequence[str],
        busy: Container[int] = (),
        is_small: bool | None = None,
    ) -> WorkItem | None:
        """Take a piece of these kinds that nobody works on; None where there is none: one whose
        process is gone, else the oldest of the user of whose work the least is taken.

        ``busy``: the owner's current work. Other work recorded as its own is not known to it: the
        answer was lost. ``is_small``: sets of at most :data:`SMALL` tasks, or all others.
        """
        which: list[Any] = [col(WorkRow.kind).in_(kinds)]
        if is_small is not None:
            small = col(WorkRow.tasks) <= SMALL
            which.append(small if is_small else or_(~small, col(WorkRow.tasks).is_(None)))
        others = select(WorkRow).where(*which, col(WorkRow.state) == "taken")
        with Session(self._engine) as session:
            rows = [
                *session.exec(others.order_by(col(WorkRow.id))),
                *_select_oldest(session, which),
            ]
            # copies: a commit makes the session read its rows again, with what others wrote since
            for row in [row.model_copy() for row in rows]:
                if row.id in busy:
                    continue
                taken = row.state == "taken" and row.owner not in ("", owner)
                answered = taken and not self._watch.judge(heartbeat_of(session, row))
                if not answered and _take(session, row, owner):
                    return _make_item(row)
        return None

    def renew(self, owner: str) -> None:
        """Renew the owner's work."""
        self._update(
            col(WorkRow.owner) == owner,
            col(WorkRow.state) == "taken",
            heartbeats=WorkRow.heartbeats + 1,
        )

    def finish(self, work: WorkItem, done: bool) -> None:
        """Remove finished work."""
        self._update(col(WorkRow.id) == work.id, state="done" if done else "failed")

    def release(self, owner: str, work: WorkItem | None = None) -> None:
        """Return taken work to the queue; or one piece of it, with which a process died."""
        mine = [col(WorkRow.owner) == owner, col(WorkRow.state) == "taken"]
        if work is None:
            self._update(*mine, state="queued", owner="")
        else:
            self._update(
                *mine, col(WorkRow.id) == work.id, state="queued", owner="", tries=work.tries + 1
            )

    def drop(self, run_id: str) -> bool:
        """Remove a run from the queue if it was not taken, or only by a dead process; return False
        where it was taken."""
        query = select(WorkRow).where(
            WorkRow.run_id == run_id, col(WorkRow.state).in_(("queued", "taken"))
        )
        with Session(self._engine) as session:
            row = session.exec(query).first()
            if row is None or (row.state == "taken" and not is_dead(heartbeat_of(session, row))):
                return False
            # a process that takes the row at the same time changes one of these values
            observed = (
                col(WorkRow.id) == row.id,
                col(WorkRow.state) == row.state,
                col(WorkRow.heartbeats) == row.heartbeats,
            )
            dropped = session.execute(update(WorkRow).where(*observed).values(state="done"))
            session.commit()
        return bool(dropped.rowcount)  # type: ignore[attr-defined]

    def awaits(self, run_id: str) -> bool:
        """Return True while a run is queued or taken by a service."""
        return is_queued(EngineReader(self._engine), run_id)

    def planning(self, set_id: str) -> PlanningProgress | None:
        """Return the progress of a set's planning; None where it is not queued."""
        query = select(WorkRow.state, WorkRow.progress).where(
            WorkRow.set_id == set_id,
            WorkRow.kind == PLAN,
            col(WorkRow.state).in_(("queued", "taken")),
        )
        with Session(self._engine) as session:
            row = session.exec(query.order_by(col(WorkRow.id).desc())).first()
        if row is None:
            return None
        return PlanningProgress(row[0] == "taken", **json.loads(row[1] or "{}"))

    def open_kinds(self) -> dict[str, int]:
        """Return kind → number of queued or taken pieces."""
        query = select(WorkRow.kind).where(col(WorkRow.state).in_(("queued", "taken")))
        with Session(self._engine) as session:
            kinds = session.exec(query).all()
        return {kind: kinds.count(kind) for kind in (PLAN, RUN)}

    def _update(self, *where: object, **values: object) -> None:
        with Session(self._engine) as session:
            change = update(WorkRow).where(*where)  # type: ignore[arg-type]
            session.execute(change.values(**make_heartbeat(session), **values))
            session.commit()


class ProgressRecorder:
    """Stores the progress of a set's planning: each phase, and within a phase at most every half
    second; nothing of a planning that is over sooner."""

    def __init__(self, engine: SqlEngine, set_id: str, interval_s: float = _PROGRESS_S) -> None:
        self._engine, self._set_id, self._interval_s = engine, set_id, interval_s
        self._began_s, self._stored_s = time.time(), time.monotonic()
        self._first_s, self._phase = self._stored_s + interval_s, ""

    def __call__(self, progress: PhaseProgress) -> None:
        """Store a report, unless another one is recent."""
        now_s = time.monotonic()
        recent = progress.phase == self._phase and now_s - self._stored_s < self._interval_s
        if recent or now_s < self._first_s:
            return
        self._stored_s, self._phase = now_s, progress.phase
        text = json.dumps(asdict(progress) | {"began_s": self._began_s})
        current = (WorkRow.set_id == self._set_id, WorkRow.kind == PLAN, WorkRow.state == "taken")
        with Session(self._engine) as session:
            session.execute(update(WorkRow).where(*current).values(progress=text))  # type: ignore[arg-type]
            session.commit()


def _select_oldest(session: Session, which: Sequence[Any]) -> list[WorkRow]:
    """Return the oldest queued piece of each user; first of those of whose work the least is
    taken."""
    user = col(SetRow.owner)
    of_user = (
        select(func.min(col(WorkRow.id)))
        .join(SetRow, col(SetRow.id) == col(WorkRow.set_id))
        .where(*which, col(WorkRow.state) == "queued")
        .group_by(user)
    )
    waiting = (
        select(WorkRow, SetRow.owner)
        .join(SetRow, col(SetRow.id) == col(WorkRow.set_id))
        .where(col(WorkRow.id).in_(of_user))
    )
    taken = (
        select(SetRow.owner)
        .join(WorkRow, col(SetRow.id) == col(WorkRow.set_id))
        .where(col(WorkRow.state) == "taken")
    )
    count = Counter(session.exec(taken))
    rows = sorted(session.exec(waiting), key=lambda row: (count[row[1]], row[0].id or 0))
    return [row for row, _ in rows]


def _make_item(row: WorkRow) -> WorkItem:
    return WorkItem(
        id=int(row.id or 0),
        kind=row.kind,
        set_id=row.set_id,
        run_id=row.run_id or "",
        tries=row.tries,
        is_small=row.kind == PLAN and row.tasks is not None and row.tasks <= SMALL,
    )


def _take(session: Session, row: WorkRow, owner: str) -> bool:
    """Mark a row as taken; return False where another process was faster."""
    # compare and set: several services may try to take the same row
    result = session.execute(
        update(WorkRow)
        .where(
            col(WorkRow.id) == row.id,
            col(WorkRow.state) == row.state,
            col(WorkRow.owner) == row.owner,
            col(WorkRow.heartbeats) == row.heartbeats,
        )
        .values(
            state="taken", owner=owner, heartbeats=row.heartbeats + 1, **make_heartbeat(session)
        )
    )
    session.commit()
    return bool(result.rowcount)  # type: ignore[attr-defined]

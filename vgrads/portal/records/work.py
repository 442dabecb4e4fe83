"""The queue of background work, in the database: what is queued is done once, by whoever takes it
first."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import update
from sqlmodel import Session, col, select

from vgrads.portal.records.lease import Watch, beat_of, is_dead, sign_of_life
from vgrads.portal.records.tables import WorkRow

PLAN, RUN = "plan", "run"
MOST_TRIES = 3
"""After so many processes that died over it, a piece of work is given up."""


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work that was taken. ``tries``: processes that died over it."""

    id: int
    kind: str
    set_id: str
    run_id: str
    tries: int


class Works:
    """The queue. Several services may share it."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine, self._watch = engine, Watch()

    def claim(self, owner: str, kinds: Sequence[str], busy: Container[int] = ()) -> Work | None:
        """Take the oldest piece of these kinds that nobody answers for; None where there is none.

        ``busy``: what the owner is at. What else it has taken, it does not know of: the answer was
        lost.
        """
        query = select(WorkRow).where(
            col(WorkRow.kind).in_(kinds), col(WorkRow.state).in_(("queued", "taken"))
        )
        with Session(self._engine) as session:
            rows = [r.model_copy() for r in session.exec(query.order_by(col(WorkRow.id))).all()]
            for row in rows:
                if row.id in busy:
                    continue
                taken = row.state == "taken" and row.owner not in ("", owner)
                answered = taken and not self._watch.judge(beat_of(session, row))
                if not answered and _take(session, row, owner):
                    return Work(int(row.id or 0), row.kind, row.set_id, row.run_id or "", row.tries)
        return None

    def renew(self, owner: str) -> None:
        """Still at work."""
        self._update(
            col(WorkRow.owner) == owner,
            col(WorkRow.state) == "taken",
            beats=WorkRow.beats + 1,
        )

    def finish(self, work: Work, done: bool) -> None:
        """It need not be done any more."""
        self._update(col(WorkRow.id) == work.id, state="done" if done else "failed")

    def release(self, owner: str, work: Work | None = None) -> None:
        """Let somebody else do what was taken; or one piece of it, over which a process died."""
        mine = [col(WorkRow.owner) == owner, col(WorkRow.state) == "taken"]
        if work is None:
            self._update(*mine, state="queued", owner="")
        else:
            self._update(
                *mine, col(WorkRow.id) == work.id, state="queued", owner="", tries=work.tries + 1
            )

    def drop(self, run_id: str) -> bool:
        """Take a run out of the queue that nobody has taken, or only a process that is dead; False
        where somebody has."""
        query = select(WorkRow).where(
            WorkRow.run_id == run_id, col(WorkRow.state).in_(("queued", "taken"))
        )
        with Session(self._engine) as session:
            row = session.exec(query).first()
            if row is None or (row.state == "taken" and not is_dead(beat_of(session, row))):
                return False
            seen = (
                col(WorkRow.id) == row.id,
                col(WorkRow.state) == row.state,
                col(WorkRow.beats) == row.beats,
            )
            dropped = session.execute(update(WorkRow).where(*seen).values(state="done"))
            session.commit()
        return bool(dropped.rowcount)  # type: ignore[attr-defined]

    def awaits(self, run_id: str) -> bool:
        """True while a run is queued or taken: a service looks after it, or soon will."""
        query = select(WorkRow.id).where(
            WorkRow.run_id == run_id, col(WorkRow.state).in_(("queued", "taken"))
        )
        with Session(self._engine) as session:
            return session.exec(query).first() is not None

    def open_kinds(self) -> dict[str, int]:
        """Kind → how many pieces are queued or taken."""
        query = select(WorkRow.kind).where(col(WorkRow.state).in_(("queued", "taken")))
        with Session(self._engine) as session:
            kinds = session.exec(query).all()
        return {kind: kinds.count(kind) for kind in (PLAN, RUN)}

    def _update(self, *where: object, **values: object) -> None:
        with Session(self._engine) as session:
            session.execute(update(WorkRow).where(*where).values(**sign_of_life(session), **values))  # type: ignore[arg-type]
            session.commit()


def _take(session: Session, row: WorkRow, owner: str) -> bool:
    """Mark a row as taken; False where another was quicker."""
    found = session.execute(
        update(WorkRow)
        .where(
            col(WorkRow.id) == row.id,
            col(WorkRow.state) == row.state,
            col(WorkRow.owner) == row.owner,
            col(WorkRow.beats) == row.beats,
        )
        .values(state="taken", owner=owner, beats=row.beats + 1, **sign_of_life(session))
    )
    session.commit()
    return bool(found.rowcount)  # type: ignore[attr-defined]

"""Targets of alarms: where their owners are notified. A URL contains a secret, as a password or a
token; it is read for a delivery alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Engine as SqlEngine
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, select

from vgrads.portal.records.reading.run_rows import InapplicableError
from vgrads.portal.records.tables import AlarmTargetRow

MOST_TARGETS = 50
"""Of an owner."""


@dataclass(frozen=True)
class AlarmTarget:
    """A target to which messages are delivered. ``is_limited``: it was added over HTTP, so that the
    limits of the operator hold; those of the command line are the operator's own."""

    name: str
    url: str = field(repr=False)
    is_limited: bool = True


@dataclass(frozen=True)
class TargetEntry:
    """What is shown of a target: its name, ``address`` (scheme and host of its URL), and when it
    was added."""

    name: str
    address: str
    created: datetime


class AlarmTargets:
    """Targets in the database, by owner."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def add(self, owner: str, target: AlarmTarget, address: str) -> TargetEntry:
        """Store a target; ``address``: what is shown of its URL. Raise InapplicableError where the
        owner has one with this name, or too many."""
        row = AlarmTargetRow(
            owner=owner,
            name=target.name,
            url=target.url,
            address=address,
            limited=target.is_limited,
            created=datetime.now(UTC),
        )
        entry = TargetEntry(row.name, row.address, row.created)
        self.refuse_another(owner, target.name)
        with Session(self._engine) as session:
            session.add(row)
            try:
                session.commit()
            except IntegrityError:  # another process was faster; its text contains the URL
                raise _refuse_second(target.name) from None
        return entry

    def refuse_another(self, owner: str, name: str) -> None:
        """Raise InapplicableError where an owner has a target with this name, or too many."""
        names = {entry.name for entry in self.list(owner)}
        if name in names:
            raise _refuse_second(name)
        if len(names) >= MOST_TARGETS:
            raise InapplicableError(
                f"there are {len(names)} targets of alarms already", where="name", fix="remove one"
            )

    def list(self, owner: str) -> list[TargetEntry]:
        """Return an owner's targets, by name."""
        shown = (AlarmTargetRow.name, AlarmTargetRow.address, AlarmTargetRow.created)
        query = select(*shown).where(AlarmTargetRow.owner == owner)
        with Session(self._engine) as session:
            rows = session.exec(query.order_by(AlarmTargetRow.name)).all()
        return [TargetEntry(name, address, created) for name, address, created in rows]

    def remove(self, owner: str, name: str) -> bool:
        """Remove a target; return False where there is none."""
        with Session(self._engine) as session:
            row = session.get(AlarmTargetRow, (owner, name))
            if row is None:
                return False
            session.delete(row)
            session.commit()
        return True

    def find(self, owner: str, name: str) -> AlarmTarget | None:
        """Return a target, with the secret in its URL; None where there is none."""
        with Session(self._engine) as session:
            row = session.get(AlarmTargetRow, (owner, name))
            return AlarmTarget(row.name, row.url, row.limited) if row is not None else None


def _refuse_second(name: str) -> InapplicableError:
    return InapplicableError(
        f"there is a target '{name}' already", where="name", fix="remove it first"
    )

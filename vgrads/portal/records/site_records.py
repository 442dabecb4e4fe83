"""Sites in the database, with their links and histories."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete
from sqlmodel import Session, SQLModel, select

from vgrads.portal.records.tables import (
    CollectionRow,
    HistoryRow,
    LinkRow,
    SiteRow,
)


class SiteRecords:
    """Operations on sites, links and histories."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def put(self, rows: Iterable[SQLModel]) -> None:
        """Store sites, links and histories; those of the same names are replaced, all or
        nothing."""
        with Session(self._engine) as session:
            for row in rows:
                session.merge(row)
                session.flush()
            session.commit()

    def put_collected(self, site: str, until_s: float, histories: Iterable[HistoryRow]) -> None:
        """Store histories and their end, both or neither."""
        self.put([*histories, CollectionRow(site=site, until_s=until_s)])

    def collected_until(self, site: str) -> float | None:
        """Return the end of a site's collected accounting; None where there is none."""
        with Session(self._engine) as session:
            row = session.get(CollectionRow, site)
            return row.until_s if row else None

    def histories_of(self, site: str) -> list[HistoryRow]:
        """Return the histories of a site's queues."""
        with Session(self._engine) as session:
            return list(session.exec(select(HistoryRow).where(HistoryRow.site == site)))

    def remove(self, name: str) -> bool:
        """Remove a site with its histories and links; return False where there is none."""
        with Session(self._engine) as session:
            row = session.get(SiteRow, name)
            if row is None:
                return False
            for link in session.exec(select(LinkRow)):
                if name in (link.first_site, link.other):
                    session.delete(link)
            session.execute(delete(HistoryRow).where(HistoryRow.site == name))  # type: ignore[arg-type]
            session.delete(row)
            session.commit()
        return True

    def histories(self) -> list[tuple[str, str]]:
        """Return site and queue of every stored history."""
        with Session(self._engine) as session:
            return [(s, q) for s, q in session.exec(select(HistoryRow.site, HistoryRow.queue))]

    def history(self, site: str, queue: str) -> HistoryRow | None:
        """Return the history of a queue."""
        with Session(self._engine) as session:
            return session.get(HistoryRow, (site, queue))

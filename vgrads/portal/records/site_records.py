"""Sites that are kept in the database, with their links and histories."""

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
    """Sites, links and histories, behind a few verbs."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def put(self, rows: Iterable[SQLModel]) -> None:
        """Keep sites, links and histories; those of the same names are replaced, all or nothing."""
        with Session(self._engine) as session:
            for row in rows:
                session.merge(row)
                session.flush()
            session.commit()

    def put_collected(self, site: str, until_s: float, histories: Iterable[HistoryRow]) -> None:
        """Keep histories and how far they go, both or neither."""
        self.put([*histories, CollectionRow(site=site, until_s=until_s)])

    def collected_until(self, site: str) -> float | None:
        """How far a site's accounting has been collected; None where it never was."""
        with Session(self._engine) as session:
            row = session.get(CollectionRow, site)
            return row.until_s if row else None

    def rows(self) -> tuple[list[SiteRow], list[LinkRow], list[HistoryRow]]:
        """Everything that is known about sites."""
        with Session(self._engine) as session:
            sites = session.exec(select(SiteRow).order_by(SiteRow.name)).all()
            links = session.exec(select(LinkRow)).all()
            return list(sites), list(links), list(session.exec(select(HistoryRow)))

    def remove(self, name: str) -> bool:
        """Forget a site with its histories and links; False where there is none."""
        with Session(self._engine) as session:
            row = session.get(SiteRow, name)
            if row is None:
                return False
            for link in session.exec(select(LinkRow)):
                if name in (link.one, link.other):
                    session.delete(link)
            session.execute(delete(HistoryRow).where(HistoryRow.site == name))  # type: ignore[arg-type]
            session.delete(row)
            session.commit()
        return True

    def histories(self) -> list[tuple[str, str]]:
        """Site and queue of every history that is kept."""
        with Session(self._engine) as session:
            return [(s, q) for s, q in session.exec(select(HistoryRow.site, HistoryRow.queue))]

    def history(self, site: str, queue: str) -> HistoryRow | None:
        """The history of a queue."""
        with Session(self._engine) as session:
            return session.get(HistoryRow, (site, queue))

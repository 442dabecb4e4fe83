"""The audit log, read."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import AuditRow

Json = dict[str, Any]


def audit_rows(store: Store, user: str | None, limit: int) -> list[Json]:
    """Return the newest entries of the audit log."""
    query = select(AuditRow).order_by(col(AuditRow.id).desc()).limit(limit)
    if user is not None:
        query = query.where(AuditRow.user == user)
    with Session(store.engine) as session:
        return [row.model_dump(exclude={"id"}) for row in session.exec(query)]

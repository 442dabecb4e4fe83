"""Sets and bags that have ended are archived: no longer listed, and nothing of them is deleted."""

from __future__ import annotations

import time

from sqlalchemy import update
from sqlmodel import Session, col

from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reading.bags import ENDED
from vgrads.portal.records.reading.run_rows import InapplicableError, NamedWork
from vgrads.portal.records.sets import refuse_unended_set
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import SetRow


def archive_work(store: Store, work: NamedWork, archived: bool) -> dict[str, object]:
    """Archive a set, that of a run, or a bag, or list it again; return the answer for the caller.
    Raise InapplicableError where it is to be archived and has not ended."""
    at_s = time.time() if archived else None
    if work.kind == "bag":
        _archive_bag(BagStore(store.engine), work.id, at_s)
        return {"id": work.id, "archived": archived}
    with Session(store.engine) as session:
        if archived:
            refuse_unended_set(session, work.set_id)
        which = update(SetRow).where(col(SetRow.id) == work.set_id)
        session.execute(which.values(archived_s=at_s))
        session.commit()
    return {"id": work.set_id, "archived": archived}


def _archive_bag(bags: BagStore, bag_id: str, at_s: float | None) -> None:
    state = bags.get(bag_id).state
    if at_s is not None and state not in ENDED:
        raise InapplicableError(f"the bag has not ended: {state}", (bag_id,), fix="cancel it first")
    bags.archive(bag_id, at_s)

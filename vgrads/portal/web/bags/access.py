"""Which bags a user may see, and which can be changed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path as PathParameter
from starlette.exceptions import HTTPException

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import is_worked_on
from vgrads.kernel.errors import InputError
from vgrads.portal.records.access import Principal
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reading.bags import ENDED, HERE, BagEntry
from vgrads.portal.web.service import Service

BagId = Annotated[str, PathParameter(pattern=r"^bag-[0-9a-f]{10}$", examples=["bag-0123456789"])]


def visible_bag(service: Service, bag_id: str, who: Principal) -> BagEntry:
    """Return a bag that the user may see; 404 where there is none, or it belongs to another
    user."""
    try:
        row = BagStore(service.store.engine).get(bag_id)
    except InputError as error:
        raise HTTPException(404, error.what) from error
    if not (who.operator or row.owner == who.user):
        raise HTTPException(404, f"no bag '{bag_id}'")
    return row


def refuse_unattended(row: BagEntry, verb: str) -> None:
    """Raise 409 for a terminal bag, or one of the command line whose dispatcher is gone: no service
    replaces that."""
    if row.state in ENDED:
        raise HTTPException(409, f"bag '{row.id}' has ended: {row.state}")
    if row.owner == HERE and not is_worked_on(dispatcher_folder(row.dispatcher)):
        raise HTTPException(
            409, f"no dispatcher is running for bag '{row.id}'; see vgrads bags {verb}"
        )

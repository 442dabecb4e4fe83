"""REST: the records of sets and bags that have ended are deleted; the folders of their results
stay."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import is_worked_on, read_status
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reading.bags import ENDED, BagEntry
from vgrads.portal.records.retention import remove_ended_set
from vgrads.portal.web.answers import NOTHING, answers
from vgrads.portal.web.bags.access import BagId, visible_bag
from vgrads.portal.web.guard import Submitter
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId


def add_record_routes(app: FastAPI, service: Service) -> None:
    """Add the routes. ``DELETE`` of a set or bag itself cancels it."""

    @app.delete(
        "/v1/workflow-sets/{set_id}/records",
        status_code=204,
        **answers(NOTHING, operation="delete_set_records", tag="workflow sets", errors=(404, 409)),
    )
    def delete_set_records(set_id: SetId, who: Submitter) -> None:
        """Delete a set whose runs have ended, with its plan and runs; the folders of its results
        stay."""
        service.visible(set_id, who)
        remove_ended_set(service.store, set_id)

    @app.delete(
        "/v1/bags/{bag_id}/records",
        status_code=204,
        **answers(NOTHING, operation="delete_bag_records", tag="bags", errors=(404, 409)),
    )
    def delete_bag_records(bag_id: BagId, who: Submitter) -> None:
        """Delete a bag that has ended; its folder stays, but later bags do not reuse its
        results."""
        row, bags = visible_bag(service, bag_id, who), BagStore(service.store.engine)
        if row.state not in ENDED:
            raise HTTPException(409, f"bag '{bag_id}' has not ended: {row.state}")
        if bags.of(row.dispatcher) == [row]:
            _refuse_last_of_dispatcher(row)
        bags.remove(bag_id)


def _refuse_last_of_dispatcher(row: BagEntry) -> None:
    """Raise 409 where a bag's dispatcher has not ended: without a bag nobody would know of it, and
    of the slots that it holds."""
    folder = dispatcher_folder(row.dispatcher)
    status = read_status(folder)
    if is_worked_on(folder) or (status.get("state") != "ended" and status.get("slots")):
        text = f"the dispatcher of bag '{row.id}' has not released its nodes yet"
        raise HTTPException(409, text, {"Retry-After": "5"})

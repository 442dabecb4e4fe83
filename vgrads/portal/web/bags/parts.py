"""REST: the large parts of calls of functions, which are sent before the calls."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi import Path as PathParameter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.bag_service import source_of
from vgrads.portal.records.reading.bags import ENDED
from vgrads.portal.web.answers import answers
from vgrads.portal.web.bags.access import BagId, visible_bag
from vgrads.portal.web.guard import Submitter
from vgrads.portal.web.service import Service

Digest = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{64}$", examples=["0" * 64])]
_PART = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


def add_part_routes(app: FastAPI, service: Service) -> None:
    """Add the route that receives a part."""

    @app.put(
        "/v1/bags/{bag_id}/parts/{digest}",
        status_code=201,
        **answers(
            "bags.StoredPart",
            operation="store_part",
            tag="bags",
            errors=(404, 409, 507),
            extra={"requestBody": _PART},
        ),
    )
    async def put_part(
        bag_id: BagId, digest: Digest, request: Request, who: Submitter
    ) -> dict[str, Any]:
        """Store a large part of calls of functions, packed, under its SHA-256. One that is there is
        not received again."""
        row = await run_in_threadpool(visible_bag, service, bag_id, who)
        if row.state in ENDED:
            raise HTTPException(409, f"bag '{bag_id}' has ended: {row.state}")
        folder = source_of(row) / "parts"
        if not await run_in_threadpool((folder / digest).is_file):
            await _receive(request, folder, digest)
        return {"id": row.id, "part": digest}


async def _receive(request: Request, folder: Path, digest: str) -> None:
    draft = folder / f".{uuid.uuid4().hex}"
    total = hashlib.sha256()
    try:
        await run_in_threadpool(folder.mkdir, exist_ok=True)
        with draft.open("wb") as file:
            async for chunk in request.stream():
                total.update(chunk)
                await run_in_threadpool(file.write, chunk)
            # on the disk before it gets its name: a part that exists must be complete
            await run_in_threadpool(_sync_descriptor, file.fileno(), file.flush)
        if total.hexdigest() != digest:
            raise InputError("does not have this SHA-256", where="body")
        draft.replace(folder / digest)
    except OSError as error:
        raise HTTPException(507, f"cannot be stored: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _sync_descriptor(descriptor: int, flush: Callable[[], None]) -> None:
    flush()
    os.fsync(descriptor)

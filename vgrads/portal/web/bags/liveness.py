"""Signs of life of a bag's client: an open bag without any is closed by its dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from vgrads.api.config import dispatcher_folder
from vgrads.portal.records.reading.bags import BagEntry

_HEARTBEAT_S = 1.0


def note_client_of(row: BagEntry) -> None:
    """Record a request of a bag's client."""
    # imported late: the service starts without the dispatcher
    from vgrads.dispatch.storage.folder import note_client

    note_client(dispatcher_folder(row.dispatcher), row.number)


async def while_connected(
    request: Request, row: BagEntry, lines: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """Yield lines; as long as the client is connected it is alive, also while there are none."""
    heartbeat = asyncio.create_task(_read_heartbeat(request, row))
    try:
        async for line in lines:
            yield line
    finally:
        heartbeat.cancel()


async def _read_heartbeat(request: Request, row: BagEntry) -> None:
    while not await request.is_disconnected():
        await run_in_threadpool(note_client_of, row)
        await asyncio.sleep(_HEARTBEAT_S)

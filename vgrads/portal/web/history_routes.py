"""REST: upload of a queue's log, streamed to a file, checked, and only then put in place of the old
one."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from vgrads.api.config import home
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.tables import HistoryRow
from vgrads.portal.web.answers import answers
from vgrads.portal.web.guard import Operator
from vgrads.portal.web.service import Service
from vgrads.vgrid.catalog import Catalog, Queue

if TYPE_CHECKING:
    from vgrads.traces.records import JobLog

_CHUNK = 1 << 20
_BINARY = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": _BINARY}}
_LOG = {
    "required": True,
    "content": {
        "application/octet-stream": {"schema": _BINARY},
        "multipart/form-data": {"schema": _FORM},
    },
}
_ENDINGS = {b"\x1f\x8b": ".gz", b"\xfd7": ".xz"}  # the first bytes of gzip and of xz


def add_history_routes(app: FastAPI, service: Service) -> None:
    """Add the upload of histories."""

    @app.post(
        "/v1/sites/{site}/history",
        status_code=201,
        **answers(
            "sites.HistoryUploaded",
            operation="upload_history",
            tag="sites",
            errors=(404,),
            extra={"requestBody": _LOG},
        ),
    )
    async def upload(
        site: str,
        request: Request,
        _: Operator,
        queue: Annotated[str | None, Query(max_length=200)] = None,
        form: Annotated[str | None, Query(alias="format", max_length=20)] = None,
    ) -> dict[str, Any]:
        """Upload a log (any format that vgrads reads; plain, gzip or xz) as the body, or as the
        file of a form: it becomes the history of a queue."""
        # imported late: only uploads need the formats of logs
        from vgrads.api.queues.queries import reading_json
        from vgrads.traces.history import FORMATS

        if form is not None and form not in FORMATS:
            raise InputError(f"unknown format '{form}'", where="format", fix=", ".join(FORMATS))
        target = _find_queue(service.catalog, site, queue)
        folder = uploads()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = await _receive(_read_body(request), Path(place) / "history")
            limit = service.bounds.history
            log = await run_in_threadpool(_read, path, form, target, limit)
            row = HistoryRow(
                site=site,
                queue=target.name,
                file=path.name,
                changed=datetime.now(UTC),
                body=path.read_bytes(),
            )
            await run_in_threadpool(SiteRecords(service.store.engine).put, [row])
        await run_in_threadpool(service.sites.refresh)
        return {
            "site": site,
            "queue": target.name,
            "jobs": len(log),
            "format": form or "detected",
            "reading": reading_json(log),
        }


def uploads() -> Path:
    """Return the folder of logs that are not yet checked."""
    return home() / "uploads"


def clear_uploads() -> None:
    """Remove incomplete uploads of a service that was killed."""
    shutil.rmtree(uploads(), ignore_errors=True)


def _find_queue(catalog: Catalog, name: str, queue: str | None) -> Queue:
    site = next((s for s in catalog.sites if s.name == name), None)
    if site is None:
        raise HTTPException(404, f"no site '{name}'")
    queues = [q for q in site.queues if queue in (None, q.name)]
    if len(queues) != 1:
        choices = ", ".join(q.name for q in site.queues)
        raise InputError(
            "the name of the queue is missing", where="queue", fix=f"choose one of {choices}"
        )
    return queues[0]


async def _read_body(request: Request) -> AsyncIterator[bytes]:
    """Return the log's bytes: the body itself, or the one file of a form (``curl -F
    file=@LOG``)."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        async for chunk in request.stream():
            yield chunk
        return
    async with request.form(max_files=1, max_fields=10) as form:
        files = [value for value in form.values() if isinstance(value, UploadFile)]
        if not files:
            raise InputError("the form has no file", where="body")
        while chunk := await files[0].read(_CHUNK):
            yield chunk


async def _receive(stream: AsyncIterator[bytes], path: Path) -> Path:
    """Store the body in a file, with the extension of its compression."""
    first = b""
    with path.open("wb") as file:
        async for chunk in stream:
            first = first or chunk[:2]
            await run_in_threadpool(file.write, chunk)
    return path.rename(path.with_suffix(_ENDINGS.get(first, ".txt")))


def _read(path: Path, form: str | None, queue: Queue, limit: int) -> JobLog:
    """Read the log; it must be valid and have jobs of the queue."""
    # imported late: only uploads need the formats of logs
    from vgrads.traces.history import read_history

    try:
        _measure(path, limit)
        log = read_history(path, form)
        if not len(log.only_queue(queue.of_log)):
            raise InputError(f"contains no job of queue '{queue.log_queue}'")
    except InputError as error:
        raise InputError(error.without_place, where="body") from error
    return log


def _measure(path: Path, limit: int) -> None:
    """Raise InputError for a file that would unpack to more than the limit, without unpacking more
    than that."""
    if path.suffix not in _ENDINGS.values():
        return
    opener: Any = gzip.open if path.suffix == ".gz" else lzma.open
    size = 0
    try:
        with opener(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise InputError(
                        f"unpacks to more than {format_count(limit, 'byte')}", where="body"
                    )
    except (EOFError, zlib.error, OSError, lzma.LZMAError) as error:
        raise InputError("the compressed file is cut off or damaged", where="body") from error

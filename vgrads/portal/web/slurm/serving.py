"""Serves Slurm's commands of one user on a Unix socket and an address, until unused."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vgrads.api.slurm.service import LOG, SlurmService, refuse_second, socket_of
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.storage.status import exclusive, is_worked_on
from vgrads.kernel.errors import InputError, brief
from vgrads.kernel.files import write_whole
from vgrads.kernel.watchdog import Watchdog
from vgrads.slurm.program import listens
from vgrads.vgrid.catalog import Catalog

_log = logging.getLogger(__name__)
_LOOK_S = 1.0
_LONGEST_LOG = 10_000_000  # bytes


@dataclass(frozen=True)
class SlurmServing:
    """How the service runs. ``idle_s``: it ends when no job was unfinished and no command came for
    so long; ``keep_s``: how long ended jobs are listed; ``address``: where it listens apart from
    its socket, for those who have the token (``FOLDER/token``); port 0: any; ``rules``: of its
    dispatcher, ``stuck_s`` of them also of its own loop."""

    idle_s: float
    keep_s: float
    address: tuple[str, int] | None = None
    rules: Rules = field(default_factory=Rules)


def serve_slurm(
    folder: Path, catalog: Catalog, how: SlurmServing, on_start: Callable[[str], None]
) -> None:
    """Serve until interrupted or unused, or until no job can run any more: the next command starts
    it anew.

    ``on_start``: called with the places where commands are accepted. Raise InputError where another
    process serves this folder, or an address cannot be used.
    """
    path = socket_of(folder)
    while is_worked_on(folder):
        if listens(str(path)):
            refuse_second(folder)
        time.sleep(_LOOK_S / 10)  # it ends
    with exclusive(folder), _bound(how.address) as listener:
        service = SlurmService(folder, catalog, keep_s=how.keep_s, rules=how.rules)
        service.start()
        try:
            path.unlink(missing_ok=True)
            with _serve_also_at(service, folder, listener) as place:
                places = f"{path}{place and f' and {place}'}"
                asyncio.run(_serve(service, path, how, partial(on_start, places)))
        finally:
            path.unlink(missing_ok=True)
            service.stop()


@contextmanager
def _bound(address: tuple[str, int] | None) -> Iterator[socket.socket | None]:
    """Bind an address. Raise InputError where that fails."""
    if address is None:
        yield None
        return
    with socket.socket() as listener:
        # connections of the service before may still be in TIME_WAIT
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            raise InputError(f"cannot be used: {error.strerror}", where=where) from error
        yield listener


@contextmanager
def _serve_also_at(
    service: SlurmService, folder: Path, listener: socket.socket | None
) -> Iterator[str]:
    """Serve an address in a thread, with the token; yield its URL."""
    if listener is None:
        yield ""
        return
    server = uvicorn.Server(_make_config(_make_app(service, _read_token(folder))))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        host, port = listener.getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join()


def _read_token(folder: Path) -> str:
    """Return the token of a service: a file of mode 600, written once."""
    path = folder / "token"
    if not path.exists():
        write_whole(path, secrets.token_urlsafe(32).encode(), 0o600)
    return path.read_text()


def _make_app(service: SlurmService, token: str = "") -> Starlette:
    """Return the application; with a token, requests need it."""

    async def answer(request: Request) -> Response:
        authorization = request.headers.get("authorization", "").encode()
        # as bytes: texts are compared so only if they are ASCII
        if token and not hmac.compare_digest(authorization, f"Bearer {token}".encode()):
            return Response(json.dumps({"message": "the token is wrong"}), 401)
        command = request.path_params["command"]
        try:
            body = json.loads(await request.body())
            payload = await run_in_threadpool(service.answer, command, body)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            _log.exception("a request for %s", command)
            return Response(json.dumps({"message": brief(error)}), 400)
        return Response(json.dumps(payload), media_type="application/json")

    return Starlette(routes=[Route("/v1/slurm/{command}", answer, methods=["POST"])])


def _make_config(app: Starlette, uds: str | None = None) -> uvicorn.Config:
    return uvicorn.Config(app, uds=uds, log_level="warning", access_log=False, lifespan="off")


async def _serve(
    service: SlurmService, path: Path, how: SlurmServing, on_start: Callable[[], None]
) -> None:
    server = uvicorn.Server(_make_config(_make_app(service), str(path)))

    async def end_when_unused() -> None:
        while not server.started:
            await asyncio.sleep(0.01)
        # uvicorn makes the socket writable for everybody
        path.chmod(0o600)
        on_start()
        try:
            while await run_in_threadpool(service.unused_s) < how.idle_s and not service.problem:
                _shorten(path.with_name(LOG))
                await asyncio.sleep(_LOOK_S)
            service.store_problem()  # before nobody answers any more
        finally:
            server.should_exit = True

    watch = asyncio.create_task(end_when_unused())
    watchdog = Watchdog(how.rules.stuck_s, partial(_report_stuck, how.rules.stuck_s))
    try:
        with watchdog.watching():
            await server.serve()
    finally:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch


def _report_stuck(seconds: float) -> str:
    return (
        f"the service of Slurm's commands made no progress for {seconds:.0f} s and is ended; the "
        "next command starts it, and jobs go on. What each thread was doing:"
    )


def _shorten(log: Path) -> None:
    """Move what a log of the background has, where it is long, to a second file: all who write
    append to the first."""
    try:
        if log.stat().st_size > _LONGEST_LOG:
            shutil.copyfile(log, log.with_name(f"{LOG}.1"))
            os.truncate(log, 0)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _log.warning("%s", error)

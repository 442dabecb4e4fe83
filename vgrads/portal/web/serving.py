"""Serving: addresses, logs, an end in order."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from types import FrameType
from typing import Any

import uvicorn
from pythonjsonlogger.json import JsonFormatter
from starlette.middleware.trustedhost import TrustedHostMiddleware

from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.access import Access, secret_digest
from vgrads.portal.records.database import close_to_others
from vgrads.portal.records.retention import prune
from vgrads.portal.records.sites import choose_catalog
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import Limits
from vgrads.portal.web.oidc import Provider
from vgrads.portal.web.service import Bounds, Service
from vgrads.portal.web.settings import ServiceSettings

_MIB = 2**20
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")
_SHUTDOWN_S = 10
_PRUNE_S = 3600.0
_log = logging.getLogger("vgrads.service")


def refuse_open_door(settings: ServiceSettings, access: Access) -> None:
    """InputError where anybody on the network could come in without a token."""
    if settings.own and not settings.loopback:
        raise InputError("a service of one's own listens on this machine alone", where="host")
    if not settings.loopback and not access.any_token():
        raise InputError(
            f"'{settings.host}' is not a loopback address, and there is no token yet",
            where="host",
            fix="make one: vgrads token create NAME --scope operate",
        )


def make_service(settings: ServiceSettings, store: Store, secret: str = "") -> Any:
    """The application that these settings describe, over an open database; ``secret``: what alone
    opens one of one's own."""
    access = Access(store.engine)
    refuse_open_door(settings, access)
    asks = (
        bool(secret)
        or settings.tokens == "required"
        or not settings.loopback
        or access.ever_token()
    )
    bounds = Bounds(
        own=bool(secret),
        max_tasks=settings.max_tasks,
        url=settings.url.rstrip("/"),
        history=int(settings.max_history_mib * _MIB),
        places=Places(planners=settings.planners, runs=settings.runs),
    )
    limits = Limits(
        own=secret_digest(secret) if secret else "",
        tokens=asks,
        url=settings.url.rstrip("/"),
        rate=settings.rate,
        body=int(settings.max_body_mib * _MIB),
        upload=int(settings.max_upload_mib * _MIB),
    )
    provider = Provider(settings.oidc) if settings.oidc else None
    app = make_app(store, choose_catalog(settings.sites), bounds, limits, provider)
    hosts = settings.allowed_hosts or (_LOCAL_NAMES if settings.loopback else ())
    if hosts:  # a name that somebody else's DNS points here is refused
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    return app


def serve(settings: ServiceSettings) -> None:
    """Serve until a signal comes. What is written is for the service alone."""
    set_up_logs(settings.log)
    os.umask(0o077)
    close_to_others(settings.database)
    with Store(settings.database) as store:
        secret = secrets.token_urlsafe(32) if settings.own else ""
        app = make_service(settings, store, secret)
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            proxy_headers=False,
        )
        server = Server(config, app.state.service, settings, secret)
        threading.Thread(target=app.state.service.warm_up, daemon=True).start()
        try:
            server.run()
        except SystemExit as stop:  # uvicorn's word for an address that is taken
            if stop.code:
                raise SiteError(
                    f"cannot listen on {settings.host}:{settings.port}",
                    site="service",
                    transient=False,
                    fix="see --port",
                ) from stop
            raise


class Server(uvicorn.Server):
    """Tells the service that the end has come, so that open streams end too; prunes once an
    hour."""

    def __init__(
        self, config: uvicorn.Config, service: Service, settings: ServiceSettings, secret: str
    ) -> None:
        super().__init__(config)
        self._service, self._settings, self._pruned_s = service, settings, -_PRUNE_S
        self._secret = secret

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """To whoever began a service of one's own: where it is, and what opens it."""
        await super().startup(sockets)
        if self._secret and self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            where = f"[{host}]" if ":" in host else host
            print(json.dumps({"url": f"http://{where}:{port}", "token": self._secret}), flush=True)
            threading.Thread(target=self._end_with_its_user, daemon=True).start()

    def _end_with_its_user(self) -> None:
        """Standard input ends when whoever began the service does, however; its runs give back what
        they hold."""
        while sys.stdin.buffer.read(1):
            pass
        self._service.supervisor.end_runs("whoever began it has ended")
        self._service.stopping.set()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal."""
        self._service.stopping.set()
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if time.monotonic() - self._pruned_s > _PRUNE_S:
            self._pruned_s = time.monotonic()
            await asyncio.to_thread(self._prune)
        return await super().on_tick(counter)

    def _prune(self) -> None:
        keep_s, history_s = self._settings.keep_s("keep"), self._settings.keep_s("history_keep")
        try:
            gone = prune(self._service.store, keep_s, history_s)
        except Exception:
            _log.exception("what is old could not be removed")
            return
        if any(gone.values()):
            _log.info("removed what is old", extra=gone)


def set_up_logs(kind: str) -> None:
    """Logs to standard error: a line of JSON each, or text."""
    handler = logging.StreamHandler()
    if kind == "json":
        handler.setFormatter(
            JsonFormatter(
                "%(asctime)s %(levelname)s %(name)s %(message)s",
                rename_fields={"asctime": "at", "levelname": "level"},
            )
        )
    else:
        handler.setFormatter(_Text("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.INFO)


class _Text(logging.Formatter):
    """A line for people; of a request, how it was answered and how fast."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        status = getattr(record, "status", None)
        return (
            line
            if status is None
            else f"{line} {status} {getattr(record, 'user', '')} {getattr(record, 'ms', 0)} ms"
        )

"""The server process: addresses, logs, orderly shutdown."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from pythonjsonlogger.json import JsonFormatter
from starlette.middleware.trustedhost import TrustedHostMiddleware

from vgrads.kernel.errors import InputError, SiteError, VgradsError
from vgrads.kernel.extras import require
from vgrads.portal.connections import ConnectionLimits, connections_with
from vgrads.portal.jobs.alarm_delivery import AllowedTargets
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.access import AccessControl, secret_digest
from vgrads.portal.records.database import close_to_others
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.portal.records.retention import prune
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.portal.web.embedding.forecast_access import ForecastAccess
from vgrads.portal.web.guard import RequestLimits
from vgrads.portal.web.service import Bounds, Service
from vgrads.portal.web.settings import OidcSettings, ServiceSettings
from vgrads.vgrid.catalog import Catalog

if TYPE_CHECKING:
    from vgrads.portal.web.oidc import Provider

_MIB = 2**20
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")
_SHUTDOWN_S = 10
_PRUNE_S = 3600.0
_log = logging.getLogger("vgrads.service")


def refuse_open_address(settings: ServiceSettings, access: AccessControl) -> None:
    """Raise InputError where the network could access the service without a token."""
    if settings.own and not settings.loopback:
        raise InputError("a private service must listen on a loopback address", where="host")
    if not settings.loopback and not access.any_token():
        raise InputError(
            f"'{settings.host}' is not a loopback address: a token is required, and none exists",
            where="host",
            fix="create one: vgrads token create NAME --scope operate",
        )


def make_service(settings: ServiceSettings, store: Store, secret: str = "") -> Any:
    """Create the application for these settings over an open database; ``secret``: the only one
    accepted by a personal service."""
    access = AccessControl(store.engine)
    refuse_open_address(settings, access)
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
        wait_gauges=settings.wait_gauges,
        alarms=AllowedTargets(settings.alarm_schemes, settings.alarm_networks),
    )
    limits = RequestLimits(
        own=secret_digest(secret) if secret else "",
        tokens=asks,
        url=settings.url.rstrip("/"),
        rate=settings.rate,
        at_once=settings.at_once,
        body=int(settings.max_body_mib * _MIB),
        upload=int(settings.max_upload_mib * _MIB),
        forecasts=ForecastAccess(origins=settings.origins, public=settings.public_forecasts),
    )
    provider = _make_provider(settings.oidc) if settings.oidc else None
    catalog = choose_catalog(settings.sites)
    for name in missing_queues(settings, catalog):
        _log.warning("the settings name the queue '%s', which no site has", name)
    app = make_app(store, catalog, bounds, limits, provider)
    app.state.service.sites.follow(partial(choose_catalog, settings.sites))
    hosts = settings.allowed_hosts or (_LOCAL_NAMES if settings.loopback else ())
    if hosts:  # reject names that a foreign DNS resolves to here
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    return app


def missing_queues(settings: ServiceSettings, catalog: Catalog) -> list[str]:
    """Return the queues, as ``SITE/QUEUE``, that settings name and no site has."""
    names = [*settings.public_forecasts, *(f"{g.site}/{g.queue}" for g in settings.wait_gauges)]
    configured = {f"{site.name}/{queue.name}" for site in catalog.sites for queue in site.queues}
    return [name for name in dict.fromkeys(names) if name not in configured]


def _make_provider(settings: OidcSettings) -> Provider:
    refuse_without_oidc()
    from vgrads.portal.web.oidc import Provider

    return Provider(settings)


def refuse_without_oidc() -> None:
    """Raise MissingExtraError where no login provider can be used."""
    require("oidc", "a login provider", "oidc")


def serve(settings: ServiceSettings) -> None:
    """Serve until a signal arrives. Files are readable by the service's user only."""
    set_up_logs(settings.log)
    # before any file is created
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
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            http=connections_with(ConnectionLimits(settings.trusted_proxies)),
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
        )
        server = Server(config, app.state.service, settings, secret)
        try:
            server.run()
        except SystemExit as stop:  # uvicorn's reaction to an address in use
            if stop.code:
                raise SiteError(
                    f"cannot listen on {settings.host}:{settings.port}",
                    site="service",
                    transient=False,
                    fix="see --port",
                ) from stop
            raise


class Server(uvicorn.Server):
    """Notifies the service of the shutdown, so that open streams end too; prunes once an hour."""

    def __init__(
        self, config: uvicorn.Config, service: Service, settings: ServiceSettings, secret: str
    ) -> None:
        super().__init__(config)
        self._service, self._settings, self._pruned_s = service, settings, -_PRUNE_S
        self._secret = secret

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Print, for the process that started a personal service, its address and secret. Learn
        from histories once requests are answered."""
        await super().startup(sockets)
        if self.started:
            threading.Thread(target=self._warm_up, daemon=True).start()
        if self._secret and self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            where = f"[{host}]" if ":" in host else host
            print(json.dumps({"url": f"http://{where}:{port}", "token": self._secret}), flush=True)
            threading.Thread(target=self._end_with_its_user, daemon=True).start()

    def _warm_up(self) -> None:
        with suppress(VgradsError):
            self._service.overview.entries(None, lambda _: None)
        self._service.queues.warm_up()
        gc.freeze()  # what is loaded now stays: no answer waits for a search of it

    def _end_with_its_user(self) -> None:
        """Shut down when standard input ends, with the process that started the service; its runs
        release their resources."""
        while sys.stdin.buffer.read(1):
            pass
        self._service.supervisor.end_runs("the program that started the service has ended")
        self._service.stopping.set()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self._service.stopping.set()
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Run periodic checks, ten times per second."""
        if time.monotonic() - self._pruned_s > _PRUNE_S:
            self._pruned_s = time.monotonic()
            await asyncio.to_thread(self._prune)
        return await super().on_tick(counter)

    def _prune(self) -> None:
        keep_s, history_s = self._settings.keep_s("keep"), self._settings.keep_s("history_keep")
        try:
            gone = prune(self._service.store, keep_s, history_s)
        except Exception:
            # the service goes on, and tries again an hour later
            _log.exception("old records could not be removed")
            return
        if any(gone.values()):
            _log.info("removed old records", extra=gone)


def set_up_logs(kind: str) -> None:
    """Write logs to standard error: JSON lines, or text."""
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
    """A log line as text; for a request, its status and duration."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        status = getattr(record, "status", None)
        return (
            line
            if status is None
            else f"{line} {status} {getattr(record, 'user', '')} {getattr(record, 'ms', 0)} ms"
        )

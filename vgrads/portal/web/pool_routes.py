"""REST and pages: managers that take hosts of pools, and pools that lend them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi import Path as PathParameter
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from vgrads.api.pools.ledger import counts
from vgrads.api.pools.ledger_entries import ManagerEntry, PoolEntry
from vgrads.portal.charts.pool_chart import pool_chart
from vgrads.portal.records.access import Principal
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.web.guard import Lender, Reader
from vgrads.portal.web.service import Service
from vgrads.portal.web.showing import page_of, reader_of

Json = dict[str, Any]
Name = Annotated[str, PathParameter(max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$")]
_SECRET = ("key", "certificate", "contact", "slot")


def add_pool_routes(app: FastAPI, service: Service) -> None:
    """Entries of the ledger: written, read, taken out; two pages."""
    _add_managers(app, service)
    _add_pools(app, service)
    _add_pages(app, service)


def _ledger(service: Service, who: Principal) -> PoolLedger:
    return PoolLedger(service.store.engine, None if who.operator else who.user)


def _add_managers(app: FastAPI, service: Service) -> None:
    @app.put("/v1/managers/{name}")
    def publish_manager(name: Name, entry: ManagerEntry, who: Lender) -> Json:
        """Say how a manager stands; the answer tells what pools have decided for it."""
        ledger = PoolLedger(service.store.engine, who.user)
        standing = ledger.publish_manager(name, entry.model_dump(mode="json"))
        return {"pools": list(standing.pools)}

    @app.get("/v1/managers")
    def list_managers(who: Reader) -> list[Json]:
        """The managers that take hosts of pools. Where hosts find them is told to those who lend
        (scope ``pool``)."""
        found = _ledger(service, who).entries("manager")
        hidden = () if who.may("pool") else _SECRET
        return [_told(entry, hidden) for entry in found]

    @app.delete("/v1/managers/{name}", status_code=204)
    def withdraw_manager(name: Name, who: Lender) -> None:
        """Take a manager out that has ended: its hosts go to others at once."""
        _ledger(service, who).withdraw("manager", name)


def _add_pools(app: FastAPI, service: Service) -> None:
    @app.put("/v1/pools/{name}", status_code=204)
    def publish_pool(name: Name, entry: PoolEntry, who: Lender) -> None:
        """Say what a pool has decided, and why."""
        ledger = PoolLedger(service.store.engine, who.user)
        ledger.publish_pool(name, entry.model_dump(mode="json"))

    @app.get("/v1/pools")
    def list_pools(who: Reader) -> list[Json]:
        """The pools: what each has decided for which manager, what it has running, and why."""
        return [_told(entry) for entry in _ledger(service, who).entries("pool")]

    @app.get("/v1/pools/{name}")
    def read_pool(name: Name, who: Reader) -> Json:
        """A pool, with what it had decided and running, and what its managers could use, over
        time."""
        ledger = _ledger(service, who)
        return _pool(ledger, name) | {
            "moments": [{"at_s": at_s, **moment} for at_s, moment in ledger.moments(name)]
        }

    @app.delete("/v1/pools/{name}", status_code=204)
    def withdraw_pool(name: Name, who: Lender) -> None:
        """Take a pool out that has ended."""
        _ledger(service, who).withdraw("pool", name)


def _told(entry: Json, hidden: tuple[str, ...] = ()) -> Json:
    return {k: v for k, v in entry.items() if k not in hidden} | {"silent": not counts(entry)}


def _pool(ledger: PoolLedger, name: str) -> Json:
    found = next((p for p in ledger.entries("pool") if p["name"] == name), None)
    if found is None:
        raise HTTPException(404, f"no pool '{name}'")
    return _told(found)


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/pools", response_class=HTMLResponse, include_in_schema=False)
    def pools_page(request: Request) -> HTMLResponse:
        ledger = _ledger(service, reader_of(request))
        return page_of(
            request,
            "/pools",
            "pools.html",
            pools=[_told(p) for p in ledger.entries("pool")],
            managers=[_told(m, _SECRET) for m in ledger.entries("manager")],
        )

    @app.get("/pools/{name}", response_class=HTMLResponse, include_in_schema=False)
    def pool_page(name: Name, request: Request) -> HTMLResponse:
        ledger = _ledger(service, reader_of(request))
        pool = _pool(ledger, name)
        managers = {m["name"]: _told(m, _SECRET) for m in ledger.entries("manager")}
        return page_of(
            request,
            "/pools",
            "pool.html",
            p=pool,
            managers=managers,
            chart=pool_chart(ledger.moments(name)),
        )

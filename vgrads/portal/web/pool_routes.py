"""REST and pages: managers that lease nodes of pools, and the pools."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi import Path as PathParameter
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from vgrads.api.pools.ledger import is_current
from vgrads.api.pools.ledger_entries import ManagerEntry, PoolEntry
from vgrads.portal.charts.pool_chart import pool_chart
from vgrads.portal.records.access import Principal
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.web.answers import NOTHING, answers, list_of
from vgrads.portal.web.guard import Lender, Reader
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.paging import ShortPage
from vgrads.portal.web.service import Service

Json = dict[str, Any]
Name = Annotated[str, PathParameter(max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$")]
_SECRET = ("key", "certificate", "contact", "slot")


def add_pool_routes(app: FastAPI, service: Service) -> None:
    """Add the entries of the ledger: written, read, removed; two pages."""
    _add_managers(app, service)
    _add_pools(app, service)
    _add_pages(app, service)


def ledger_for(service: Service, who: Principal) -> PoolLedger:
    """Return the ledger of what a user may see."""
    return PoolLedger(service.store.engine, None if who.operator else who.user)


def _add_managers(app: FastAPI, service: Service) -> None:
    @app.put(
        "/v1/managers/{name}",
        **answers(
            "pools.ManagerPublished", operation="publish_manager", tag="pools", errors=(404,)
        ),
    )
    def publish_manager(name: Name, entry: ManagerEntry, who: Lender) -> Json:
        """Publish the state of a manager; the answer has the pools' decisions for it."""
        # of the user alone, even for an operator, who would else replace the entry of another
        ledger = PoolLedger(service.store.engine, who.user)
        status = ledger.publish_manager(name, entry.model_dump(mode="json", by_alias=True))
        return {"pools": list(status.pools)}

    @app.get(
        "/v1/managers", **answers(list_of("pools.Manager"), operation="list_managers", tag="pools")
    )
    def list_managers(who: Reader, paging: ShortPage) -> list[Json]:
        """List the managers that lease nodes of pools. Their contact addresses are shown only with
        scope ``pool``."""
        result = paging.page_of_all(ledger_for(service, who).entries("manager"), _name_of)
        hidden = () if who.may("pool") else _SECRET
        return [_describe_entry(entry, hidden) for entry in result]

    @app.delete(
        "/v1/managers/{name}",
        status_code=204,
        **answers(NOTHING, operation="withdraw_manager", tag="pools", errors=(404,)),
    )
    def withdraw_manager(name: Name, who: Lender) -> None:
        """Remove a manager that has ended: its nodes are reassigned at once."""
        ledger_for(service, who).withdraw("manager", name)


def _add_pools(app: FastAPI, service: Service) -> None:
    @app.put(
        "/v1/pools/{name}",
        status_code=204,
        **answers(NOTHING, operation="publish_pool", tag="pools", errors=(404,)),
    )
    def publish_pool(name: Name, entry: PoolEntry, who: Lender) -> None:
        """Publish a pool's decision, and its reasons."""
        # of the user alone, as above
        ledger = PoolLedger(service.store.engine, who.user)
        ledger.publish_pool(name, entry.model_dump(mode="json", by_alias=True))

    @app.get("/v1/pools", **answers(list_of("pools.Pool"), operation="list_pools", tag="pools"))
    def list_pools(who: Reader, paging: ShortPage) -> list[Json]:
        """List the pools: decisions for each manager, running workers, and the reasons."""
        entries = ledger_for(service, who).entries("pool")
        return [_describe_entry(entry) for entry in paging.page_of_all(entries, _name_of)]

    @app.get(
        "/v1/pools/{name}",
        **answers("pools.PoolDetails", operation="read_pool", tag="pools", errors=(404,)),
    )
    def read_pool(name: Name, who: Reader) -> Json:
        """Read a pool, with its decided and running workers, and its managers' capacity, over
        time."""
        ledger = ledger_for(service, who)
        return pool_of(ledger, name) | {
            "moments": [{"at_s": at_s, **moment} for at_s, moment in ledger.moments(name)]
        }

    @app.delete(
        "/v1/pools/{name}",
        status_code=204,
        **answers(NOTHING, operation="withdraw_pool", tag="pools", errors=(404,)),
    )
    def withdraw_pool(name: Name, who: Lender) -> None:
        """Remove a pool that has ended."""
        ledger_for(service, who).withdraw("pool", name)


def _name_of(entry: Json) -> str:
    return str(entry["name"])


def _describe_entry(entry: Json, hidden: tuple[str, ...] = ()) -> Json:
    return {k: v for k, v in entry.items() if k not in hidden} | {"silent": not is_current(entry)}


def pool_of(ledger: PoolLedger, name: str) -> Json:
    """Return a pool's entry; 404 where there is none."""
    result = next((p for p in ledger.entries("pool") if p["name"] == name), None)
    if result is None:
        raise HTTPException(404, f"no pool '{name}'")
    return _describe_entry(result)


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/pools", response_class=HTMLResponse, include_in_schema=False)
    def pools_page(request: Request) -> HTMLResponse:
        ledger = ledger_for(service, reader_of(request))
        return page_of(
            request,
            "/pools",
            "pools.html",
            pools=[_describe_entry(p) for p in ledger.entries("pool")],
            managers=[_describe_entry(m, _SECRET) for m in ledger.entries("manager")],
        )

    @app.get("/pools/{name}", response_class=HTMLResponse, include_in_schema=False)
    def pool_page(name: Name, request: Request) -> HTMLResponse:
        ledger = ledger_for(service, reader_of(request))
        pool = pool_of(ledger, name)
        managers = {m["name"]: _describe_entry(m, _SECRET) for m in ledger.entries("manager")}
        return page_of(
            request,
            "/pools",
            "pool.html",
            p=pool,
            managers=managers,
            chart=pool_chart(ledger.moments(name)),
        )

"""REST: where users are notified of alarms. URLs are taken and never shown. Whoever reaches the
service may not be its operator, also without tokens: what is added here has limits."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi import Path as PathParameter
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.rate_limiter import RateLimiter, parse_rate
from vgrads.operations.alarms import AddTargetRequest
from vgrads.portal.jobs.alarm_delivery import TRIAL, check_target, deliver
from vgrads.portal.records.access import Principal
from vgrads.portal.records.alarm_targets import AlarmTarget, AlarmTargets, TargetEntry
from vgrads.portal.web.answers import NOTHING, answers, list_of
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.paging import ShortPage
from vgrads.portal.web.service import Service

Json = dict[str, Any]
TargetName = Annotated[str, PathParameter(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_RATE = "10/minute"  # messages and checks of one user: each is a process
_AT_ONCE = 4


class AlarmTargetDocument(BaseModel):
    """A new target. Errors do not contain its values: one of them is a secret."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    name: Annotated[str, Field(description="Name, up to 64 letters, digits and . _ -")]
    url: Annotated[
        str,
        Field(
            description="URL of apprise: mailtos://, slack://, workflows://, matrixs://, jsons:// "
            "and others, as far as the operator permits them.",
            json_schema_extra={"writeOnly": True, "format": "password"},
        ),
    ]

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, values: object) -> object:
        if not isinstance(values, dict):
            raise ValueError("must be a mapping with name and url")
        if not all(isinstance(value, str) for value in values.values()):
            raise ValueError("name and url must be texts")
        return values


def add_alarm_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of a user's own targets."""
    targets = AlarmTargets(service.store.engine)
    _add_entries(app, service, targets)
    _add_tests(app, service, targets)


def _add_entries(app: FastAPI, service: Service, targets: AlarmTargets) -> None:
    @app.get(
        "/v1/alarm-targets",
        **answers(list_of("alarms.AlarmTargetEntry"), operation="list_alarm_targets", tag="alarms"),
    )
    def list_alarm_targets(who: Reader, paging: ShortPage) -> list[Json]:
        """List your targets of alarms: names, schemes and hosts, no secrets."""
        entries = [_entry_json(entry) for entry in targets.list(who.user)]
        return list(paging.page_of_all(entries, lambda entry: str(entry["name"])))

    limiter = RateLimiter()

    @app.post(
        "/v1/alarm-targets",
        status_code=201,
        **answers(
            "alarms.AlarmTargetEntry",
            operation="add_alarm_target",
            tag="alarms",
            errors=(409, 501),
        ),
    )
    def add_alarm_target(document: AlarmTargetDocument, who: Submitter) -> Json:
        """Add a target of alarms. Its URL is checked, stored, and shown to nobody."""
        request = AddTargetRequest(name=document.name, url=document.url)
        targets.refuse_another(who.user, request.name)
        _refuse_too_often(limiter, who)
        is_limited = not service.bounds.own
        address = check_target(request.url, service.bounds.alarms if is_limited else None)
        target = AlarmTarget(request.name, request.url, is_limited)
        return _entry_json(targets.add(who.user, target, address))

    @app.delete(
        "/v1/alarm-targets/{name}",
        status_code=204,
        **answers(NOTHING, operation="remove_alarm_target", tag="alarms", errors=(404,)),
    )
    def remove_alarm_target(name: TargetName, who: Submitter) -> None:
        """Remove a target of alarms."""
        if not targets.remove(who.user, name):
            raise _missing(name)


def _add_tests(app: FastAPI, service: Service, targets: AlarmTargets) -> None:
    limiter, turns = RateLimiter(), asyncio.Semaphore(_AT_ONCE)

    @app.post(
        "/v1/alarm-targets/{name}/test",
        **answers("alarms.TargetTest", operation="test_alarm_target", tag="alarms", errors=(404,)),
    )
    async def test_alarm_target(name: TargetName, who: Submitter) -> Json:
        """Send a message to a target, which takes 20 s at most; the answer is whether it was
        delivered."""
        target = await run_in_threadpool(targets.find, who.user, name)
        if target is None:
            raise _missing(name)
        _refuse_too_often(limiter, who)
        async with turns:
            answer = await run_in_threadpool(deliver, [target], *TRIAL, service.bounds.alarms)
        return asdict(answer[0])


def _refuse_too_often(limiter: RateLimiter, who: Principal) -> None:
    rate = parse_rate(_RATE)
    if not limiter.hit(rate, who.user):
        wait_s = max(1, round(limiter.wait_s(rate, who.user)))
        raise HTTPException(
            429, f"at most {_RATE.replace('/', ' a ')}", {"Retry-After": str(wait_s)}
        )


def _missing(name: str) -> HTTPException:
    return HTTPException(404, f"no alarm target '{name}'")


def _entry_json(entry: TargetEntry) -> Json:
    return asdict(entry) | {"created": entry.created.isoformat()}

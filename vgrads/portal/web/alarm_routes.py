"""REST: where and when users are notified of alarms, and who takes care of them. URLs are
taken and never shown. Whoever reaches the service may not be its operator, also without tokens:
what is added here has limits."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Form
from fastapi import Path as PathParameter
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.rate_limiter import RateLimiter
from vgrads.operations.alarms import AddTargetRequest
from vgrads.portal.jobs.alarm_delivery import TRIAL, check_target, deliver
from vgrads.portal.jobs.run_alarms import acknowledge_alarms
from vgrads.portal.records.access import Principal
from vgrads.portal.records.alarm_targets import AlarmTarget, AlarmTargets, TargetEntry
from vgrads.portal.records.owner_rules import OwnerRules
from vgrads.portal.web.answers import NOTHING, answers, list_of
from vgrads.portal.web.guard import Reader, Submitter, refuse_too_often
from vgrads.portal.web.paging import ShortPage
from vgrads.portal.web.request_routes import newest_run_of
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId
from vgrads.workflows.alarm_rules import AlarmRulesDocument, written_rules

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


class AcknowledgedDocument(BaseModel):
    """Which alarms are acknowledged: up to a number, None: all so far."""

    model_config = ConfigDict(extra="forbid")
    upto: Annotated[int, Field(ge=1)] | None = None


def add_alarm_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of a user's own targets."""
    targets = AlarmTargets(service.store.engine)
    _add_entries(app, service, targets)
    _add_tests(app, service, targets)
    _add_rules(app, OwnerRules(service.store.engine))
    _add_acknowledgement(app, service)


def _add_entries(app: FastAPI, service: Service, targets: AlarmTargets) -> None:
    @app.get(
        "/v1/alarm-targets",
        **answers(list_of("alarms.AlarmTargetEntry"), operation="list_alarm_targets", tag="alarms"),
    )
    def list_alarm_targets(who: Reader, paging: ShortPage) -> list[Json]:
        """List your targets of alarms: names, schemes and hosts, no secrets."""
        entries = [_describe_entry(entry) for entry in targets.list(who.user)]
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
        # before the check of the URL, which starts a process
        targets.refuse_another(who.user, request.name)
        refuse_too_often(limiter, _RATE, who)
        is_limited = not service.bounds.own
        address = check_target(request.url, service.bounds.alarms if is_limited else None)
        target = AlarmTarget(request.name, request.url, is_limited)
        return _describe_entry(targets.add(who.user, target, address))

    @app.delete(
        "/v1/alarm-targets/{name}",
        status_code=204,
        **answers(NOTHING, operation="remove_alarm_target", tag="alarms", errors=(404,)),
    )
    def remove_alarm_target(name: TargetName, who: Submitter) -> None:
        """Remove a target of alarms."""
        if not targets.remove(who.user, name):
            raise _make_missing_error(name)


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
            raise _make_missing_error(name)
        refuse_too_often(limiter, _RATE, who)
        async with turns:
            answer = await run_in_threadpool(deliver, [target], *TRIAL, service.bounds.alarms)
        return asdict(answer[0])


def _add_rules(app: FastAPI, stored: OwnerRules) -> None:
    def rules_of(owner: str) -> Json:
        rules = stored.find(owner)
        return {"alarms": None if rules is None else written_rules(rules)}

    @app.get(
        "/v1/alarm-rules",
        **answers("alarms.RulesOfOwner", operation="read_alarm_rules", tag="alarms"),
    )
    def read_alarm_rules(who: Reader) -> Json:
        """Read your rules of alarms, for runs of sets that state none."""
        return rules_of(who.user)

    @app.put(
        "/v1/alarm-rules",
        **answers("alarms.RulesOfOwner", operation="replace_alarm_rules", tag="alarms"),
    )
    def replace_alarm_rules(document: AlarmRulesDocument, who: Submitter) -> Json:
        """Replace your rules of alarms; they hold for runs that begin from now on."""
        stored.store(who.user, document.rules)
        return rules_of(who.user)


def _add_acknowledgement(app: FastAPI, service: Service) -> None:
    def acknowledge(set_id: str, who: Principal, upto: int | None) -> Json:
        service.visible(set_id, who)
        run = newest_run_of(service, set_id)
        number = acknowledge_alarms(service.store, run.id, who.user, upto)
        return {"run": run.id, "upto": number}

    @app.post(
        "/v1/workflow-sets/{set_id}/alarms/acknowledge",
        status_code=202,
        **answers(
            "alarms.Acknowledged", operation="acknowledge_alarms", tag="alarms", errors=(404, 409)
        ),
    )
    def acknowledge_alarms_of_run(
        set_id: SetId, who: Submitter, document: AcknowledgedDocument
    ) -> Json:
        """Acknowledge the alarms of the newest run up to a number: you take care of it, so they are
        not escalated."""
        return acknowledge(set_id, who, document.upto)

    @app.post("/sets/{set_id}/acknowledge", include_in_schema=False)
    def acknowledge_on_page(
        set_id: SetId, who: Submitter, upto: Annotated[int, Form(ge=1)]
    ) -> RedirectResponse:
        acknowledge(set_id, who, upto)
        return RedirectResponse(f"/sets/{set_id}", 303)


def _make_missing_error(name: str) -> HTTPException:
    return HTTPException(404, f"no alarm target '{name}'")


def _describe_entry(entry: TargetEntry) -> Json:
    return asdict(entry) | {"created": entry.created.isoformat()}

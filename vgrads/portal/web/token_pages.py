"""The pages of the operator for tokens: which there are, a new one, revoking one. They do what
``vgrads token`` does; where the service needs no tokens, they say how it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

from fastapi import FastAPI, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_duration
from vgrads.operations.administration import CreateTokenRequest, RevokeTokenRequest
from vgrads.portal.records.access import EVERYBODY_HERE, Principal
from vgrads.portal.records.tables import TokenRow
from vgrads.portal.web.guard import Operator
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service

_SCOPES: Mapping[str, str] = {
    "read": "read own sets and bags",
    "submit": "also submit and run them",
    "operate": "everything, of all users; tokens too",
    "metrics": "metrics alone",
    "pool": "lend and take nodes of pools",
    "forecast": "forecasts of queues alone",
}
"""What tokens may allow, in words."""


class TokenForm(BaseModel):
    """A token to be created, as the form of the page has it."""

    user: Annotated[str, Field(max_length=200)] = ""
    scopes: Sequence[str] = ()
    expires: Annotated[str, Field(max_length=50)] = "90d"
    name: Annotated[str, Field(max_length=200)] = ""

    def as_request(self) -> CreateTokenRequest:
        """Return the request that ``vgrads token create`` has, too."""
        return CreateTokenRequest(
            user=self.user.strip(),
            scopes=tuple(self.scopes),
            expires_s=parse_duration(self.expires, "expires"),
            name=self.name.strip(),
        )


def add_token_pages(app: FastAPI, service: Service) -> None:
    """Add the list of tokens, its form, and the confirmation of revoking one."""

    @app.get("/tokens", response_class=HTMLResponse, include_in_schema=False)
    def tokens(request: Request) -> HTMLResponse:
        _refuse_others(request)
        return _render_token_page(service, request)

    @app.post("/tokens", include_in_schema=False)
    def create(who: Operator, request: Request, form: Annotated[TokenForm, Form()]) -> HTMLResponse:
        _refuse_where_none_is_needed(who)
        try:
            wish = form.as_request()
            secret, row = service.access.create(wish.user, wish.scopes, wish.expires_s, wish.name)
        except InputError as error:
            return _render_token_page(service, request, form=form, problem=str(error))
        return _render_token_page(service, request, secret=secret, fresh=row)

    @app.get("/tokens/{token_id}/revoke", response_class=HTMLResponse, include_in_schema=False)
    def ask_revoke(token_id: str, request: Request) -> HTMLResponse:
        _refuse_others(request)
        row = _find(service, token_id)
        return page_of(request, "", "token_revoke.html", row=row, words=_describe_scopes(row))

    @app.post("/tokens/{token_id}/revoke", include_in_schema=False)
    def revoke(token_id: str, who: Operator) -> RedirectResponse:
        _refuse_where_none_is_needed(who)
        wish = RevokeTokenRequest(token=token_id)
        if not service.access.revoke(_find(service, wish.token).id):
            raise HTTPException(404, f"no token '{token_id[:60]}'")
        return RedirectResponse("/tokens", 303)


def _refuse_others(request: Request) -> None:
    """Refuse all but operators; those who are not logged in are sent to the login page."""
    if not reader_of(request).operator:
        raise HTTPException(403, "tokens are for operators: the scope 'operate'")


def _refuse_where_none_is_needed(who: Principal) -> None:
    """Refuse changes where every account of the machine would be their author."""
    if who is EVERYBODY_HERE:
        raise HTTPException(409, "no tokens are needed here: 'vgrads token create' turns them on")


def _find(service: Service, token_id: str) -> TokenRow:
    """Return a token that is no session's."""
    for row in service.access.tokens():
        if row.id == token_id:
            return row
    raise HTTPException(404, f"no token '{token_id[:60]}'")


def _describe_scopes(row: TokenRow) -> str:
    return ", ".join(row.scopes.split())


def _render_token_page(
    service: Service,
    request: Request,
    form: TokenForm | None = None,
    problem: str = "",
    secret: str = "",
    fresh: TokenRow | None = None,
) -> HTMLResponse:
    """Return the list; ``secret``: of the token that was created now, ``fresh``; ``problem``: of
    the form, which is shown again."""
    needed = reader_of(request) is not EVERYBODY_HERE
    return page_of(
        request,
        "/tokens",
        "tokens.html",
        422 if problem else 200,
        needed=needed,
        rows=[(row, _describe_scopes(row)) for row in service.access.tokens()] if needed else [],
        now_s=datetime.now(UTC).timestamp(),
        form=form or TokenForm(scopes=("submit",)),
        scopes=_SCOPES,
        problem=problem,
        secret=secret,
        fresh=fresh,
    )

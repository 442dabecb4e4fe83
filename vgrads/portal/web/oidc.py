"""Login with an external account: OpenID Connect, the code flow with PKCE.

Core 1.0 §3.1 (https://openid.net/specs/openid-connect-core-1_0.html): the provider's keys,
endpoints and name are read from its discovery document; an ID token is valid if it is signed by one
of these keys, for us, by this provider, now, and for the login that was started in the same browser
(state, nonce).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from requests import RequestException
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from vgrads.kernel.errors import SiteError
from vgrads.portal.records.access import Principal
from vgrads.portal.web.settings import OidcSettings

_COOKIE = "vgrads_login"
_PATIENCE_S = 600.0
_MOST_BEGUN = 1000
_TIMEOUT_S = 10.0
_ALGORITHMS = ["RS256", "ES256", "PS256"]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A started login: values that only the browser that started it can return."""

    nonce: str
    verifier: str
    back: str
    until_s: float


class Provider:
    """An OpenID provider. Started logins are stored for ten minutes."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._begun: OrderedDict[str, _Begun] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, back: str) -> RedirectResponse:
        """Redirect a user to the provider; ``back``: the return address."""
        begun = _Begun(
            secrets.token_urlsafe(24),
            secrets.token_urlsafe(48),
            back,
            time.monotonic() + _PATIENCE_S,
        )
        session = self._session(back)
        url, state = session.create_authorization_url(
            self._discover()["authorization_endpoint"],
            nonce=begun.nonce,
            code_verifier=begun.verifier,
        )
        with self._lock:
            self._begun[state] = begun
            # anybody may begin a login: without a limit this would fill the memory
            while len(self._begun) > _MOST_BEGUN:
                self._begun.popitem(last=False)
        answer = RedirectResponse(url, status_code=303)
        # lax and not strict: the browser returns from another site, and must send the cookie
        answer.set_cookie(_COOKIE, state, max_age=int(_PATIENCE_S), httponly=True, samesite="lax")
        return answer

    def finish(self, url: str, state: str, cookies: Mapping[str, str]) -> Principal:
        """Return the user of this return address, if the provider confirms them."""
        with self._lock:
            # removed: a return address is of no use a second time
            begun = self._begun.pop(state, None)
        # the cookie ties a login to the browser that began it
        if begun is None or begun.until_s < time.monotonic() or cookies.get(_COOKIE) != state:
            raise HTTPException(401, "this login was not started here, or was started too long ago")
        provider_metadata = self._discover()
        try:
            session = self._session(begun.back, state)
            token = session.fetch_token(
                provider_metadata["token_endpoint"],
                authorization_response=url,
                code_verifier=begun.verifier,
                timeout=_TIMEOUT_S,
            )
            claims = self._claims(str(token.get("id_token", "")), provider_metadata, begun.nonce)
        except (AuthlibBaseError, JoseError, ValueError) as error:
            raise HTTPException(
                401, f"the login provider did not confirm your identity: {error}"
            ) from error
        except RequestException as error:
            raise _make_silent_error(self._settings.issuer, error) from error
        return self._principal(claims)

    def _claims(
        self, token: str, provider_metadata: Mapping[str, Any], nonce: str
    ) -> Mapping[str, Any]:
        keys = KeySet.import_key_set(_get(provider_metadata["jwks_uri"]))
        result = jwt.decode(token, keys, algorithms=_ALGORITHMS)
        jwt.JWTClaimsRegistry(
            # seconds by which the clocks of the two machines may differ
            leeway=60,
            iss={"essential": True, "value": provider_metadata["issuer"]},
            aud={"essential": True, "value": self._settings.client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        ).validate(result.claims)
        return result.claims

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        name = claims.get(self._settings.claim)
        if not isinstance(name, str) or not name:
            raise HTTPException(
                401, f"the login provider returned no claim '{self._settings.claim}'"
            )
        # anybody could state the address of another person
        if self._settings.claim == "email" and claims.get("email_verified") is False:
            raise HTTPException(401, "the login provider has not verified your e-mail address")
        scopes = set(self._settings.scopes)
        if name in self._settings.operators:
            scopes.add("operate")
        return Principal(name, frozenset(scopes))

    def _session(self, back: str, state: str | None = None) -> OAuth2Session:
        return OAuth2Session(
            self._settings.client_id,
            self._settings.client_secret or None,
            redirect_uri=back,
            state=state,
            scope="openid email profile",
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic"
            if self._settings.client_secret
            else "none",
        )

    def _discover(self) -> Mapping[str, Any]:
        provider_metadata: dict[str, Any] = _get(
            self._settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
        )
        # otherwise one provider could speak for another (Discovery 1.0 §4.3)
        if provider_metadata.get("issuer", "").rstrip("/") != self._settings.issuer.rstrip("/"):
            raise SiteError("reports another issuer", site=self._settings.issuer, transient=False)
        return provider_metadata


def _get(url: str) -> Any:
    try:
        answer = requests.get(url, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return answer.json()
    except (RequestException, ValueError) as error:
        raise _make_silent_error(url, error) from error


def _make_silent_error(url: str, error: Exception) -> SiteError:
    return SiteError(f"the login provider does not answer: {error}", site=url, transient=True)

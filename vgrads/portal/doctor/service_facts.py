"""What a service answers over HTTP, and its certificate."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from vgrads.agent.tcp import connect_tcp
from vgrads.kernel.errors import InputError
from vgrads.portal.doctor.checks import Unavailable, gather

_CONNECT_S, _ANSWER_S, _LIMIT_S = 5.0, 15.0, 20.0
_MOST_BYTES = 8 * 2**20
_PORTS = {"http": 80, "https": 443}
DESCRIPTION, PROTECTED, TOKEN = "/openapi.json", "/v1/workflow-sets?limit=1", "/v1/token"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """The address of a service: its URL and parts."""

    url: str
    host: str
    port: int
    encrypted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def document(self) -> dict[str, Any]:
        """Return the body as a JSON object; empty where it is none."""
        try:
            result = json.loads(self.body)
        except ValueError:
            return {}
        return result if isinstance(result, dict) else {}


Reply = HttpAnswer | Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """A certificate. ``problem``: why it is not accepted; ``expires_s``: its end (Unix time), None
    where it cannot be read."""

    problem: str
    expires_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """A service. ``loopback``: no other machine can connect to its address; ``token``: the answer
    to the caller's token, None where none is set; ``unsent``: why the token was not sent."""

    address: ServiceAddress
    loopback: bool
    certificate: CertificateFacts | Unavailable | None
    health: Reply
    readiness: Reply
    description: Reply
    protected: Reply
    token: Reply | None = None
    unsent: str = ""


def parse_address(url: str) -> ServiceAddress:
    """Parse the URL of a service. InputError where it is not one."""
    where, fix = "--service", "as https://vgrads.example.org or http://127.0.0.1:8080"
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InputError("contains characters that a URL cannot have", where=where, fix=fix)
    try:
        parts = urlsplit(url)
        port = parts.port  # raises ValueError for a wrong one
    except ValueError as error:
        raise InputError(f"'{url}' is not a URL: {error}", where=where, fix=fix) from error
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise InputError(f"'{url}' is not the URL of a service", where=where, fix=fix)
    if parts.username is not None or parts.query or parts.fragment:
        text = "a URL of a service has no user, query or fragment"
        raise InputError(text, where=where, fix="the token is read from VGRADS_TOKEN")
    return ServiceAddress(
        url=url.rstrip("/"),
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        encrypted=parts.scheme == "https",
    )


def resolve(address: ServiceAddress) -> tuple[str, ...]:
    """Return the IP addresses of a service's host. OSError where its name is unknown."""
    entries = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


def is_loopback(addresses: tuple[str, ...]) -> bool:
    """Return True where all these addresses are of the machine itself."""
    # an address of one link has its interface after the sign %
    return bool(addresses) and all(
        ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses
    )


def gather_service(
    address: ServiceAddress, addresses: tuple[str, ...] | Unavailable, token: str
) -> ServiceFacts:
    """Ask a service. The token is sent only where nobody else can read it."""
    loopback = not isinstance(addresses, Unavailable) and is_loopback(addresses)
    certificate = None
    if address.encrypted:
        certificate = gather(lambda: read_certificate(address), _LIMIT_S)
    trusted = isinstance(certificate, CertificateFacts) and not certificate.problem
    context = ssl.create_default_context() if trusted else _make_unchecked_context()

    def ask(path: str, secret: str = "") -> Reply:
        return gather(lambda: _ask(address.url + path, context, secret), _LIMIT_S)

    health = ask("/healthz")
    if isinstance(health, Unavailable):  # the rest would wait for nothing
        return _make_unreachable(address, loopback, certificate, health)
    unsent = _explain_unsent(address, trusted, loopback, token) if token else ""
    return ServiceFacts(
        address=address,
        loopback=loopback,
        certificate=certificate,
        health=health,
        readiness=ask("/readyz"),
        description=ask(DESCRIPTION),
        protected=ask(PROTECTED),
        token=ask(TOKEN, token) if token and not unsent else None,
        unsent=unsent,
    )


def _make_unreachable(
    address: ServiceAddress,
    loopback: bool,
    certificate: CertificateFacts | Unavailable | None,
    reason: Unavailable,
) -> ServiceFacts:
    return ServiceFacts(
        address=address,
        loopback=loopback,
        certificate=certificate,
        health=reason,
        readiness=reason,
        description=reason,
        protected=reason,
    )


def _explain_unsent(address: ServiceAddress, trusted: bool, loopback: bool, token: str) -> str:
    """Return why a token is not sent; empty where it may be."""
    if not token.isascii() or not token.isprintable() or " " in token:
        return "it contains characters that a token cannot have"
    if address.encrypted:
        return "" if trusted else "the certificate of the service is not valid"
    return "" if loopback else "the connection is not encrypted"


def _make_unchecked_context() -> ssl.SSLContext:
    """Return a context for requests without a secret to a service whose certificate is wrong."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: a token must not follow it."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow nothing."""


def _ask(url: str, context: ssl.SSLContext, token: str) -> HttpAnswer:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers={"Accept": "application/json", **headers})
    https = urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(https, _NoRedirects())
    try:
        with opener.open(request, timeout=_ANSWER_S) as answer:
            return _read(answer, answer.status)
    except urllib.error.HTTPError as error:
        # the error holds the connection
        with error:
            return _read(error, error.code)


def _read(answer: HTTPResponse | urllib.error.HTTPError, status: int) -> HttpAnswer:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return HttpAnswer(status=status, headers=headers, body=answer.read(_MOST_BYTES))


def read_certificate(address: ServiceAddress) -> CertificateFacts:
    """Return the certificate of a service, and why it is not accepted. OSError where there is no
    connection."""
    try:
        body, problem = _fetch_certificate(address, ssl.create_default_context()), ""
    except ssl.SSLCertVerificationError as error:
        problem = error.verify_message or str(error)
        body = _fetch_certificate(address, _make_unchecked_context())
    if body is None:
        return CertificateFacts(problem=problem or "there is none", expires_s=None)
    end = x509.load_der_x509_certificate(body).not_valid_after_utc
    return CertificateFacts(problem=problem, expires_s=end.timestamp())


def _fetch_certificate(address: ServiceAddress, context: ssl.SSLContext) -> bytes | None:
    """Return the certificate (DER) that a server presents."""
    place = (address.host, address.port)
    with (
        closing(connect_tcp(place, _CONNECT_S)) as connection,
        context.wrap_socket(connection, server_hostname=address.host) as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True)

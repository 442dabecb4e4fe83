"""Judgement of what a service answered."""

from __future__ import annotations

from datetime import UTC, datetime

from vgrads.kernel.units import format_count
from vgrads.portal.doctor.checks import Check, Unavailable
from vgrads.portal.doctor.service_facts import (
    CertificateFacts,
    HttpAnswer,
    Reply,
    ServiceFacts,
)

_DAY_S = 86400.0
_CERTIFICATE_DAYS, _TOKEN_DAYS = 21.0, 7.0
_UNASKED = "the service was not reached"
_POLICY = "content-security-policy"
_SEE_LOG = "see the log of the service"


def judge_service(facts: ServiceFacts, version: str, token: bool, now_s: float) -> list[Check]:
    """Judge a service. ``version``: of this command; ``token``: the caller has set one."""
    return [
        judge_reachable(facts),
        judge_health(facts.health),
        judge_readiness(facts.readiness),
        judge_version(facts.description, version),
        judge_encryption(facts),
        judge_certificate(facts, now_s),
        judge_authentication(facts.protected, facts.loopback),
        judge_token(facts, token),
        judge_expiry(facts.token, now_s),
        judge_headers(facts.health),
    ]


def judge_reachable(facts: ServiceFacts) -> Check:
    """Judge whether anything answers over HTTP."""
    name = "service"
    if isinstance(facts.health, Unavailable):
        text = f"{facts.address.url} cannot be reached: {facts.health.reason}"
        return Check(name, "wrong", text, "check the URL, and that the service and its proxy run")
    return Check(name, "ok", f"{facts.address.url} answers")


def judge_health(reply: Reply) -> Check:
    """Judge ``/healthz``."""
    name = "health"
    if isinstance(reply, Unavailable):
        return Check(name, "unknown", _UNASKED)
    if reply.status == 200 and reply.document().get("status") == "ok":
        return Check(name, "ok", "service and database respond (/healthz)")
    if 300 <= reply.status < 400:
        target = reply.headers.get("location", "another URL")
        return Check(name, "wrong", f"redirects to {target}", "use that URL with --service")
    if reply.status == 400:
        text = "/healthz answers 400: the service does not answer under this name"
        return Check(name, "wrong", text, "add the name to the setting allowed_hosts")
    if reply.status >= 500:
        return Check(
            name, "wrong", f"/healthz answers {reply.status}{_read_detail(reply)}", _SEE_LOG
        )
    text = f"/healthz answers {reply.status}, which is not the answer of vgrads"
    return Check(name, "wrong", text, "check that the URL is that of vgrads")


def judge_readiness(reply: Reply) -> Check:
    """Judge ``/readyz``."""
    name = "readiness"
    if isinstance(reply, Unavailable):
        return Check(name, "unknown", reply.reason)
    if reply.status == 200 and reply.document().get("status") == "ready":
        return Check(name, "ok", "it accepts work (/readyz)")
    text = f"it does not accept work: /readyz answers {reply.status}{_read_detail(reply)}"
    return Check(name, "wrong", text, _SEE_LOG)


def judge_version(reply: Reply, version: str) -> Check:
    """Judge whether service and command have the same version."""
    name = "service version"
    if isinstance(reply, Unavailable):
        return Check(name, "unknown", reply.reason)
    info = reply.document().get("info")
    running = str(info.get("version", "")) if isinstance(info, dict) else ""
    if not running:
        return Check(name, "unknown", f"the description does not state it ({reply.status})")
    if running == version:
        return Check(name, "ok", f"vgrads {running}, as this command")
    text = f"the service is vgrads {running}, this command {version}"
    return Check(
        name, "doubtful", text, "restart the service after an upgrade, or upgrade this one"
    )


def judge_encryption(facts: ServiceFacts) -> Check:
    """Judge whether other machines could read tokens and results on their way."""
    name = "encryption"
    if facts.address.encrypted:
        return Check(name, "ok", "TLS")
    if facts.loopback:
        return Check(name, "ok", "none is needed: a loopback address")
    text = f"no TLS: everybody on the way to {facts.address.host} can read tokens"
    fix = (
        "let the service listen on 127.0.0.1 behind a proxy with TLS, name the proxy in "
        "trusted_proxies, and set url to its https address"
    )
    return Check(name, "wrong", text, fix)


def judge_certificate(facts: ServiceFacts, now_s: float) -> Check:
    """Judge the certificate: accepted by this machine, and for how long."""
    name = "certificate"
    certificate = facts.certificate
    if certificate is None:
        return Check(name, "ok", "none is used: not an https URL")
    if isinstance(certificate, Unavailable):
        return Check(name, "unknown", f"cannot be read: {certificate.reason}")
    days = _compute_days_left(certificate, now_s)
    if days is not None and days < 0:
        return Check(
            name, "wrong", f"it expired {format_count(f'{-days:.0f}', 'day')} ago", "renew it"
        )
    if certificate.problem:
        fix = (
            "use a certificate for this name of an authority that clients trust; for a private "
            "authority set SSL_CERT_FILE"
        )
        return Check(name, "wrong", f"it is not accepted: {certificate.problem}", fix)
    if days is None:
        return Check(name, "unknown", "its end cannot be read")
    text = f"valid for {format_count(f'{days:.0f}', 'more day')}"
    if days < _CERTIFICATE_DAYS:
        return Check(name, "doubtful", text, "renew it, or check its automatic renewal")
    return Check(name, "ok", text)


def _compute_days_left(certificate: CertificateFacts, now_s: float) -> float | None:
    return None if certificate.expires_s is None else (certificate.expires_s - now_s) / _DAY_S


def judge_authentication(reply: Reply, loopback: bool) -> Check:
    """Judge a request without a token to a protected route: it must be refused."""
    name = "authentication"
    if isinstance(reply, Unavailable):
        return Check(name, "unknown", reply.reason)
    if reply.status == 401:
        return Check(name, "ok", "a token is required")
    fix = "create a token with 'vgrads token create', and set tokens to \"required\""
    if reply.status == 200 and loopback:
        text = "no token is required: every account of this machine may use the service"
        return Check(name, "ok", text, f"to prevent this, {fix}")
    if reply.status == 200:
        text = "no token is required: everybody who reaches the service may use it"
        return Check(name, "wrong", text, fix)
    text = f"a request without a token is answered with {reply.status}"
    return Check(name, "unknown", text)


def judge_token(facts: ServiceFacts, token: bool) -> Check:
    """Judge whether the service accepts the caller's token, and what it permits."""
    name, reply = "token", facts.token
    if not token:
        required = isinstance(facts.protected, HttpAnswer) and facts.protected.status == 401
        text = "VGRADS_TOKEN is not set"
        if required:
            return Check(name, "unknown", text, "set it to a token of 'vgrads token create'")
        return Check(name, "ok" if isinstance(facts.protected, HttpAnswer) else "unknown", text)
    if facts.unsent:
        return Check(name, "unknown", f"VGRADS_TOKEN was not sent: {facts.unsent}")
    if reply is None or isinstance(reply, Unavailable):
        return Check(name, "unknown", reply.reason if reply else _UNASKED)
    if reply.status == 401:
        text = "VGRADS_TOKEN is unknown to the service, revoked or expired"
        return Check(name, "wrong", text, "ask the operator for 'vgrads token create USER'")
    if reply.status == 404:  # the request passed authentication
        return Check(name, "ok", "accepted; this version of the service does not describe it")
    if reply.status != 200:
        return Check(name, "unknown", f"the service answers {reply.status}", "try again later")
    token_facts = reply.document()
    scopes = ", ".join(map(str, token_facts.get("scopes") or ())) or "no scope"
    return Check(name, "ok", f"accepted: user {token_facts.get('user')}, may {scopes}")


def judge_expiry(reply: Reply | None, now_s: float) -> Check:
    """Judge how long the caller's token is valid."""
    name = "token expiry"
    if not isinstance(reply, HttpAnswer) or reply.status != 200:
        return Check(name, "unknown", "no token was accepted and described")
    expires_s = reply.document().get("expires_s")
    if not isinstance(expires_s, int | float):
        return Check(name, "ok", "it does not expire")
    days = (expires_s - now_s) / _DAY_S
    day = datetime.fromtimestamp(expires_s, UTC).strftime("%Y-%m-%d %H:%M")
    text = f"valid for {days:.1f} more days (until {day} UTC)"
    if days < _TOKEN_DAYS:
        return Check(name, "doubtful", text, "create a new one with 'vgrads token create'")
    return Check(name, "ok", text)


def judge_headers(reply: Reply) -> Check:
    """Judge the headers: a content security policy, and no version of the server."""
    name = "response headers"
    if isinstance(reply, Unavailable):
        return Check(name, "unknown", _UNASKED)
    policy, server = reply.headers.get(_POLICY, ""), reply.headers.get("server", "")
    problems = []
    if "default-src" not in policy:
        problems.append(("no Content-Security-Policy", "let the proxy pass it on"))
    elif any(
        "unsafe-" in directive
        for directive in policy.split(";")
        if not directive.strip().startswith("style-src")
    ):
        problems.append(("the Content-Security-Policy permits inline scripts", "do not replace it"))
    if reply.headers.get("x-content-type-options", "").lower() != "nosniff":
        problems.append(("no X-Content-Type-Options: nosniff", "let the proxy pass it on"))
    if server and (server == "uvicorn" or any(letter.isdigit() for letter in server)):
        problems.append((f"Server: {server} names the software", "switch it off in the proxy"))
    if not problems:
        return Check(name, "ok", "Content-Security-Policy is set; the server is not named")
    text, fixes = zip(*problems, strict=True)
    return Check(name, "doubtful", "; ".join(text), "; ".join(dict.fromkeys(fixes)))


def _read_detail(reply: HttpAnswer) -> str:
    detail = reply.document().get("detail")
    return f" ({str(detail)[:200]})" if detail else ""

"""Check a target of alarms, or deliver one message to it: a program that runs in a process of its
own (:mod:`vgrads.portal.jobs.alarm_delivery`).

``python -m vgrads.portal.jobs.alarm_program`` reads a request as JSON from standard input, so that
the secret in a URL is neither an argument nor in the environment, and writes its answer as JSON to
standard output. With limits, the process connects to permitted addresses only, however it comes to
them (redirects, other names at the next question), opens no file of its user, and starts nothing.
"""

from __future__ import annotations

import http
import ipaddress
import json
import logging
import os
import re
import resource
import signal
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vgrads.agent.programs.staging import is_public

if TYPE_CHECKING:
    from apprise import NotifyBase

Json = dict[str, Any]
LONGEST_S = 20.0
"""Time for one message, all connections of it included."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_MEMORY = 2**30  # bytes: a server may answer without end
_CONNECTS = ("socket.connect", "socket.sendto", "socket.sendmsg")
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_REASONS = (
    (r"timed? ?out", "no answer in time"),
    (r"connection refused", "the connection was refused"),
    (
        r"name or service not known|name resolution|no address associated",
        "the name of its server has no address",
    ),
    (r"certificate", "the certificate of its server is not valid"),
    (r"network is unreachable|no route to host", "its server cannot be reached"),
    (r"connection (?:reset|aborted|unexpectedly closed)", "its server closed the connection"),
)
"""What the log of a delivery contains → the reason. Its own texts may contain the secret."""


class Refused(Exception):
    """A URL that cannot be used, in words without the secret."""


class NotPermitted(PermissionError):
    """An address, a file or a program that is not permitted to this process."""


class Limits:
    """An audit hook (PEP 578) of this process: it is called with each address at the moment of
    connecting, so no name can stand for another address than the one that was checked."""

    def __init__(self, networks: list[str]) -> None:
        self._networks = [ipaddress.ip_network(text, strict=False) for text in networks]
        paths = sysconfig.get_paths()
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        folders = {str(Path(paths[name]).resolve()) for name in names}
        self._folders = (*sorted(folders), "/usr/share/zoneinfo", "/etc/ssl", "/etc/pki")
        self.refused: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise NotPermitted for what this process must not do."""
        if event in _CONNECTS and arguments[1] is not None:
            self._check_address(arguments[1])
        elif event in _STARTS:
            raise NotPermitted("no program may be started")
        elif event == "open":
            self._check_file(*arguments)

    def _check_address(self, address: object) -> None:
        host = str(address[0]) if isinstance(address, tuple) else "a local socket"
        try:
            # a link-local address has the name of an interface behind a percent sign
            number = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            self._refuse(f"{host} is not permitted")
        # an IPv4 address may be written as one of IPv6
        inside = getattr(number, "ipv4_mapped", None) or number
        if is_public(number) or any(inside in network for network in self._networks):
            return
        self._refuse(
            f"{inside} is not a public address; the operator can permit its network "
            "(alarm_networks)"
        )

    def _refuse(self, reason: str) -> None:
        self.refused.append(reason)
        raise NotPermitted(reason)

    def _check_file(self, path: object, mode: str | None, flags: int | None) -> None:
        # a number is a descriptor, whose file is open already
        if isinstance(path, int) or path == "/dev/null":
            return
        name = os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
        writes = bool(set(mode or "") & set("wax+")) or bool((flags or 0) & _WRITES)
        if writes or not any(name.startswith(f"{folder}/") for folder in self._folders):
            raise NotPermitted(f"{name} is no file of Python")


class _LogLines(logging.Handler):
    """Collects what apprise logs of a delivery, for its reason; it is written nowhere."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record."""
        with suppress(Exception):
            self.lines.append(record.getMessage())


def answer_request(request: Mapping[str, Any]) -> Json:
    """Return the answer: ``ok``; ``reason`` where it is False; ``address``, scheme and host."""
    lines = _collect_log()
    limits = None
    try:
        _load_services()
        if request["limits"] is not None:
            limits = Limits(request["limits"]["networks"])
            _limit_process(limits)
        service = _open_target(request["url"])
        if request["limits"] is not None:
            _check_scheme(service, request["limits"]["schemes"])
        if request["action"] == "deliver" and not _notify(service, request):
            return {"ok": False, "reason": _explain_error(lines.lines, limits)}
        return {"ok": True, "reason": "", "address": _find_address(service)}
    except Refused as error:
        return {"ok": False, "reason": str(error)}
    except Exception as error:  # services may raise anything, with the secret in its text
        reason = limits.refused[-1] if limits and limits.refused else type(error).__name__
        return {"ok": False, "reason": f"it cannot be used: {reason}"}


def unknown_schemes(schemes: list[str]) -> list[str]:
    """Return those of the schemes that no service has."""
    loaded = _load_services()
    return [scheme for scheme in schemes if scheme not in loaded]


def _collect_log() -> _LogLines:
    """Send the log of apprise nowhere but to the result: it contains URLs."""
    lines, log = _LogLines(), logging.getLogger("apprise")
    log.handlers, log.propagate = [lines], False
    log.setLevel(logging.DEBUG)
    return lines


def _load_services() -> set[str]:
    """Load all services; return their schemes."""
    from apprise.manager_plugins import NotificationManager

    return set(NotificationManager().schemas())


def _limit_process(limits: Limits) -> None:
    # the limits refuse all writing, also that of compiled modules
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # last: nothing can remove an audit hook again
    sys.addaudithook(limits)


def _open_target(url: str) -> NotifyBase:
    from apprise import Apprise, AppriseAsset

    match = _SCHEME.match(url)
    if match is None:
        raise Refused("it is no URL: write it as mailtos://…, slack://… or jsons://…")
    scheme = match[1].lower()
    asset = AppriseAsset(app_id="vgrads", app_desc="vgrads", async_mode=False)
    service: NotifyBase | None = None
    with suppress(Exception):  # its text may contain the secret
        service = Apprise.instantiate(url, asset=asset, suppress_exceptions=False)
    if service is not None:
        return service
    if scheme not in _load_services():
        raise Refused(
            f"no service has URLs that begin with {scheme}:// (a server that takes JSON: jsons://…)"
        )
    raise Refused(f"it is no complete URL of {scheme}://: a part of it is missing or wrong")


def _check_scheme(service: NotifyBase, schemes: list[str]) -> None:
    """Raise Refused for a scheme that the operator has not listed."""
    scheme = _list_schemes(service)
    if scheme & set(schemes):
        return
    permitted = ", ".join(schemes) or "none"
    raise Refused(
        f"the operator has not permitted targets with {sorted(scheme)[0]}:// (alarm_schemes; "
        f"permitted: {permitted})"
    )


def _list_schemes(service: NotifyBase) -> set[str]:
    """Return the names of the scheme that a service uses: mailtos for ``mailto://…@gmail.com``."""
    scheme = service.url(privacy=True).partition("://")[0]
    for names in (service.protocol, service.secure_protocol):
        alike: set[str] = set((names,) if isinstance(names, str) else names or ())
        if scheme in alike:
            return alike
    return {scheme}


def _find_address(service: NotifyBase) -> str:
    """Return the scheme, and the host, where its privacy URL shows one with a domain, or a
    number."""
    url = service.url(privacy=True)
    scheme, host = url.partition("://")[0], urlsplit(url).hostname or ""
    own = str(getattr(service, "host", "") or "").lower().strip("[]")
    is_host = "host" in service.template_tokens and host == own
    if is_host and set(".:") & set(host):  # a single word may be a topic, which is a secret
        return f"{scheme}://{f'[{host}]' if ':' in host else host}"
    return f"{scheme}://…"


def _notify(service: NotifyBase, request: Mapping[str, Any]) -> bool:
    from apprise import Apprise, NotifyFormat, NotifyType

    sender = Apprise(asset=service.asset)
    sender.add(service)
    return bool(
        sender.notify(
            body=request["body"],
            title=request["title"],
            notify_type=NotifyType.WARNING,
            body_format=NotifyFormat.TEXT,
        )
    )


def _explain_error(lines: list[str], limits: Limits | None) -> str:
    """Return why a message was not delivered."""
    if limits and limits.refused:
        return limits.refused[-1]
    text = "\n".join(lines)
    if codes := re.findall(r"error=(\d{3})\b", text):
        return f"its server answered {_format_status(int(codes[-1]))}"
    if codes := re.findall(r"\((\d{3}), b['\"]", text):
        return f"its mail server answered {codes[-1]}"
    reasons = [reason for pattern, reason in _REASONS if re.search(pattern, text, re.IGNORECASE)]
    return reasons[0] if reasons else "its server did not accept the message"


def _format_status(code: int) -> str:
    with suppress(ValueError):
        return f"HTTP {code} {http.HTTPStatus(code).phrase}"
    return f"HTTP {code}"


def main() -> None:
    """Answer the request of standard input."""
    signal.alarm(int(LONGEST_S) + 10)  # it ends also where its parent has
    answers = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # libraries may print
    os.dup2(null, 2)
    request = json.load(sys.stdin)
    if request["action"] == "schemes":
        answer: Json = {"unknown": unknown_schemes(request["schemes"])}
    else:
        answer = answer_request(request)
    answers.write(json.dumps(answer))
    answers.close()


if __name__ == "__main__":
    main()

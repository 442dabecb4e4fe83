"""Messages to targets of alarms: each is delivered by a process of its own, which is ended after
:data:`~vgrads.portal.jobs.alarm_program.LONGEST_S`, so that a server that does not answer blocks
nobody.

Targets that were added over HTTP have limits (:class:`AllowedTargets`); those of the command line
have none: whoever adds them could connect and read there without us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.extras import MissingExtraError, refuse_missing
from vgrads.portal.jobs.alarm_program import LONGEST_S
from vgrads.portal.records.alarm_targets import AlarmTarget

Json = dict[str, Any]
TRIAL = (
    "vgrads: test message",
    "This target of alarms works: somebody asked for this message by 'vgrads alarms test', or over "
    "REST.",
)
"""Title and body of the message that tries a target."""
_AT_ONCE = 8
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy")


@dataclass(frozen=True)
class AllowedTargets:
    """What the operator permits for targets with limits: ``schemes`` of URLs; ``networks``, whose
    addresses are permitted besides all public ones."""

    schemes: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlarmSettings:
    """What a service gives the managers of runs: what is ``allowed`` for targets with limits, and
    its ``url``, empty where it knows none. The command line has neither."""

    allowed: AllowedTargets = field(default_factory=AllowedTargets)
    url: str = ""


AT_TERMINAL = AlarmSettings()
"""Settings of runs from the command line."""


@dataclass(frozen=True)
class AlarmDelivery:
    """Whether a message was delivered to the target with this name; ``reason``: why not."""

    target: str
    ok: bool
    reason: str = ""


def deliver(
    targets: Sequence[AlarmTarget],
    title: str,
    body: str,
    allowed: AllowedTargets,
    longest_s: float = LONGEST_S,
) -> list[AlarmDelivery]:
    """Deliver a message to all targets, 8 at a time; one that fails affects no other.
    ``allowed``: for targets with limits; ``longest_s``: time for a target."""
    send = partial(_deliver_to, title=title, body=body, allowed=allowed, longest_s=longest_s)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        return list(threads.map(send, targets))


def check_target(url: str, allowed: AllowedTargets | None) -> str:
    """Return what may be shown of a URL: its scheme, and its host where that is no secret. Raise
    InputError, which does not contain the URL, where it cannot be used or is not permitted.
    ``allowed``: None: without limits."""
    refuse_missing("alerts", "a target of alarms")
    _refuse_without_schemes(allowed)
    answer = _ask({"action": "check", "url": url, "limits": _make_limits(allowed)})
    if not answer["ok"]:
        raise InputError(answer["reason"], where="url")
    return str(answer["address"])


def check_schemes(schemes: Iterable[str]) -> None:
    """Raise InputError for a scheme that no service has."""
    refuse_missing("alerts", "a target of alarms", "alarm_schemes")
    unknown = _ask({"action": "schemes", "schemes": list(schemes)})["unknown"]
    if unknown:
        raise InputError(f"unknown scheme '{unknown[0]}'", where="alarm_schemes")


def _refuse_without_schemes(allowed: AllowedTargets | None) -> None:
    if allowed is not None and not allowed.schemes:
        raise InputError(
            "the operator has permitted no targets over HTTP",
            where="url",
            fix="alarm_schemes in the settings of the service; or 'vgrads alarms add' there",
        )


def _deliver_to(
    target: AlarmTarget, title: str, body: str, allowed: AllowedTargets, longest_s: float
) -> AlarmDelivery:
    limits = allowed if target.is_limited else None
    try:
        refuse_missing("alerts", "a target of alarms")
        _refuse_without_schemes(limits)
    except (InputError, MissingExtraError) as error:
        return AlarmDelivery(target.name, False, error.without_place)
    message = {"action": "deliver", "url": target.url, "title": title, "body": body}
    answer = _ask(message | {"limits": _make_limits(limits)}, longest_s)
    return AlarmDelivery(target.name, bool(answer["ok"]), str(answer["reason"]))


def _make_limits(allowed: AllowedTargets | None) -> Json | None:
    if allowed is None:
        return None
    return {"schemes": list(allowed.schemes), "networks": list(allowed.networks)}


def _ask(request: Json, longest_s: float = LONGEST_S) -> Json:
    """Return the answer of the program. What it writes otherwise is lost: it might contain the
    secret."""
    # -P: nothing is imported from the working directory, whatever files are there
    command = [sys.executable, "-P", "-m", "vgrads.portal.jobs.alarm_program"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_make_environment(is_limited=request.get("limits") is not None),
            timeout=longest_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "reason": f"no answer within {longest_s:.0f} s"}
    if not done.stdout:
        reason = f"the process of the delivery ended with status {done.returncode}"
        return {"ok": False, "reason": reason}
    answer: Json = json.loads(done.stdout)
    return answer


def _make_environment(is_limited: bool) -> dict[str, str]:
    """Return the environment of the program. With limits it has no proxies, which resolve names
    themselves, no passwords of the account (.netrc), and no settings of vgrads."""
    if not is_limited:
        return dict(os.environ)
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.lower() not in _PROXIES and not name.startswith("VGRADS_")
    }
    return variables | {"NETRC": os.devnull}

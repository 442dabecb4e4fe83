"""The lifetime of an agent: until its slot ends, it has been idle or without a manager for too
long, or it is requested to leave.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import math
import threading
import time
from datetime import datetime, timezone
from typing import Callable, Mapping

from .machine import NodeIdentity
from .session import Session

_SHUTDOWN_GRACE_S = 5.0
_CONNECT_TIMEOUT_S, _REFUSED_S = 10.0, 2.0
_LOOK_S, _ANSWER_S = 5.0, 2.0
_METADATA = "http://169.254.169.254"

SIGNALLED = "signal"
"""Before its number: why an agent leaves that another process ended."""
TAKEN_BACK = "the cloud takes the node back"
"""Why an agent leaves whose spot node has got its notice."""


class InterruptionNotice:
    """Asks a cloud's metadata service whether it takes this spot node back (EC2 says so two minutes
    before), every five seconds, in a thread."""

    def __init__(self, environment: Mapping[str, str], notify: Callable[[], object]) -> None:
        address = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _METADATA
        self._address = f"{address.rstrip('/')}/latest"
        self._notify = notify
        self.at_s = math.inf
        """When the node ends, by the monotonic clock."""
        if environment.get("VGRADS_MARKET") == "spot":
            threading.Thread(target=self._watch, name="spot notice", daemon=True).start()

    def _watch(self) -> None:
        while self.at_s == math.inf:
            self.at_s = self._ask()
            time.sleep(_LOOK_S if self.at_s == math.inf else 0.0)
        self._notify()

    def _ask(self) -> float:
        try:
            notice = json.loads(self._get("/meta-data/spot/instance-action"))
            end = datetime.strptime(notice["time"], "%Y-%m-%dT%H:%M:%SZ")
            left_s = end.replace(tzinfo=timezone.utc).timestamp() - time.time()
        except Exception:  # no notice, no metadata service, or an answer of another kind
            return math.inf
        return time.monotonic() + max(0.0, left_s)

    def _get(self, path: str) -> bytes:
        from urllib.request import Request, urlopen  # noqa: PLC0415 loads much, for spot nodes

        headers = {}
        try:
            seconds = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
            token = Request(self._address + "/api/token", headers=seconds, method="PUT")
            with urlopen(token, timeout=_ANSWER_S) as answer:
                headers = {"X-aws-ec2-metadata-token": answer.read().decode()}
        except (OSError, ValueError):  # a service without tokens
            headers = {}
        with urlopen(Request(self._address + path, headers=headers), timeout=_ANSWER_S) as answer:
            return bytes(answer.read())


class Lifetime:
    """The lifetime of one agent: all instants by the monotonic clock, in seconds."""

    def __init__(
        self, identity: NodeIdentity, session: Session, notice: InterruptionNotice
    ) -> None:
        self.identity, self._session, self._notice = identity, session, notice
        self._busy_s = now_s = time.monotonic()
        left_s = math.inf if identity.left_s is None else identity.left_s
        self._slot_ends_s = now_s + left_s
        self._shutdown_at_s = self._slot_ends_s - min(_SHUTDOWN_GRACE_S, left_s / 10)
        self._ends_s = self._idle_s = math.inf

    def may_idle(self, idle_s: float | None) -> None:
        """Set how long the agent may be without a task, in seconds; None: unlimited."""
        self._idle_s = math.inf if idle_s is None else idle_s

    def left_s(self, now_s: float) -> float | None:
        """Return the remaining time of the slot; None where it is not stated."""
        return None if self._slot_ends_s == math.inf else self._slot_ends_s - now_s

    def must_leave(self, now_s: float, signalled: int) -> tuple[str, float] | None:
        """Return why the agent must leave, and within how many seconds (``inf``: when its tasks
        have ended); None: it need not, or is already leaving. ``signalled``: the signal that it
        received, if any."""
        if signalled and self._ends_s == math.inf:  # also an agent that is leaving without haste
            return f"{SIGNALLED} {signalled}", _SHUTDOWN_GRACE_S
        if self._notice.at_s - _SHUTDOWN_GRACE_S < self._shutdown_at_s:  # what runs may go on
            self._slot_ends_s = self._notice.at_s
            self._shutdown_at_s = self._slot_ends_s - _SHUTDOWN_GRACE_S
            if not self._session.leaving:
                return TAKEN_BACK, math.inf
        if now_s >= self._shutdown_at_s and self._ends_s == math.inf:
            return "the slot ends", max(self._slot_ends_s - now_s, 0.1)
        return None

    def is_idle(self, now_s: float, holds: bool) -> bool:
        """Return True where the agent has been without a task for too long; ``holds``: it holds one
        now. While the manager is away, there can be no task: that time does not count."""
        if holds or self._session.link is None:
            self._busy_s = now_s
            return False
        return now_s - self._busy_s >= self._idle_s and not self._session.leaving

    def end_within(self, within_s: float) -> None:
        """End after this time (seconds), even with work left."""
        self._ends_s = time.monotonic() + within_s

    def is_over(self, now_s: float, holds: bool) -> bool:
        """Return True where no work is left."""
        if now_s >= self._ends_s:
            return True
        if holds:
            return False
        if self._session.leaving and self._session.has_left:
            return True
        if self._ends_s < math.inf and self._session.has_nothing_to_report:
            return True
        return self.is_alone(now_s)

    def is_alone(self, now_s: float) -> bool:
        """Return True where the manager has been unreachable for too long."""
        return self._session.away_s(now_s) >= self._patience_s

    @property
    def _patience_s(self) -> float:
        """Return how long the manager may be unreachable. The agent of a pool does not wait long
        for a manager that it has never reached: that manager may have ended while the agent was
        starting."""
        if not self.identity.within or not self._session.is_new:
            return self.identity.away_s
        return min(
            self.identity.away_s, _REFUSED_S if self._session.is_refused else _CONNECT_TIMEOUT_S
        )

    def next_s(self, holds: bool) -> float:
        """Return when it may be time to leave, or to have left."""
        at_s = [self._ends_s]
        if self._session.link is None and not holds:
            at_s.append(self._session.last_contact_s + self._patience_s)
        if self._ends_s == math.inf:
            at_s.append(self._shutdown_at_s)
        if not self._session.leaving and not holds:
            at_s.append(self._busy_s + self._idle_s)
        return min(at_s)

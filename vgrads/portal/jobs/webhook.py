"""Events of a run for an external address: signed, in order, retried, never delaying the run."""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import event_to_json
from vgrads.execmgr.core.states import Event, RunState, Tick
from vgrads.kernel.errors import InputError

SIGNATURE = "X-Vgrads-Signature"
_TRIES = 5
_TIMEOUT_S = 10.0
_MOST_WAITING = 1000  # bundles; beyond it the oldest are dropped, see journal


def sign(secret: str, body: bytes) -> str:
    """Return the value of :data:`SIGNATURE`: HMAC-SHA256 of the body under the shared secret (RFC
    2104)."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class _NoDetours(urllib.request.HTTPRedirectHandler):
    """Rejects redirects: a signed message is sent only to its address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Reject a redirect."""


_opener = urllib.request.build_opener(_NoDetours)


class Webhook:
    """A watcher of a run that posts its events. ``pause``: backoff before the n-th retry."""

    def __init__(
        self, url: str, secret: str, run_id: str, pause: Callable[[int], float] = lambda n: 2.0**n
    ) -> None:
        parts = urlsplit(url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or not url.isprintable()
            or " " in url
        ):
            raise InputError(f"{url!r} is not an http or https URL", where="--webhook")
        self._url, self._secret, self._run_id, self._pause = url, secret, run_id, pause
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(_MOST_WAITING)
        self._closing = threading.Event()
        self.undelivered = 0
        self.outcome: dict[str, Any] = {"state": "interrupted"}
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __call__(self, _: ExecutionPlan, state: RunState, events: list[Event]) -> None:
        """Post events; ticks are skipped."""
        message = [event_to_json(event) for event in events if not isinstance(event, Tick)]
        if message:
            self._put({"run": self._run_id, "now_s": state.now_s, "events": message})

    def close(self, timeout_s: float = 60.0) -> None:
        """Post the outcome (``outcome``), and wait for pending messages."""
        self._put({"run": self._run_id, "outcome": self.outcome})
        self._put(None)  # never waits: the receiver may be dead and the queue full
        self._thread.join(timeout_s)
        self._closing.set()

    def _put(self, message: dict[str, Any] | None) -> None:
        while True:
            try:
                self._waiting.put_nowait(message)
                return
            except queue.Full:
                self._waiting.get_nowait()
                self.undelivered += 1

    def _work(self) -> None:
        while (message := self._waiting.get()) is not None:
            if not self._deliver(json.dumps(message).encode()):
                self.undelivered += 1

    def _deliver(self, body: bytes) -> bool:
        headers = {"Content-Type": "application/json", SIGNATURE: sign(self._secret, body)}
        for attempt in range(_TRIES):
            request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
            try:
                with _opener.open(request, timeout=_TIMEOUT_S):
                    return True
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return False  # it was received and rejected
            except OSError:
                pass
            if self._closing.wait(self._pause(attempt)):
                return False
        return False

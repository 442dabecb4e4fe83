"""Events of a run to somebody else's address: signed, in order, tried again, never holding the run
up."""

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

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.journal import event_to_json
from vgrads.execmgr.core.states import Event, RunState, Tick
from vgrads.kernel.errors import InputError

SIGNATURE = "X-Vgrads-Signature"
_TRIES = 5
_TIMEOUT_S = 10.0
_MOST_WAITING = 1000  # bundles; beyond, the oldest are dropped: the journal has them


def sign(secret: str, body: bytes) -> str:
    """What :data:`SIGNATURE` carries: HMAC-SHA256 of the body under the shared secret (RFC
    2104)."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class _NoDetours(urllib.request.HTTPRedirectHandler):
    """A signed message goes where it was addressed to, and counts where it was taken there."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Nowhere else."""


_opener = urllib.request.build_opener(_NoDetours)


class Webhook:
    """A watcher of a run that posts what happens. ``pause``: how long to wait before the n-th new
    try."""

    def __init__(
        self, url: str, secret: str, run_id: str, pause: Callable[[int], float] = lambda n: 2.0**n
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"'{url}' is no http or https address", where="--webhook")
        self._url, self._secret, self._run_id, self._pause = url, secret, run_id, pause
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(_MOST_WAITING)
        self._closing = threading.Event()
        self.undelivered = 0
        self.outcome: dict[str, Any] = {"state": "interrupted"}
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __call__(self, _: Book, state: RunState, events: list[Event]) -> None:
        """Pass on what happened; ticks are nobody's news."""
        told = [event_to_json(event) for event in events if not isinstance(event, Tick)]
        if told:
            self._put({"run": self._run_id, "now_s": state.now_s, "events": told})

    def close(self, timeout_s: float = 60.0) -> None:
        """Pass on how it ended (``outcome``), and wait for what is still under way."""
        self._put({"run": self._run_id, "outcome": self.outcome})
        self._waiting.put(None)
        self._thread.join(timeout_s)
        self._closing.set()

    def _put(self, message: dict[str, Any]) -> None:
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
                    return False  # it was understood, and is not wanted
            except OSError:
                pass
            if self._closing.wait(self._pause(attempt)):
                return False
        return False

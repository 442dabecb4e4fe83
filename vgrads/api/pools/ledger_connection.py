"""A manager's or a pool's connection to the ledger: calls run in a thread and never block."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from vgrads.api.pools.ledger import Ledger, LedgerEntries
from vgrads.kernel.errors import VgradsError

_log = logging.getLogger("vgrads.pools")
Question = Callable[[], LedgerEntries]


@dataclass
class LedgerConnection:
    """``kind`` (manager or pool) and ``name`` of its owner. ``problem``: why the ledger cannot be
    reached, empty if it can."""

    ledger: Ledger
    kind: str
    name: str
    now_s: Callable[[], float] = time.monotonic
    problem: str = ""
    _due_s: float = 0.0
    _over: bool = False
    _pending: Future[LedgerEntries] | None = None
    # a single thread, so that entries arrive in the order in which they were sent
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "ledger"))

    def is_due(self) -> bool:
        """True if a call is due and none is in progress."""
        return not self._over and self._pending is None and self.now_s() >= self._due_s

    def ask(self, question: Question, again_s: float) -> None:
        """Start a call; ``again_s``: time until the next one."""
        self._due_s = self.now_s() + again_s
        self._pending = self._thread.submit(question)

    def soon(self, again_s: float) -> None:
        """Repeat the call after this time, if not sooner."""
        self._due_s = min(self._due_s, self.now_s() + again_s)

    def latest(self) -> LedgerEntries | None:
        """Return a new answer; None if there is none, or the ledger could not be reached."""
        if self._pending is None or not self._pending.done():
            return None
        future, self._pending = self._pending, None
        try:
            entries = future.result()
        except (VgradsError, OSError) as error:
            if not self.problem:
                _log.warning(
                    "the ledger of pools cannot be reached, shares do not change: %s", error
                )
            self.problem = str(error)
            return None
        self.problem = ""
        return entries

    def send(self, what: Callable[[], None]) -> None:
        """Publish an entry; a later call repeats it if it is lost."""
        if not self._over:
            self._thread.submit(self._try, what)

    def end(self) -> None:
        """Remove the entry, and publish no more."""
        if not self._over:
            self._over = True
            self._thread.submit(self._try, lambda: self.ledger.withdraw(self.kind, self.name))
            # not waited for: the ledger may not answer, and an entry that is not renewed expires
            self._thread.shutdown(wait=False)

    def _try(self, what: Callable[[], None]) -> None:
        with suppress(VgradsError, OSError):
            what()

"""A manager's or a pool's line to the ledger: asked now and then in a thread, never waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from vgrads.api.pools.ledger import Ledger, Standing
from vgrads.kernel.errors import VgradsError

_log = logging.getLogger("vgrads.pools")
Question = Callable[[], Standing]


@dataclass
class LedgerLine:
    """``kind`` (manager or pool) and ``name``: whose. ``problem``: why it cannot be reached, empty
    while it can."""

    ledger: Ledger
    kind: str
    name: str
    now_s: Callable[[], float] = time.monotonic
    problem: str = ""
    _due_s: float = 0.0
    _over: bool = False
    _asked: Future[Standing] | None = None
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "ledger"))

    def is_due(self) -> bool:
        """True where it is time to ask, and nothing is under way."""
        return not self._over and self._asked is None and self.now_s() >= self._due_s

    def ask(self, question: Question, again_s: float) -> None:
        """Ask; ``again_s``: after so long the next time."""
        self._due_s = self.now_s() + again_s
        self._asked = self._thread.submit(question)

    def soon(self, again_s: float) -> None:
        """Ask again after so long, if not sooner."""
        self._due_s = min(self._due_s, self.now_s() + again_s)

    def heard(self) -> Standing | None:
        """The answer that has come; None while there is none, or the ledger could not be
        reached."""
        if self._asked is None or not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        try:
            found = asked.result()
        except (VgradsError, OSError) as error:
            if not self.problem:
                _log.warning(
                    "the ledger of pools cannot be reached, shares stay as they are: %s", error
                )
            self.problem = str(error)
            return None
        self.problem = ""
        return found

    def say(self, what: Callable[[], None]) -> None:
        """Tell something; told again another time if it does not get there."""
        if not self._over:
            self._thread.submit(self._try, what)

    def end(self) -> None:
        """Take the entry out, and say no more."""
        if not self._over:
            self._over = True
            self._thread.submit(self._try, lambda: self.ledger.withdraw(self.kind, self.name))
            self._thread.shutdown(wait=False)

    def _try(self, what: Callable[[], None]) -> None:
        with suppress(VgradsError, OSError):
            what()

"""Execution of a pool: a dispatcher whose tasks are workers for the managers of a ledger.

An agent of the pool gets a worker like any task: an agent for one manager, which ends when that
manager disconnects it, has no work for it or is gone. The pool decides how many such tasks each
manager's bag has; requests at sites, keys, journal and recovery after a crash are those of the
dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vgrads.api.bags.execution import BagWork, ControlRequests, Watch
from vgrads.api.bags.sites import check_places
from vgrads.api.pools.document import PoolDocument, make_worker_bag
from vgrads.api.pools.ledger import Ledger
from vgrads.api.pools.ledger_connection import LedgerConnection
from vgrads.api.pools.shares import PoolShares
from vgrads.dispatch.server.dispatcher import Dispatcher
from vgrads.vgrid.catalog import Catalog


@dataclass
class PoolWork:
    """The work of a pool's folder. ``run``: prefix of the names of its slots at sites; ``stop``:
    called twice a second, returns whether to end and release everything."""

    folder: Path
    catalog: Catalog
    document: PoolDocument
    ledger: Ledger
    run: str
    stop: Callable[[], bool] = lambda: False
    watch: Watch = lambda _: None

    def __post_init__(self) -> None:
        check_places(self.catalog, make_worker_bag(self.document, self.document.name))
        line = LedgerConnection(self.ledger, "pool", self.document.name)
        self.shares = PoolShares(self.folder, self.document, line)
        self._work = BagWork(
            self.folder,
            self.catalog,
            self.run,
            self._wishes,
            watch=self.watch,
            extension=self.shares,
        )

    def carry_out(self) -> Dispatcher:
        """Share workers until stopped."""
        return self._work.carry_out()

    def _wishes(self) -> ControlRequests:
        if self.stop():
            self.end()
        return ControlRequests(new=self.shares.numbers, stay=True)

    def end(self) -> None:
        """Release everything and stop, also from a signal handler."""
        self._work.end()

    def leave(self) -> None:
        """Stop, and leave the agents running."""
        self._work.leave()

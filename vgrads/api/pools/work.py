"""A pool at work: a dispatcher whose tasks are workers for the managers of a ledger.

A host of the pool is given a worker as it would be given any task: an agent for one manager, which
ends when that manager lets it go, has no work for it or is gone. What the pool decides is how many
such tasks each manager's bag has; requests at sites, keys, journal and what happens after a crash
are the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vgrads.api.bags.places import check_places
from vgrads.api.bags.work import BagWork, Watch, Wishes
from vgrads.api.pools.document import PoolDocument, bag_of
from vgrads.api.pools.ledger import Ledger
from vgrads.api.pools.ledger_line import LedgerLine
from vgrads.api.pools.shares import PoolShares
from vgrads.dispatch.server.dispatcher import Dispatcher
from vgrads.vgrid.catalog import Catalog


@dataclass
class PoolWork:
    """A pool's folder and what is made of it. ``run``: what the names of its slots begin with at
    sites; ``stop``: asked twice a second whether it is to end and give everything back."""

    folder: Path
    catalog: Catalog
    document: PoolDocument
    ledger: Ledger
    run: str
    stop: Callable[[], bool] = lambda: False
    watch: Watch = lambda _: None

    def __post_init__(self) -> None:
        check_places(self.catalog, bag_of(self.document, self.document.name))
        line = LedgerLine(self.ledger, "pool", self.document.name)
        self.shares = PoolShares(self.folder, self.document, line)
        self._work = BagWork(
            self.folder, self.catalog, self.run, self._wishes, watch=self.watch, beside=self.shares
        )

    def carry_out(self) -> Dispatcher:
        """Share workers until it is told to stop."""
        return self._work.carry_out()

    def _wishes(self) -> Wishes:
        if self.stop():
            self.end()
        return Wishes(new=self.shares.numbers, stay=True)

    def end(self) -> None:
        """Give everything back and stop, also from a signal's handler."""
        self._work.end()

    def leave(self) -> None:
        """Stop, and let hosts work on."""
        self._work.leave()

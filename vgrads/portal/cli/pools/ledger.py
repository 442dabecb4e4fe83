"""The ledger of pools for a command: at a service, or in this machine's database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vgrads.api.pools.ledger import Ledger, LedgerEntries, select_current
from vgrads.portal.client import Client
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.store import Store


@dataclass(frozen=True)
class ServiceLedger:
    """A service as a :class:`vgrads.api.pools.ledger.Ledger`."""

    client: Client

    def publish_manager(self, name: str, entry: Mapping[str, Any]) -> LedgerEntries:
        """Publish the state of a manager; return the pools' decisions."""
        return select_current([], self.client.publish("manager", name, entry)["pools"])

    def publish_pool(self, name: str, entry: Mapping[str, Any]) -> None:
        """Publish a pool's decision."""
        self.client.publish("pool", name, entry)

    def read(self) -> LedgerEntries:
        """Return all entries that the caller may read."""
        return select_current(self.client.managers(), self.client.pools())

    def withdraw(self, kind: str, name: str) -> None:
        """Remove an entry."""
        self.client.withdraw(kind, name)


def service_ledger(url: str) -> Ledger:
    """Return the ledger of a service, authenticated by ``VGRADS_TOKEN``."""
    return ServiceLedger(Client(url, timeout_s=20.0, token=os.environ.get("VGRADS_TOKEN", "")))


@contextmanager
def ledger_of(service: str | None) -> Iterator[Ledger]:
    """Return the ledger of a service, or of this machine's database."""
    if service:
        yield service_ledger(service)
        return
    with Store() as store:
        yield PoolLedger(store.engine)

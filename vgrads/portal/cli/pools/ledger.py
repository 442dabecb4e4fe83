"""Where a command finds the ledger of pools: at a service, or in this machine's database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vgrads.api.pools.ledger import Ledger, Standing, standing_of
from vgrads.portal.client import Client
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.store import Store


@dataclass(frozen=True)
class ServiceLedger:
    """A service as a :class:`vgrads.api.pools.ledger.Ledger`."""

    client: Client

    def publish_manager(self, name: str, entry: Mapping[str, Any]) -> Standing:
        """Say how a manager stands; what pools have decided."""
        return standing_of([], self.client.publish("manager", name, entry)["pools"])

    def publish_pool(self, name: str, entry: Mapping[str, Any]) -> None:
        """Say what a pool has decided."""
        self.client.publish("pool", name, entry)

    def read(self) -> Standing:
        """How all stand that one may see."""
        return standing_of(self.client.managers(), self.client.pools())

    def withdraw(self, kind: str, name: str) -> None:
        """Take an entry out."""
        self.client.withdraw(kind, name)


def service_ledger(url: str) -> Ledger:
    """The ledger of a service; ``VGRADS_TOKEN`` opens it."""
    return ServiceLedger(Client(url, timeout_s=20.0, token=os.environ.get("VGRADS_TOKEN", "")))


@contextmanager
def ledger_of(service: str | None) -> Iterator[Ledger]:
    """The ledger of a service, or of this machine's database."""
    if service:
        yield service_ledger(service)
        return
    with Store() as store:
        yield PoolLedger(store.engine)

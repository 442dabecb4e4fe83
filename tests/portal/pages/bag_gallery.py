"""Bags that were run and a pool that decided, for the pictures of their pages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from sqlalchemy import Engine

from tests.pool.pooling import MANAGER
from vgrads.api.pools.document import PoolDocument
from vgrads.api.pools.ledger import LedgerEntries
from vgrads.api.pools.view import PoolMemory, PoolStatus, decide_now, entry_of
from vgrads.portal.records.pools import PoolLedger

FAILING = {
    "name": "sweep",
    "commands": [*["true"] * 30, "echo 'no licence for the solver'; exit 3"],
}
NIGHTLY = {
    "name": "nightly",
    "command": "sleep 0.0{seed}",
    "parameters": {"seed": {"range": [60]}},
    "runtime_s": 0.1,
    "deadline": "10m",
    "probability": 0.95,
}
_DAY_S = 86400.0
_MANAGER = MANAGER | {"period_s": _DAY_S, "by_pool": {"campus": 10}}


def run_bags(home: Path) -> dict[str, str]:
    """Run a bag with a failed task and one with a goal in a home; their ids by name."""
    return {str(bag["name"]): _run(home, bag) for bag in (FAILING, NIGHTLY)}


def _run(home: Path, document: dict[str, object]) -> str:
    file = home / f"{document['name']}.yaml"
    file.write_text(json.dumps(document))  # which is YAML too
    command = [sys.executable, "-m", "vgrads", "bags", "run", str(file), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home)
    return str(json.loads(result.stdout)["bags"][0]["id"])


def decide_pool(engine: Engine) -> str:
    """Publish what a pool decided for two managers, ten times; its name."""
    ledger, document = PoolLedger(engine), PoolDocument(name="campus", max_workers=64)
    for running in range(0, 40, 4):
        managers = [
            _MANAGER | {"name": "sweep.1", "running": running},
            _MANAGER
            | {
                "name": "nightly.1",
                "id": "bag-2",
                "bags": ["nightly"],
                "waiting": 30,
                "capacity": None,
            },
        ]
        for manager in managers:
            ledger.publish_manager(str(manager["name"]), manager)
        shares = {"sweep.1": running, "nightly.1": running // 4}
        status = PoolStatus(now_s=60.0 * running, running=shares, hosts=running // 8 + 1)
        decision, _ = decide_now(LedgerEntries(managers=managers), document, status, PoolMemory())
        entry = entry_of(document, "pool-1", decision, status)
        ledger.publish_pool("campus", entry | {"period_s": _DAY_S})  # it is not silent at once
    return "campus"

"""A pool's document: the maximum number of workers, their distribution, their sites
(docs/pool.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from vgrads.dispatch.document import BagDocument, HostsDocument
from vgrads.kernel.documents import Document, as_value_error, load_mapping, validate
from vgrads.kernel.units import parse_duration
from vgrads.pool.sizing import SIZINGS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class WorkerDocument(Document):
    """Resources of one worker: processors, and memory if it is to be watched."""

    procs: Annotated[int, Field(ge=1, le=100_000)] = 1


class PoolDocument(Document):
    """A pool of workers shared by managers (Yu 2013, section 4.4.3).

    ``distribution``: patterns of managers' names → number of workers that all matching managers get
    together, as a proportion; the first match counts. ``max_change``: workers per minute;
    ``default_capacity``: of a manager that has not measured its own; ``period``: interval between
    decisions.
    """

    name: str
    max_workers: Annotated[int, Field(ge=1, le=1_000_000)]
    distribution: Mapping[str, Annotated[float, Field(ge=1e-6, le=1e9)]] = {".*": 1.0}
    policy: str = "d8"
    worker: WorkerDocument = WorkerDocument()
    max_change: Annotated[float, Field(ge=1e-6, le=1e9)] | None = None
    default_capacity: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    billing_cycle: str | float | None = None
    reading: Literal["example", "stated"] = "example"
    sites: tuple[str, ...] = ()
    hosts: HostsDocument = HostsDocument(most=100_000)
    period: str | float = 15.0

    @field_validator("name")
    @classmethod
    def _named(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("must consist of up to 100 letters, digits, '.', '_' and '-'")
        return value

    @field_validator("policy")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if value not in SIZINGS:
            raise ValueError(f"'{value}' is none of {', '.join(SIZINGS)}")
        return value

    @field_validator("distribution")
    @classmethod
    def _patterns(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        if not value:
            raise ValueError("names no manager; use '.*' for all managers")
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"'{pattern}' is not a valid regular expression: {error}"
                ) from None
        return value

    @field_validator("billing_cycle", "period")
    @classmethod
    def _duration(cls, value: str | float | None) -> float | None:
        if value is None:
            return None
        seconds = as_value_error(lambda: parse_duration(value, ""))
        if not 0.5 <= seconds <= 86400.0:
            raise ValueError("must be from half a second to a day")
        return seconds


def load_pool(path: Path) -> PoolDocument:
    """Load the pool from a YAML or JSON file; InputError names the field."""
    return validate(PoolDocument, load_mapping(path), str(path))


def make_worker_bag(pool: PoolDocument, manager: str) -> BagDocument:
    """Return the bag of a pool's dispatcher whose tasks are workers for one manager."""
    document: dict[str, Any] = {
        "name": manager,
        "open": True,
        "procs": pool.worker.procs,
        "retries": _AGAIN,
        "sites": pool.sites,
        "inputs": (AGENT, MANAGER_FILE),
        "hosts": pool.hosts.model_copy(update={"most": _list_hosts(pool)}).model_dump(),
    }
    return validate(BagDocument, document, manager)


_AGAIN = 3
"""Retries of a worker that died, at the same agent if it is free: its manager then detects the lost
tasks at once."""
AGENT, MANAGER_FILE = "agent.pyz", "manager.json"
WORK = f'exec "$VGRADS_PYTHON" -I {AGENT} {MANAGER_FILE}'
"""Command of a worker: an agent for its manager. Its key is in a file, which other users cannot
read."""


def _list_hosts(pool: PoolDocument) -> int:
    return min(pool.hosts.most, pool.max_workers)

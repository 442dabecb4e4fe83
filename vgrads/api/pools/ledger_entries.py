"""Validation of external ledger entries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from vgrads.kernel.documents import Document

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Count = Annotated[int, Field(strict=True, ge=0, le=10**9)]
_Seconds = Annotated[float, Field(strict=True, ge=1e-3, le=86400.0)]
_Counts = Annotated[Mapping[str, _Count], Field(max_length=10_000)]
_Age = Annotated[float, Field(strict=True, ge=0, le=1e15, allow_inf_nan=False)]
_NOTHING: Mapping[str, int] = {}
_NO_RESOURCES: Mapping[str, tuple[float, float, float]] = {}
_AT_ONCE: Mapping[str, float] = {}
_Line = Annotated[str, Field(max_length=1000)]
_MOST_WORKING, _MOST_DEPTH = 1_000_000, 20
_Text = Annotated[str, Field(max_length=10_000)]


class CapacityEntry(Document):
    """Number of processors that a manager can keep busy: 90 % interval, the limiting factor, and
    the same for each resource."""

    low: _Age
    value: _Age
    high: _Age
    bottleneck: _Name
    tasks: _Age
    cycle_s: _Age
    execution_s: _Age
    resources: Annotated[Mapping[str, tuple[_Age, _Age, _Age]], Field(max_length=1000)] = (
        _NO_RESOURCES
    )


class ManagerEntry(Document):
    """State of a manager, in processors, and its address for agents (docs/pool.md)."""

    id: _Name
    project: _Name
    period_s: _Seconds
    waiting: _Count
    running: _Count
    procs: _Count
    by_pool: _Counts = _NOTHING
    bags: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    capacity: CapacityEntry | None = None
    arrived: _Count = 0
    failing: Annotated[bool, Field(strict=True)] = False
    contact: _Text
    certificate: _Text
    slot: _Name
    key: _Text


class PoolEntry(Document):
    """Decision of a pool, in workers of ``procs`` processors, and the reasons."""

    id: _Name
    period_s: _Seconds
    procs: Annotated[int, Field(strict=True, ge=1, le=100_000)]
    policy: _Name
    max_workers: _Count
    decisions: _Counts = _NOTHING
    claim_age_s: Annotated[Mapping[str, _Age], Field(max_length=10_000)] = _AT_ONCE
    requests: _Counts = Field(default=_NOTHING, alias="asked")
    other_pools: Annotated[tuple[str, ...], Field(max_length=10_000, alias="seen")] = ()
    decided: _Count = 0
    running: _Count = 0
    hosts: _Count = 0
    coming: _Count = 0
    capacity: _Age | None = None
    problem: _Text = ""
    reasons: Annotated[tuple[_Line, ...], Field(max_length=10_000)] = ()
    working: dict[str, Any] = Field(default_factory=dict)

    @field_validator("working")
    @classmethod
    def _bounded(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            text = json.dumps(value, allow_nan=False)
        except (ValueError, RecursionError) as error:
            raise ValueError("is not plain JSON") from error
        if len(text) > _MOST_WORKING or _bound_depth(text) > _MOST_DEPTH:
            raise ValueError(f"is longer than {_MOST_WORKING:,} characters, or nested too deeply")
        return value


def _bound_depth(text: str) -> int:
    """Return an upper bound of the depth of a JSON text; brackets within texts count too."""
    depth = deepest = 0
    for sign in text:
        if sign in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "]}":
            depth -= 1
    return deepest

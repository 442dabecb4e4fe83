"""A request in the terms of virtual grids: groups of nodes, time, probability, budget.

After the virtual grid description language of VGrADS (SC'09 §2.2): a tight group is in one cluster,
a loose one may be spread over sites. :mod:`vgrads.vgrid.request_text` has the text form,
:mod:`vgrads.vgrid.request_file` opens either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator

from vgrads.kernel.documents import Count, Document, NotNegative, as_value_error, validate
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, parse_duration, parse_probability
from vgrads.vgrid.catalog import NodeType

Coupling = Literal["tight", "loose"]
Rank = Literal["probability", "speed", "price", "start"]
_NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
_COUNT = re.compile(r"(\d+)(?:\s*\.\.\s*(\d+))?$")
_MIB = {"mib": 1.0, "mb": 1e6 / 2**20, "gib": 1024.0, "gb": 1e9 / 2**20, "tib": 2.0**20}
_MOST_NODES = 10_000_000


class GroupDocument(Document):
    """One group of nodes."""

    name: Annotated[str, Field(pattern=_NAME, max_length=60)]
    coupling: Coupling = "loose"
    nodes: int | str
    cores: Count = 1
    memory: float | str | None = None
    speed: NotNegative = 0.0
    rank: Rank = "probability"

    @field_validator("nodes")
    @classmethod
    def _nodes(cls, value: int | str) -> str:
        least, most = as_value_error(lambda: parse_count(value))
        return str(least) if least == most else f"{least}..{most}"

    @field_validator("memory")
    @classmethod
    def _memory(cls, value: float | str | None) -> float | None:
        return None if value is None else as_value_error(lambda: parse_memory(value))


class RequestDocument(Document):
    """A request as written in YAML or JSON."""

    name: Annotated[str, Field(pattern=_NAME, max_length=60)]
    duration: float | str
    earliest: float | str = 0.0
    deadline: float | str
    probability: float | str = 0.9
    budget_usd: NotNegative | None = None
    groups: Annotated[tuple[GroupDocument, ...], Field(min_length=1)]

    @field_validator("duration", "earliest", "deadline")
    @classmethod
    def _times(cls, value: float | str) -> float:
        return as_value_error(lambda: parse_duration(value))

    @field_validator("probability")
    @classmethod
    def _probability(cls, value: float | str) -> float:
        return as_value_error(lambda: parse_probability(value, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """``least`` to ``most`` equal nodes: cores, memory and speed are lower limits."""

    name: str
    coupling: Coupling
    least: int
    most: int
    cores: int = 1
    memory_mib: float | None = None
    speed: float = 0.0
    rank: Rank = "probability"

    def unfit(self, node: NodeType) -> str:
        """Return why nodes of this type are unsuitable; empty if they are suitable. Unstated memory
        is unsuitable."""
        if node.cores < self.cores:
            return f"nodes have {format_count(node.cores, 'core')}"
        if self.memory_mib is not None and (node.memory_mib or 0.0) < self.memory_mib:
            return f"nodes have {node.memory_mib or 'an unknown amount of'} MiB of memory"
        return f"speed is {node.speed:g}" if node.speed < self.speed else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRequest:
    """The whole request; all groups together from one instant on, times from now."""

    name: str
    groups: tuple[NodeGroup, ...]
    duration_s: float
    earliest_s: float
    deadline_s: float
    probability: float = 0.9
    budget_usd: float | None = None

    @property
    def start_by_s(self) -> float:
        """The last instant at which everything must be ready."""
        return self.deadline_s - self.duration_s


def parse_count(value: int | str) -> tuple[int, int]:
    """Parse ``4`` or ``"4..16"`` as least and most."""
    match = _COUNT.match(str(value).strip())
    if match is None:
        raise InputError(f"'{value}' is not a number of nodes", fix="write 4 or 4..16")
    least = int(match[1])
    most = int(match[2] or match[1])
    if not 1 <= least <= most <= _MOST_NODES:
        raise InputError(f"'{value}' is not a range of nodes", fix="write 4 or 4..16")
    return least, most


def parse_memory(value: float | str) -> float:
    """Parse MiB of ``2000`` (MiB) or ``"16 GiB"``."""
    match = re.match(r"([\d.]+)\s*([A-Za-z]*)$", str(value).strip())
    try:
        return float(match[1]) * _MIB[(match[2] or "MiB").lower()]  # type: ignore[index]
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"'{value}' is not an amount of memory", fix="write 16GiB") from error


def parse_request_document(value: object, where: str) -> GridRequest:
    """Return the request of a document; InputError names the field."""
    document = validate(RequestDocument, value, where)
    groups = tuple(_group(entry) for entry in document.groups)
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise InputError("two groups have the same name", where=f"{where}: groups")
    request = GridRequest(
        name=document.name,
        groups=groups,
        duration_s=float(document.duration),
        earliest_s=float(document.earliest),
        deadline_s=float(document.deadline),
        probability=float(document.probability),
        budget_usd=document.budget_usd,
    )
    if request.duration_s <= 0:
        raise InputError("must be above 0", where=f"{where}: duration")
    if request.earliest_s + request.duration_s > request.deadline_s:
        raise InputError(
            (
                f"{request.duration_s:.0f} s from {request.earliest_s:.0f} s on end after the "
                f"deadline, {request.deadline_s:.0f} s"
            ),
            where=f"{where}: deadline",
        )
    return request


def _group(entry: GroupDocument) -> NodeGroup:
    least, most = parse_count(entry.nodes)
    return NodeGroup(
        name=entry.name,
        coupling=entry.coupling,
        least=least,
        most=most,
        cores=entry.cores,
        memory_mib=None if entry.memory is None else float(entry.memory),
        speed=entry.speed,
        rank=entry.rank,
    )

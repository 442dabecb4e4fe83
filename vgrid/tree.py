"""A virtual grid as a searchable tree: grid → site → cluster → slot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vgrads.vgrid.procure import GridOffer

FLOORS = ("grid", "site", "cluster", "slot")


@dataclass(frozen=True, kw_only=True)
class GridNode:
    """A node of the tree; ``facts`` of a slot are its properties, of other nodes those of their
    content."""

    kind: str
    name: str
    facts: dict[str, Any]
    children: tuple[GridNode, ...] = field(default_factory=tuple)

    def walk(self) -> Iterator[GridNode]:
        """Return this node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def find(self, kind: str | None = None, **facts: object) -> list[GridNode]:
        """Return nodes of a kind whose facts have these values: ``find("slot",
        group="solvers")``."""
        return [
            node
            for node in self.walk()
            if kind in (None, node.kind)
            and all(node.facts.get(name) == value for name, value in facts.items())
        ]

    def as_json(self) -> dict[str, Any]:
        """Return nested mappings, as in ``vgrads sites offers --json``."""
        plain: dict[str, Any] = {"kind": self.kind, "name": self.name, **self.facts}
        if self.children:
            plain["children"] = [child.as_json() for child in self.children]
        return plain


def build_tree(offer: GridOffer) -> GridNode:
    """Return the slots of an offer under their clusters and sites, in the order of names."""
    slots = [
        (choice.slot.site, choice.cluster, _make_slot_node(choice, group.group.name))
        for group in offer.groups
        for choice in group.choices
    ]
    sites = []
    for site in sorted({row[0] for row in slots}):
        clusters = []
        for cluster in sorted({row[1] for row in slots if row[0] == site}):
            clusters.append(
                _make_branch("cluster", cluster, [r[2] for r in slots if r[1] == cluster])
            )
        sites.append(_make_branch("site", site, clusters))
    facts = {"probability": offer.probability, "enough": offer.enough}
    return _make_branch("grid", offer.request.name, sites, facts)


def _make_branch(
    kind: str, name: str, children: list[GridNode], facts: dict[str, Any] | None = None
) -> GridNode:
    leaves = [node for child in children for node in child.walk() if node.kind == "slot"]
    sums = {
        "slots": len(leaves),
        "nodes": sum(leaf.facts["nodes"] for leaf in leaves),
        "cost_usd": round(sum(leaf.facts["cost_usd"] for leaf in leaves), 2),
    }
    return GridNode(kind=kind, name=name, facts=sums | (facts or {}), children=tuple(children))


def _make_slot_node(choice: Any, group: str) -> GridNode:
    slot = choice.slot
    likely_s = slot.zero_s(slot.submit_s) + slot.curve.reaches_s(0.5)
    facts = {
        "group": group,
        "site": slot.site,
        "nodes": choice.width,
        "procs": slot.procs,
        "submit_s": slot.submit_s,
        "likely_s": likely_s if math.isfinite(likely_s) else None,
        "probability": choice.probability,
        "cost_usd": choice.cost_usd,
        "shared": slot.shared,
    }
    return GridNode(kind="slot", name=slot.id, facts=facts)

"""Offers of nodes for a request, before there is any work for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgrads.api.plans.planning import open_grid
from vgrads.api.queues.offers import offer_gantt, offer_json, offer_sentence
from vgrads.interface.arguments import FileName, Instant, instant_of, named_arguments, path_of
from vgrads.interface.catalogs import Sites, catalog_of
from vgrads.interface.gantt import gantt_html, gantt_png
from vgrads.kernel.units import format_count, format_usd
from vgrads.portal.charts.exports import write_chart
from vgrads.vgrid.procure import GridOffer, procure
from vgrads.vgrid.request import GridRequest, parse_request_document
from vgrads.vgrid.request_file import load_request
from vgrads.vgrid.request_text import parse_request


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedGroup:
    """The nodes for one group of the request.

    ``probability``: that they are there for the whole time. ``nodes``: offered, of ``needed``.
    ``slots``: ids. ``excluded``: site or cluster → why it is left out.
    """

    name: str
    coupling: str
    probability: float
    nodes: int
    needed: int
    slots: tuple[str, ...]
    excluded: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, repr=False)
class OfferResult:
    """The best offer of all sites for a request.

    ``enough``: it reaches the ``requested`` probability. ``probability``: that all nodes are there
    from ``start_by_s`` to ``deadline_s`` (seconds from now), with its ``standard_error``.
    ``cost_usd``: at most. ``groups``: one for each group of the request.
    """

    name: str
    enough: bool
    probability: float
    standard_error: float
    requested: float
    start_by_s: float
    deadline_s: float
    cost_usd: float
    groups: tuple[OfferedGroup, ...]
    offer: GridOffer = field(compare=False)

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``vgrads sites offers --json``."""
        return offer_json(self.offer)

    def gantt(self, path: FileName) -> Path:
        """Write the chart of the offered slots, as :meth:`PlanResult.gantt` does."""
        file = path_of(path)
        write_chart(file, offer_gantt(self.offer), offer_sentence(self.offer))
        return file

    def __repr__(self) -> str:
        verdict = "enough" if self.enough else "not enough"
        lines = [
            f"OfferResult '{self.name}': probability {self.probability:.3f} ± "
            f"{self.standard_error:.3f}, {self.requested:g} requested: {verdict}, "
            f"{format_usd(self.cost_usd)}"
        ]
        lines += [
            f"  {group.name}: {format_count(group.nodes, 'node')} in "
            f"{format_count(len(group.slots), 'slot')}, "
            f"probability {group.probability:.3f}"
            for group in self.groups[:4]
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return gantt_html(offer_sentence(self.offer), offer_gantt(self.offer))

    def _repr_png_(self) -> bytes | None:
        return gantt_png(offer_gantt(self.offer))


@named_arguments()
def offers(
    request: FileName | Mapping[str, Any],
    sites: Sites | None = None,
    at: Instant | None = None,
    seed: int = 0,
) -> OfferResult:
    """Which nodes could I have, with which probability, at what cost?

    ``request``: a file, a text in the language of docs/requests.md (it contains a brace), or a
    mapping with its fields. ``sites``: as for :func:`vgrads.plan`. ``at``: instant of the
    histories, their end by default. An offer below the requested probability has ``enough`` False.

    >>> import vgrads
    >>> vgrads.offers("grid small for 1h by 4h with 90% { nodes = loose 4 nodes }").enough
    True
    """
    grid = open_grid(catalog_of(sites), instant_of(at))
    offer = procure(grid.catalog, grid.knowledge, _make_request(request), seed)
    document = offer_json(offer)
    names = (
        *("name", "enough", "probability", "standard_error"),
        *("start_by_s", "deadline_s", "cost_usd"),
    )
    return OfferResult(
        **{name: document[name] for name in names},
        requested=offer.request.probability,
        groups=tuple(map(_group, document["groups"])),
        offer=offer,
    )


def _make_request(request: FileName | Mapping[str, Any]) -> GridRequest:
    if isinstance(request, Mapping):
        return parse_request_document(request, "request")
    if isinstance(request, str) and "{" in request:
        return parse_request(request, "request")
    return load_request(path_of(request))


def _group(row: Mapping[str, Any]) -> OfferedGroup:
    names = ("name", "coupling", "probability", "nodes", "needed")
    return OfferedGroup(
        **{name: row[name] for name in names},
        slots=tuple(row["slots"]),
        excluded={entry["place"]: entry["reason"] for entry in row["excluded"]},
    )

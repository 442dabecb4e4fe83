"""Offers of nodes for a request: asked for, as JSON, as a tree for a person, as a chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from rich.console import Group as Lines
from rich.tree import Tree

from kernel.errors import InfeasibleError
from kernel.files import write_text
from kernel.units import format_duration, format_usd
from portal.gantt_view import render_html, render_svg, standalone_svg
from portal.operations import Instant, open_grid
from portal.progress import console
from portal.sites import choose_catalog, past_acquisitions
from vgrid.procure import GridOffer, procure
from vgrid.request import load_request
from vgrid.request_text import request_text
from vgrid.shapes import Choice
from vgrid.tree import GridNode, grid_tree

Json = dict[str, Any]


def ask(request: Path, sites: Path | None, at: Instant, seed: int, learned: bool) -> GridOffer:
    """What the sites offer for the request in a file."""
    wanted = load_request(request)
    with console(stderr=True).status("asking all sites") as status:
        seen = past_acquisitions() if learned else ()
        grid = open_grid(choose_catalog(sites), at, notify=status.update, seen=seen)
        return procure(grid.catalog, grid.known, wanted, seed)


def offer_json(offer: GridOffer) -> Json:
    """``vgrads offers --json``."""
    request = offer.request
    return {
        "name": request.name, "request": request_text(request), "enough": offer.enough,
        "probability": offer.probability, "standard_error": offer.standard_error, "asked": request.probability,
        "start_by_s": request.start_by_s, "deadline_s": request.deadline_s, "cost_usd": offer.cost_usd,
        "budget_usd": request.budget_usd,
        "groups": [
            {
                "name": g.group.name, "coupling": g.group.coupling, "probability": g.probability,
                "nodes": sum(c.width for c in g.choices), "needed": g.group.least, "considered": g.considered,
                "solver": g.solver, "gap": g.gap, "slots": [c.slot.id for c in g.choices],
                "excluded": [{"place": e.place, "reason": e.reason} for e in g.excluded],
            }
            for g in offer.groups
        ],
        "tree": grid_tree(offer).as_json(), "seconds": dict(offer.seconds),
    }  # fmt: skip


def offer_text(offer: GridOffer) -> Lines:
    """The tree, what was left out, and one sentence."""
    root = grid_tree(offer)
    tree = Tree(f"[bold]{root.name}[/]")
    for site in root.children:
        branch = tree.add(f"{site.name}  [dim]{_sums(site)}[/]")
        for cluster in site.children:
            twig = branch.add(f"{cluster.name}  [dim]{_sums(cluster)}[/]")
            for slot in cluster.children:
                twig.add(_slot_text(slot))
    left_out = [
        f"  [dim]{g.group.name}: not {e.place}, {e.reason}[/]" for g in offer.groups for e in g.excluded
    ]  # fmt: skip
    return Lines(tree, *left_out, _sentence(offer))


def _sums(node: GridNode) -> str:
    cost = f", {format_usd(node.facts['cost_usd'])}" if node.facts["cost_usd"] else ""
    return f"{_count(node.facts['nodes'], 'node')} in {_count(node.facts['slots'], 'slot')}{cost}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _slot_text(node: GridNode) -> str:
    facts = node.facts
    cost = f", {format_usd(facts['cost_usd'])}" if facts["cost_usd"] else ""
    return (
        f"{node.name}: {_count(facts['nodes'], 'node')} for {facts['group']}, ask in {format_duration(facts['submit_s'])}, "
        f"there in time with {facts['probability']:.3f}{cost}"
    )


def _sentence(offer: GridOffer) -> str:
    """What is offered, in a sentence."""
    request = offer.request
    groups = ", ".join(f"{g.group.name} {g.probability:.3f}" for g in offer.groups)
    gaps = ", ".join(
        f"{g.solver}{'' if g.gap is None else f' within {g.gap:.1%} of the best'}" for g in offer.groups
    )  # fmt: skip
    return (
        f"All nodes are there from {format_duration(request.start_by_s)} to {format_duration(request.deadline_s)} from now with "
        f"probability {offer.probability:.3f} ± {offer.standard_error:.3f} ({groups}) for at most {format_usd(offer.cost_usd)}; "
        f"{request.probability} was asked. Chosen by {gaps}."
    )


def refuse(offer: GridOffer, path: Path) -> NoReturn:
    """Exit 3: what was shown is the best that there is, and it is not enough."""
    weakest = min(offer.groups, key=lambda g: g.probability)
    reasons = "; ".join(f"{e.place}: {e.reason}" for e in weakest.excluded[:3])
    raise InfeasibleError(
        f"the best offer has probability {offer.probability:.3f}, {offer.request.probability} was asked",
        lacking=f"sure nodes for '{weakest.group.name}'" + (f" ({reasons})" if reasons else ""), where=str(path),
    )  # fmt: skip


def draw(path: Path, offer: GridOffer) -> None:
    """The offered slots as a Gantt chart: a page, or with the ending ``.svg`` the chart alone."""
    gantt = offer_gantt(offer)
    page = standalone_svg(render_svg(gantt)) if path.suffix == ".svg" else render_html(gantt, _sentence(offer))  # fmt: skip
    write_text(path, page)


def offer_gantt(offer: GridOffer) -> Json:
    """The Gantt query for a virtual grid: slots as lanes, nothing placed in them yet."""
    request = offer.request
    return {
        "name": request.name, "deadline_s": request.deadline_s, "needed": 0, "now_s": None, "workflows": [],
        "promise": {"probability": offer.probability, "standard_error": offer.standard_error},
        "cost_usd": offer.cost_usd, "placements": [],
        "slots": [_lane(offer, c) for g in offer.groups for c in g.choices],
        "facts": request_text(request),
    }  # fmt: skip


def _lane(offer: GridOffer, choice: Choice) -> Json:
    slot, request = choice.slot, offer.request
    low, middle, high = (float(t) + slot.submit_s for t in slot.curve.ready_at([0.05, 0.5, 0.95]))
    return {
        "id": slot.id, "site": slot.site, "queue": slot.queue, "kind": slot.kind, "procs": slot.procs,
        "start_s": request.start_by_s, "end_s": request.deadline_s, "submit_s": slot.submit_s,
        "probability": choice.probability, "cost_usd": choice.cost_usd, "state": "offered",
        "ready_p5_s": _finite(low), "ready_p50_s": _finite(middle), "ready_p95_s": _finite(high),
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None

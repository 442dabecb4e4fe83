"""Offers of nodes on the command line: the query, the tree, the chart in a file."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text
from rich.tree import Tree

from vgrads.api.plans.planning import open_grid
from vgrads.api.queues.offers import offer_gantt, offer_json, offer_sentence, refuse
from vgrads.kernel.files import write_text
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.operations.offers import OffersRequest
from vgrads.portal.charts.gantt import render_html, render_svg, standalone_svg
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.plans.outputs import ChartOutput
from vgrads.portal.cli.terminal import busy, console
from vgrads.portal.records.reading.sites import choose_catalog, read_past_acquisitions
from vgrads.vgrid.procure import GridOffer, procure
from vgrads.vgrid.request_file import load_request
from vgrads.vgrid.slot import NOW_S
from vgrads.vgrid.tree import GridNode, build_tree


def offer_now(request: OffersRequest, output: ChartOutput) -> int:
    """``vgrads sites offers``. Raise InfeasibleError where the requested probability is not
    reached."""
    offer = find_offer(request)
    if output.gantt:
        _draw(output.gantt, offer)
    answer_with(output.as_json, offer_json(offer), lambda: offer_text(offer))
    if not offer.enough:
        refuse(offer, request.file)
    return 0


def find_offer(request: OffersRequest) -> GridOffer:
    """Return the sites' offers for the request in a file."""
    required = load_request(request.file)
    with busy(console(stderr=True), "querying all sites") as doing:
        observed = () if request.as_stated else read_past_acquisitions()
        catalog = choose_catalog(request.sites)
        grid = open_grid(catalog, request.at, notify=doing, observed=observed)
        return procure(grid.catalog, grid.knowledge, required, request.seed)


def offer_text(offer: GridOffer) -> list[Tree | str]:
    """Return the tree, the omitted parts, and one sentence."""
    root = build_tree(offer)
    tree = Tree(Text(root.name, "bold"))
    for site in root.children:
        branch = tree.add(_name_node(site))
        for cluster in site.children:
            twig = branch.add(_name_node(cluster))
            for slot in cluster.children:
                twig.add(_format_slot(slot))
    left_out = [
        f"  {g.group.name}: not {e.place}, {e.reason}" for g in offer.groups for e in g.excluded
    ]
    return [tree, *left_out, offer_sentence(offer)]


def _name_node(node: GridNode) -> Text:
    return Text.assemble(f"{node.name}  ", (_format_sums(node), "dim"), overflow="fold")


def _format_sums(node: GridNode) -> str:
    cost = f", {format_usd(node.facts['cost_usd'])}" if node.facts["cost_usd"] else ""
    nodes, slots = (format_count(node.facts[f"{what}s"], what) for what in ("node", "slot"))
    return f"{nodes} in {slots}{cost}"


def _format_slot(node: GridNode) -> Text:
    facts = node.facts
    cost = f", {format_usd(facts['cost_usd'])}" if facts["cost_usd"] else ""
    return Text(
        f"{node.name}: {format_count(facts['nodes'], 'node')} for {facts['group']}, submit in "
        f"{format_duration(facts['submit_s'])}, likely ready "
        f"{_format_time(facts['likely_s'])}, "
        f"ready in time with probability {facts['probability']:.3f}{cost}",
        overflow="fold",
    )


def _format_time(at_s: float | None) -> str:
    if at_s is None:
        return "never"
    return "about now" if at_s < NOW_S else f"in {format_duration(at_s)}"


def _draw(path: Path, offer: GridOffer) -> None:
    """Draw the offered slots as a Gantt chart: a page, or with the extension ``.svg`` the chart
    alone."""
    gantt = offer_gantt(offer)
    page = (
        standalone_svg(render_svg(gantt))
        if path.suffix == ".svg"
        else render_html(gantt, offer_sentence(offer))
    )
    write_text(path, page)

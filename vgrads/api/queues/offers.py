"""Offers of nodes for a request: query, JSON, text, chart query."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from vgrads.kernel.errors import InfeasibleError
from vgrads.kernel.units import format_duration, format_usd
from vgrads.vgrid.procure import GridOffer
from vgrads.vgrid.request_text import write_request
from vgrads.vgrid.shapes import SlotOption
from vgrads.vgrid.tree import build_tree

Json = dict[str, Any]
_VISIBLE_GAP = 0.0005


def offer_json(offer: GridOffer) -> Json:
    """``vgrads sites offers --json``."""
    request = offer.request
    return {
        "name": request.name,
        "request": write_request(request),
        "enough": offer.enough,
        "probability": offer.probability,
        "standard_error": offer.standard_error,
        "requested": request.probability,
        "start_by_s": request.start_by_s,
        "deadline_s": request.deadline_s,
        "cost_usd": offer.cost_usd,
        "budget_usd": request.budget_usd,
        "groups": [
            {
                "name": g.group.name,
                "coupling": g.group.coupling,
                "probability": g.probability,
                "nodes": sum(c.width for c in g.choices),
                "needed": g.group.least,
                "considered": g.considered,
                "solver": g.solver,
                "gap": g.gap,
                "slots": [c.slot.id for c in g.choices],
                "excluded": [{"place": e.place, "reason": e.reason} for e in g.excluded],
            }
            for g in offer.groups
        ],
        "tree": build_tree(offer).as_json(),
        "seconds": dict(offer.seconds),
    }


def offer_sentence(offer: GridOffer) -> str:
    """Return the offer as a sentence."""
    request = offer.request
    groups = ", ".join(f"{g.group.name} {g.probability:.3f}" for g in offer.groups)
    return (
        f"All nodes are available from {format_duration(request.start_by_s)} to "
        f"{format_duration(request.deadline_s)} from now with "
        f"probability {offer.probability:.3f} ± {offer.standard_error:.3f} ({groups}) for "
        f"at most {format_usd(offer.cost_usd)}; "
        f"the requested probability is {request.probability}.{_format_choice(offer)}"
    )


def _format_choice(offer: GridOffer) -> str:
    """Return how far the choice of slots may be from the best; empty if it is the best."""
    chosen = [group for group in offer.groups if group.choices]
    gaps = [group.gap for group in chosen if group.gap is not None]
    if len(gaps) < len(chosen):
        return " A better choice of slots may exist: no time was left to find the best."
    if max(gaps, default=0.0) >= _VISIBLE_GAP:
        return f" A choice of slots that is better by up to {max(gaps):.1%} may exist."
    return ""


def refuse(offer: GridOffer, path: Path) -> NoReturn:
    """Exit 3: the best offer was shown, and it does not suffice."""
    weakest = min(offer.groups, key=lambda g: g.probability)
    reasons = "; ".join(f"{e.place}: {e.reason}" for e in weakest.excluded[:3])
    raise InfeasibleError(
        (
            f"the best offer has probability {offer.probability:.3f}, "
            f"the requested probability is {offer.request.probability}"
        ),
        lacking=f"more probable nodes for '{weakest.group.name}'"
        + (f" ({reasons})" if reasons else ""),
        where=str(path),
    )


def offer_gantt(offer: GridOffer) -> Json:
    """Return the Gantt query for a virtual grid: slots as lanes, without placements."""
    request = offer.request
    return {
        "name": request.name,
        "deadline_s": request.deadline_s,
        "needed": 0,
        "now_s": None,
        "workflows": [],
        "promise": {"probability": offer.probability, "standard_error": offer.standard_error},
        "cost_usd": offer.cost_usd,
        "placements": [],
        "slots": [_make_lane(offer, c) for g in offer.groups for c in g.choices],
        "facts": write_request(request),
    }


def _make_lane(offer: GridOffer, choice: SlotOption) -> Json:
    slot, request = choice.slot, offer.request
    low, middle, high = (
        float(t) + slot.zero_s(slot.submit_s) for t in slot.curve.ready_at([0.05, 0.5, 0.95])
    )
    return {
        "id": slot.id,
        "site": slot.site,
        "queue": slot.queue,
        "kind": slot.kind,
        "procs": slot.procs,
        "start_s": request.start_by_s,
        "end_s": request.deadline_s,
        "submit_s": slot.submit_s,
        "probability": choice.probability,
        "cost_usd": choice.cost_usd,
        "state": "offered",
        "ready_p5_s": _require_finite(low),
        "ready_p50_s": _require_finite(middle),
        "ready_p95_s": _require_finite(high),
    }


def _require_finite(value: float) -> float | None:
    return value if value < float("inf") else None

"""What templates show of a promise that is computed and not stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgrads.portal.web.set_display import BELOW, IMPOSSIBLE, READY, display_state, read_summary

Json = dict[str, Any]
CENT = 0.005
"""Less is no cost, in dollars: prices are shown to the cent."""


def promise_parts(answer: Mapping[str, Any] | None) -> Json:
    """Return the values of a template that show a promise (a summary); None: there is none."""
    promise = read_summary(answer or {})
    state = display_state("planned", None, promise)
    return {
        "promise": promise if answer else None,
        "tone": {READY: "good", BELOW: "warn", IMPOSSIBLE: "bad"}[state] if answer else "soft",
        "met": state == READY,
        "free": (promise.cost_usd or 0.0) < CENT,
        "lacking": (answer or {}).get("lacking") or "",
    }

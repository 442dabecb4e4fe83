"""Time and cost of work as a picture: against the number of nodes, or for a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.kernel.extras import require
from vgrads.kernel.files import refuse_database


def write_size_chart(payload: Mapping[str, Any], path: Path) -> None:
    """Draw the chart. ``payload``: as :func:`vgrads.api.bags.sizes.size` returns it; the format
    follows from the file's extension (svg, png, pdf)."""
    require("plots", "a diagram", str(path))
    from matplotlib.figure import Figure  # noqa: PLC0415 loads for half a second

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    hosts = [item["hosts"] for item in payload["sizes"]]
    axes.plot(hosts, [item["seconds"] for item in payload["sizes"]], color="#1f5fa8", label="time")
    axes.set(xscale="log", yscale="log", xlabel="hosts", ylabel="seconds", title=payload["work"])
    if payload["deadline_s"]:
        axes.axhline(
            payload["deadline_s"], color="#b3261e", linestyle="--", linewidth=1, label="deadline"
        )
    if any(item["cost_usd"] for item in payload["sizes"]):
        costs = axes.twinx()
        costs.plot(
            hosts,
            [item["cost_usd"] for item in payload["sizes"]],
            color="#8a6d1a",
            linestyle=":",
            label="cost",
        )
        costs.set_ylabel("dollars")
    for name, entry in payload["worth"].items():
        axes.plot([entry["hosts"]], [entry["seconds"]], "o", color="#1f5fa8")
        axes.annotate(
            name,
            (entry["hosts"], entry["seconds"]),
            textcoords="offset points",
            xytext=(5, 6),
            fontsize=9,
        )
    axes.legend(loc="upper right")
    refuse_database(path)
    figure.savefig(path)


def write_deadline_chart(payload: Mapping[str, Any], path: Path) -> None:
    """Draw the plans of which none is both cheaper and more probable than another, and the cost by
    deadline. ``payload``: as :func:`vgrads.api.bags.deadline_plans.answer_deadline_plan` returns
    it."""
    require("plots", "a diagram", str(path))
    from matplotlib.figure import Figure  # noqa: PLC0415 loads for half a second

    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    front, curve = figure.subplots(1, 2)
    figure.suptitle(payload["work"])
    plans, chosen = payload["front"], payload["chosen"]
    front.step(
        [plan["cost_usd"] for plan in plans],
        [plan["probability"] for plan in plans],
        where="post",
        color="#1f5fa8",
        marker=".",
    )
    front.plot([chosen["cost_usd"]], [chosen["probability"]], "o", color="#8a6d1a", label="chosen")
    front.axhline(
        payload["requested"], color="#b3261e", linestyle="--", linewidth=1, label="requested"
    )
    front.set(xlabel="expected dollars", ylabel="probability", ylim=(0, 1.02))
    front.set_title("Plans for the deadline", fontsize=10)
    front.legend(loc="upper left")
    hours = [item["deadline_s"] / 3600.0 for item in payload["deadlines"]]
    curve.plot(hours, [item["cost_usd"] for item in payload["deadlines"]], ".-", color="#1f5fa8")
    for hour, item in zip(hours, payload["deadlines"], strict=True):
        if not item["enough"]:
            label = f"{item['probability']:.2f} at most"
            curve.annotate(label, (hour, item["cost_usd"]), fontsize=8, color="#b3261e")
    curve.axvline(payload["deadline_s"] / 3600.0, color="#b3261e", linestyle="--", linewidth=1)
    curve.set(xlabel="deadline, hours", ylabel="expected dollars")
    curve.set_title(f"Cheapest plan with {payload['requested']:g}", fontsize=10)
    refuse_database(path)
    figure.savefig(path)

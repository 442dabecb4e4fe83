"""Time and cost against the number of nodes, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.kernel.extras import require


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
    figure.savefig(path)

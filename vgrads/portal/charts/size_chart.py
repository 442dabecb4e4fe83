"""Time and cost against hosts, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_size_chart(told: Mapping[str, Any], path: Path) -> None:
    """``told``: as :func:`vgrads.api.bags.sizes.size` answers; the kind of file follows from its
    name (svg, png, pdf)."""
    from matplotlib.figure import Figure  # noqa: PLC0415 loads for half a second

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    hosts = [one["hosts"] for one in told["sizes"]]
    axes.plot(hosts, [one["seconds"] for one in told["sizes"]], color="#1f5fa8", label="time")
    axes.set(xscale="log", yscale="log", xlabel="hosts", ylabel="seconds", title=told["work"])
    if told["deadline_s"]:
        axes.axhline(
            told["deadline_s"], color="#b3261e", linestyle="--", linewidth=1, label="deadline"
        )
    if any(one["cost_usd"] for one in told["sizes"]):
        costs = axes.twinx()
        costs.plot(
            hosts,
            [one["cost_usd"] for one in told["sizes"]],
            color="#8a6d1a",
            linestyle=":",
            label="cost",
        )
        costs.set_ylabel("dollars")
    for name, one in told["worth"].items():
        axes.plot([one["hosts"]], [one["seconds"]], "o", color="#1f5fa8")
        axes.annotate(
            name,
            (one["hosts"], one["seconds"]),
            textcoords="offset points",
            xytext=(5, 6),
            fontsize=9,
        )
    axes.legend(loc="upper right")
    figure.savefig(path)

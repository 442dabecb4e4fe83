"""Run times of one kind of task as a picture: recorded and predicted ones, by input size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.extras import require
from vgrads.kernel.files import refuse_database

_COLOURS = ("#1f5fa8", "#b3261e", "#2e7d32", "#8a6d1a", "#6a1b9a", "#00838f")


def write_run_time_chart(payload: Mapping[str, Any], path: Path) -> None:
    """Draw the chart. ``payload``: as :func:`vgrads.api.plans.run_time_answers.kind_json` returns
    it; svg, png or pdf by the file's extension."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"'{path.name}' does not end in .svg, .png or .pdf", where="--plot")
    require("plots", "a diagram", str(path))
    from matplotlib.figure import Figure  # noqa: PLC0415 loads for half a second

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    sized = bool(payload["curve"])
    machines = sorted({record["machine"] for record in payload["records"]})
    for number, machine in enumerate(machines):
        mine = [r for r in payload["records"] if r["machine"] == machine]
        if sized:
            mine = [r for r in mine if r["input_bytes"]]
        across = (
            [r["input_bytes"] / 2**20 for r in mine] if sized else list(range(1, len(mine) + 1))
        )
        colour = _COLOURS[number % len(_COLOURS)]
        axes.scatter(
            across,
            [r["seconds"] for r in mine],
            s=18,
            color=colour,
            label=machine or "unknown machine",
        )
    if sized:
        sizes = [point["input_bytes"] / 2**20 for point in payload["curve"]]
        low, middle, high = zip(*(point["seconds"] for point in payload["curve"]), strict=True)
        axes.plot(sizes, middle, color="#333333", label="predicted on the reference machine")
        axes.fill_between(sizes, low, high, color="#333333", alpha=0.12, label="90 % interval")
        axes.set(xscale="log")
    else:
        axes.axhspan(
            payload["low_s"], payload["high_s"], color="#333333", alpha=0.12, label="90 % interval"
        )
        axes.axhline(payload["median_s"], color="#333333", label="predicted")
    label = "input, MiB" if sized else "record"
    axes.set(yscale="log", xlabel=label, ylabel="seconds", title=payload["kind"])
    axes.legend(fontsize=8)
    refuse_database(path)
    figure.savefig(path)

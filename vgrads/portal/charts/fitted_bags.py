"""The report of a fit of bags: one page with the distribution functions of every characteristic."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from vgrads.kernel.extras import require
from vgrads.kernel.report_page import figure_of, html_table, paragraph, write_page
from vgrads.kernel.units import format_count
from vgrads.workloads.answers import FittedHistory


def write_report(path: Path, fitted: FittedHistory) -> None:
    """Write a page with the distribution functions of every characteristic."""
    require("plots", "a report with diagrams", str(path))
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 of an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(12, 7.5))
    FigureCanvasSVG(figure)
    for place, (name, item) in enumerate(fitted.fits.items(), 1):
        axes = figure.add_subplot(2, 3, place)
        values = np.sort(item.values)
        axes.plot(
            values,
            np.arange(1, len(values) + 1) / len(values),
            color="#1c2430",
            linewidth=2.5,
            label="history",
        )
        grid = np.linspace(values[0], values[-1], 300)
        for fit in item.fits[:3]:
            axes.plot(
                grid,
                fit.distribution.cdf(grid),
                linewidth=1,
                label=f"{fit.distribution}: D {fit.d:.3f}",
            )
        axes.set_title(name)
        axes.legend(fontsize=7)
    figure.tight_layout()
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    rows = [
        [name, f"{len(fit.values):,}", str(fit.best.distribution), f"{fit.best.d:.3f}"]
        for name, fit in fitted.fits.items()
    ]
    table = html_table(["characteristic", "values", "best fit", "D"], rows)
    conclusion = f"{format_count(len(fitted.bags), 'bag')}: the distributions that fit them best."
    parts = [paragraph(_UNITS), table, figure_of(buffer.getvalue())]
    write_page(path, f"Bags of {fitted.name}", conclusion, parts)


_UNITS = (
    "Times and sizes are logarithms to base 2, the daily cycle counts half hours. D is the largest "
    "distance between the two distribution functions (Kolmogorov–Smirnov)."
)

"""The report of a fit of bags: one page with the distribution functions of every characteristic."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path

import numpy as np

from vgrads.kernel.extras import require
from vgrads.kernel.files import write_text
from vgrads.research.bags.answers import FittedHistory


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
    svg = buffer.getvalue()
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{len(fit.values):,}</td><td>{escape(str(fit.best.distribution))}</td><td>{fit.best.d:.3f}</td></tr>"
        for name, fit in fitted.fits.items()
    )
    write_text(
        path,
        _PAGE.format(
            name=escape(fitted.name),
            rows=rows,
            svg=svg[svg.index("<svg") :],
            bags=f"{len(fitted.bags):,}",
        ),
    )


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Bags of {name} · vgrads</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff;
  max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; }}
th, td {{ text-align: left; padding: .25rem .8rem; border-bottom: 1px solid #ddd; }}
svg {{ max-width: 100%; height: auto; }}
</style></head><body>
<h1>Bags of {name}</h1><p>{bags} bags. Times and sizes are logarithms
to base 2, the daily cycle counts half hours.
D is the largest distance between the two distribution functions (Kolmogorov–Smirnov).</p>
<table><tr><th>characteristic</th><th>values</th><th>best fit</th><th>D</th></tr>
{rows}</table>{svg}</body></html>
"""

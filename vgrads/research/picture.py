"""The frame of a study's picture: diagrams side by side, an SVG that is the same each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def diagrams(path: Path, columns: int, size: tuple[float, float], **more: Any) -> Iterator[Any]:
    """Axes, one for each column, to be drawn on; written to ``path`` at the end."""
    import matplotlib as mpl  # noqa: PLC0415  # takes its time to load

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "vgrads"
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, columns, figsize=size, squeeze=False, **more)
    yield axes[0]
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)

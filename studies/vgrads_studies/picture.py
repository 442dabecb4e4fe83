"""Frame of a study's picture: diagrams side by side, a reproducible SVG."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vgrads.kernel.extras import require


def picture_file(name: str) -> Path:
    """Return the file of an option; MissingExtraError, before a study runs, if nothing can be
    drawn."""
    require("plots", "a diagram", name)
    return Path(name)


@contextmanager
def diagrams(path: Path, columns: int, size: tuple[float, float], **more: Any) -> Iterator[Any]:
    """Yield axes, one for each column, to be drawn on; written to ``path`` at the end."""
    require("plots", "a diagram", str(path))
    import matplotlib as mpl  # noqa: PLC0415  # takes its time to load

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "vgrads"
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, columns, figsize=size, squeeze=False, **more)
    yield axes[0]
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)

"""Wavefront: R[i,j] = F(R[i−1,j], R[i,j−1], R[i−1,j−1]), in blocks of cells.

L. Yu, Right-sizing resource allocations for scientific applications in clusters, grids, and clouds,
PhD thesis, University of Notre Dame 2013, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Wavefront:
    """A grid of ``rows`` × ``cols`` blocks; block (i, j) is task i·cols + j. It is ready when the
    one above and the one to the left are done; then the one between these is."""

    rows: int
    cols: int

    @property
    def size(self) -> int:
        """How many blocks."""
        return self.rows * self.cols

    def first(self) -> tuple[int, ...]:
        """The corner."""
        return (0,) if self.size else ()

    def after(self, task: int, done: Callable[[int], bool]) -> list[int]:
        """Of the block below and the one to the right those whose other neighbour is done."""
        cols, found = self.cols, []
        col, below = task % cols, task + cols
        if below < self.rows * cols and (col == 0 or done(below - 1)):
            found.append(below)
        if col + 1 < cols and (task < cols or done(task + 1 - cols)):
            found.append(task + 1)
        return found

    def needs(self, task: int) -> list[int]:
        """The block above and the one to the left."""
        above = [task - self.cols] if task >= self.cols else []
        return above + ([task - 1] if task % self.cols else [])

    def as_json(self) -> dict[str, Any]:
        """Itself as plain values."""
        return {"kind": "wavefront", "rows": self.rows, "cols": self.cols}

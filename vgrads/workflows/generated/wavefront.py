"""Wavefront: R[i,j] = F(R[i−1,j], R[i,j−1], R[i−1,j−1]), in blocks of cells.

L. Yu, Right-sizing resource allocations for scientific applications in clusters, grids, and clouds,
PhD thesis, University of Notre Dame 2013, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Wavefront:
    """A grid of ``rows`` × ``cols`` blocks; block (i, j) is task i·cols + j. It is ready when the
    blocks above and to the left are done; the diagonal one is then done as well."""

    rows: int
    cols: int

    @property
    def size(self) -> int:
        """Number of blocks."""
        return self.rows * self.cols

    def first(self) -> tuple[int, ...]:
        """Return the corner."""
        return (0,) if self.size else ()

    def after(self, task: int, done: Callable[[int], bool]) -> list[int]:
        """Return the blocks below and to the right whose other neighbour is done."""
        cols, result = self.cols, []
        col, below = task % cols, task + cols
        if below < self.rows * cols and (col == 0 or done(below - 1)):
            result.append(below)
        if col + 1 < cols and (task < cols or done(task + 1 - cols)):
            result.append(task + 1)
        return result

    def needs(self, task: int) -> list[int]:
        """Return the block above and the one to the left."""
        above = [task - self.cols] if task >= self.cols else []
        return above + ([task - 1] if task % self.cols else [])

    def levels(self, left: NDArray[np.bool_]) -> tuple[int, ...]:
        """Return the number of blocks that are left on each anti-diagonal, from the first with any
        on."""
        grid = left.reshape(self.rows, self.cols)
        grid = grid if self.rows < self.cols else grid.T
        counts = np.zeros(self.rows + self.cols, np.int64)
        for row, here in enumerate(grid):
            counts[row : row + len(here)] += here
        return tuple(counts[counts > 0].tolist())

    def as_json(self) -> dict[str, Any]:
        """Return the grid as plain values."""
        return {"kind": "wavefront", "rows": self.rows, "cols": self.cols}

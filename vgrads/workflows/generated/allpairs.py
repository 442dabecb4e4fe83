"""All-Pairs: M[i,j] = F(A[i], B[j]), in blocks of cells; if F is symmetric, one half of them.

L. Yu, PhD thesis, University of Notre Dame 2013, section 3.1
(:mod:`vgrads.workflows.generated.wavefront`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class AllPairs:
    """A grid of ``rows`` × ``cols`` blocks, all ready at once, numbered row by row.

    ``half``: of a square grid only blocks on and right of the diagonal exist, numbered without
    gaps.
    """

    rows: int
    cols: int
    half: bool = False

    @property
    def size(self) -> int:
        """Number of blocks."""
        return self.rows * (self.rows + 1) // 2 if self.half else self.rows * self.cols

    def first(self) -> range:
        """Return all blocks."""
        return range(self.size)

    def after(self, _task: int, _done: Callable[[int], bool]) -> tuple[int, ...]:
        """Return nothing."""
        return ()

    def needs(self, _task: int) -> tuple[int, ...]:
        """Return nothing."""
        return ()

    def levels(self, _left: NDArray[np.bool_]) -> None:
        """Return None: all blocks can run at once."""

    def place(self, task: int) -> tuple[int, int]:
        """Return row and column of a block."""
        if not self.half:
            return divmod(task, self.cols)
        left = self.size - 1 - task  # counted from the end, rows have 1, 2, 3, … blocks
        row_from_end = (isqrt(8 * left + 1) - 1) // 2
        row = self.rows - 1 - row_from_end
        return row, self.rows - 1 - (left - row_from_end * (row_from_end + 1) // 2)

    def as_json(self) -> dict[str, Any]:
        """Return the grid as plain values."""
        return {"kind": "allpairs", "rows": self.rows, "cols": self.cols, "half": self.half}

"""Blocks of cells: the cells of a task of All-Pairs or Wavefront, and the choice of the block
size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from vgrads.workflows.generated.allpairs import AllPairs
from vgrads.workflows.generated.wavefront import Wavefront

MOST_S = 60.0
"""Maximum run time of a block of more than one cell: the most that is lost with a node."""
MOST_CELLS = 250_000
MOST_SIDE = 1000
"""Maximum items of a side of a block: each is an input file."""
DISPATCH_S = 0.1
"""Overhead of a block: an exchange, the start of Python, its result on the disk."""


class Area(NamedTuple):
    """Cells from row ``top`` to ``bottom`` and from column ``left`` to ``right``, excluding the
    last ones."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True)
class BlockGrid:
    """``rows`` × ``cols`` cells in blocks of ``high`` × ``wide``, those at the far edges smaller.

    ``half``: of All-Pairs only the cells on and right of the diagonal; blocks are square then.
    """

    kind: str
    rows: int
    cols: int
    high: int
    wide: int
    half: bool = False

    @cached_property
    def order(self) -> Wavefront | AllPairs:
        """The blocks as tasks."""
        high, wide = -(-self.rows // self.high), -(-self.cols // self.wide)
        if self.kind == "wavefront":
            return Wavefront(high, wide)
        return AllPairs(high, wide, self.half)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.rows * (self.rows + 1) // 2 if self.half else self.rows * self.cols

    def _place(self, task: int) -> tuple[int, int]:
        order = self.order
        return order.place(task) if isinstance(order, AllPairs) else divmod(task, order.cols)

    def area(self, task: int) -> Area:
        """Return the area of a block."""
        row, col = self._place(task)
        top, left = row * self.high, col * self.wide
        bottom, right = min(self.rows, top + self.high), min(self.cols, left + self.wide)
        return Area(top, bottom, left, right)

    def count(self, task: int) -> int:
        """Return the number of cells of a block."""
        top, bottom, left, right = self.area(task)
        side = bottom - top
        return side * (side + 1) // 2 if self.half and top == left else side * (right - left)

    def inside(self, task: int) -> Iterator[tuple[int, int]]:
        """Return the cells of a block in the order in which their values are stored: row by row."""
        area = self.area(task)
        for row in range(area.top, area.bottom):
            for col in range(max(row, area.left) if self.half else area.left, area.right):
                yield row, col

    def as_json(self) -> dict[str, Any]:
        """Return the grid as plain values."""
        return asdict(self)


def block_of(cells: BlockGrid, cell_s: float, places: int, most_side: int = MOST_SIDE) -> int:
    """Return the side of a square block, in cells: the one with the earliest expected end on
    ``places`` processors if a cell takes ``cell_s``; of those within a hundredth of it the largest,
    because fewer blocks are better.

    ``cells``: the work, whose current blocks are ignored; ``most_side``: number of items that fit
    into memory if they are large. Blocks of All-Pairs run in waves; a Wavefront proceeds by
    anti-diagonals of 1, 2, 3, … blocks, each in whole rounds (Yu 2013, section 3.4, including the
    rest of a grid that a block does not divide).
    """
    # a cell may take no measurable time
    by_time = int((MOST_S / max(cell_s, 1e-9)) ** 0.5)
    most = max(1, min(most_side, max(cells.rows, cells.cols), int(MOST_CELLS**0.5), by_time))
    sides = sorted({min(most, max(1, round(1.15**n))) for n in range(60)})
    expected = {side: _expected_s(cells, side, cell_s, places) for side in sides}
    best = min(expected.values())
    return max(side for side in sides if expected[side] <= 1.01 * best)


def _expected_s(cells: BlockGrid, side: int, cell_s: float, places: int) -> float:
    each_s = side * side * cell_s + DISPATCH_S
    order = replace(cells, high=side, wide=side).order
    if isinstance(order, AllPairs):
        return each_s * -(-order.size // places)
    short, long = sorted((order.rows, order.cols))
    whole, rest = divmod(short - 1, places)
    rising = places * whole * (whole + 1) // 2 + rest * (whole + 1)  # Σ ceil(k ÷ places), k < short
    return each_s * (2 * rising + (long - short + 1) * -(-short // places))

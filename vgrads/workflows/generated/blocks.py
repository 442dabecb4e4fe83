"""Cells in blocks: which cells a task of All-Pairs or Wavefront is, and how large a block should
be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from vgrads.workflows.generated.allpairs import AllPairs
from vgrads.workflows.generated.wavefront import Wavefront

MOST_S = 60.0
"""Of a block of more than one cell: so much is lost at most where a host is."""
MOST_CELLS = 250_000
MOST_SIDE = 1000
"""Items of a side of a block: each is an input file."""
DISPATCH_S = 0.1
"""What a block costs beside its cells: an exchange, a Python that begins, its result on the
disk."""


class Area(NamedTuple):
    """Cells from row ``top`` up to ``bottom`` and from column ``left`` up to ``right``, the last
    ones left out."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True)
class Grid:
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
        """How many cells."""
        return self.rows * (self.rows + 1) // 2 if self.half else self.rows * self.cols

    def _place(self, task: int) -> tuple[int, int]:
        order = self.order
        return order.place(task) if isinstance(order, AllPairs) else divmod(task, order.cols)

    def area(self, task: int) -> Area:
        """The cells of a block."""
        row, col = self._place(task)
        top, left = row * self.high, col * self.wide
        bottom, right = min(self.rows, top + self.high), min(self.cols, left + self.wide)
        return Area(top, bottom, left, right)

    def count(self, task: int) -> int:
        """How many cells a block has."""
        top, bottom, left, right = self.area(task)
        side = bottom - top
        return side * (side + 1) // 2 if self.half and top == left else side * (right - left)

    def inside(self, task: int) -> Iterator[tuple[int, int]]:
        """The cells of a block in the order in which their values are kept: row by row."""
        area = self.area(task)
        for row in range(area.top, area.bottom):
            for col in range(max(row, area.left) if self.half else area.left, area.right):
                yield row, col

    def as_json(self) -> dict[str, Any]:
        """Itself as plain values."""
        return asdict(self)


def block_of(cells: Grid, cell_s: float, places: int, most_side: int = MOST_SIDE) -> int:
    """The side of a square block, in cells: the one that is expected to end first on ``places``
    processors where a cell takes ``cell_s``; of those within a hundredth of it the largest, for the
    fewer blocks the better.

    ``cells``: what there is to do, its blocks are not looked at; ``most_side``: where items are
    large, so many of them fit into memory. Blocks of All-Pairs run in waves; a Wavefront goes by
    anti-diagonals of 1, 2, 3, … blocks, each in whole rounds (Yu 2013, section 3.4, with the rest
    of a grid that a block does not divide).
    """
    by_time = int((MOST_S / max(cell_s, 1e-9)) ** 0.5)
    most = max(1, min(most_side, max(cells.rows, cells.cols), int(MOST_CELLS**0.5), by_time))
    sides = sorted({min(most, max(1, round(1.15**n))) for n in range(60)})
    expected = {side: _expected_s(cells, side, cell_s, places) for side in sides}
    best = min(expected.values())
    return max(side for side in sides if expected[side] <= 1.01 * best)


def _expected_s(cells: Grid, side: int, cell_s: float, places: int) -> float:
    each_s = side * side * cell_s + DISPATCH_S
    order = replace(cells, high=side, wide=side).order
    if isinstance(order, AllPairs):
        return each_s * -(-order.size // places)
    short, long = sorted((order.rows, order.cols))
    rising = sum(-(-k // places) for k in range(1, short))
    return each_s * (2 * rising + (long - short + 1) * -(-short // places))

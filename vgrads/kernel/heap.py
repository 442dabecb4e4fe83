"""A compiled binary heap of (key, number): the smallest key first, among equal keys the smallest
number."""

from __future__ import annotations

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled_in_place


@compiled_in_place
def push(keys: Floats, numbers: Ints, size: int, key: float, number: int) -> int:
    """Add an entry and return the new size. The arrays must have room."""
    _lift_entry(keys, numbers, size, key, number)
    return size + 1


@compiled_in_place
def pop(keys: Floats, numbers: Ints, size: int) -> int:
    """Remove the first entry, which must be read before, and return the new size.

    The hole moves down to a leaf first, then the last entry up from there: it belongs near the
    leaves, so that takes one comparison per level instead of two (Wegener 1993,
    doi:10.1016/0304-3975(93)90364-Y).
    """
    size -= 1
    hole, down = 0, 1
    while down + 1 < size:
        left, other = keys[down], keys[down + 1]
        if other < left or (other == left and numbers[down + 1] < numbers[down]):
            down += 1
        keys[hole], numbers[hole] = keys[down], numbers[down]
        hole, down = down, 2 * down + 1
    if down < size:
        keys[hole], numbers[hole] = keys[down], numbers[down]
        hole = down
    _lift_entry(keys, numbers, hole, keys[size], numbers[size])
    return size


@compiled_in_place
def _lift_entry(keys: Floats, numbers: Ints, at: int, key: float, number: int) -> None:
    """Put an entry at a position, or as far above it as it belongs."""
    while at > 0:
        up = (at - 1) >> 1
        if keys[up] < key or (keys[up] == key and numbers[up] <= number):
            break
        keys[at], numbers[at] = keys[up], numbers[up]
        at = up
    keys[at], numbers[at] = key, number

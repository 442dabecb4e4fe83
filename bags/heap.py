"""A binary heap of (key, number), compiled: the smallest key first, among equal keys the smallest number."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True)
def push(keys: Any, numbers: Any, size: int, key: float, number: int) -> int:
    """Add; returns the new size. The arrays must have room."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if keys[up] < key or (keys[up] == key and numbers[up] <= number):
            break
        keys[at], numbers[at] = keys[up], numbers[up]
        at = up
    keys[at], numbers[at] = key, number
    return size + 1


@njit(cache=True)
def pop(keys: Any, numbers: Any, size: int) -> int:
    """Take the first away; returns the new size. What was first must be read before."""
    size -= 1
    key, number = keys[size], numbers[size]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (
            keys[right] < keys[down]
            or (keys[right] == keys[down] and numbers[right] < numbers[down])
        ):
            down = right
        if key < keys[down] or (key == keys[down] and number <= numbers[down]):
            break
        keys[at], numbers[at] = keys[down], numbers[down]
        at = down
    keys[at], numbers[at] = key, number
    return size

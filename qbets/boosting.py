"""Boosted trees for several quantiles at once: one tree per step, with one number per level in each
leaf.

Trees are grown on histograms, the best leaf first (Friedman 2001, doi:10.1214/aos/1013203451; Ke et
al., NeurIPS 2017). Each step follows the gradient of one level's quantile loss, with the levels in
turn, and serves them all: in every leaf each level moves towards that quantile of its residuals
there. Levels share the splits, and learning costs a seventh of a forest for each. Compiled; one
thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.arrays import Bins, Floats, Ints
from vgrads.kernel.compiled import compiled

_BINS = 64  # of each column
_STEPS = 8  # of a row through a tree, including the sum of its leaf
_SAMPLE = 10_000  # rows from which a column's bins are computed


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Number of trees and of leaves; ``rate`` of each step; fewest rows of a leaf."""

    trees: int
    leaves: int
    rate: float
    per_leaf: int


@dataclass(frozen=True, kw_only=True)
class Trees:
    """Nodes of all trees as columns, tree after tree; a leaf has feature −1. ``value``: nodes ×
    levels."""

    feature: NDArray[np.int64]
    threshold: Floats
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Floats
    roots: NDArray[np.int64]
    start: Floats

    def of(self, rows: Floats) -> Floats:
        """Return the levels of each row: rows × levels."""
        shape = (self.feature, self.threshold, self.left, self.right)
        walk = _walk_trees.after(len(rows) * len(self.roots) * _STEPS)
        return np.asarray(walk(rows, self.roots, shape, self.value, self.start))


def grow(rows: Floats, target: Floats, levels: tuple[float, ...], growth: Growth) -> Trees:
    """Learn quantiles of a target at ascending levels from rows without NaN."""
    edges = [_edges(column) for column in rows.T]
    width = max(1, *(len(existing) for existing in edges))
    table = np.full((len(edges), width), np.inf)
    for number, current in enumerate(edges):
        table[number, : len(current)] = current
    result = _grow(
        _binned(rows, table),
        np.ascontiguousarray(target, dtype=np.float64),
        np.array(levels),
        (growth.trees, growth.leaves, growth.rate, growth.per_leaf),
        table,
    )
    feature, threshold, left, right, value, start = result
    size = 2 * growth.leaves - 1
    return Trees(
        feature=feature,
        threshold=threshold,
        left=left,
        right=right,
        value=value,
        start=start,
        roots=np.arange(growth.trees, dtype=np.int64) * size,
    )


def _edges(column: Floats) -> Floats:
    """Return the upper ends of all bins of a column but the last: halfway between values, at most
    as many as quantiles."""
    step = max(1, len(column) // _SAMPLE)
    values = np.unique(column[::step])
    if len(values) > _BINS:
        levels = np.linspace(0.0, 1.0, _BINS + 1)[1:-1]
        values = np.unique(np.quantile(column[::step], levels))
        return np.asarray(values, dtype=np.float64)
    return np.asarray((values[1:] + values[:-1]) / 2.0, dtype=np.float64)


@compiled
def _binned(rows: Floats, edges: Floats) -> Bins:
    result = np.empty(rows.shape, dtype=np.uint8)
    for column in range(rows.shape[1]):
        result[:, column] = np.searchsorted(edges[column], rows[:, column])
    return result


@compiled
def _grow(
    bins: Bins, target: Floats, levels: Floats, growth: tuple[int, int, float, int], edges: Floats
) -> tuple[Ints, Floats, Ints, Ints, Floats, Floats]:
    trees, leaves, rate, per_leaf = growth
    count, size = len(target), 2 * leaves - 1
    feature = np.full(trees * size, -1, dtype=np.int64)
    threshold = np.zeros(trees * size)
    left, right = np.zeros(trees * size, dtype=np.int64), np.zeros(trees * size, dtype=np.int64)
    value = np.zeros((trees * size, len(levels)))
    start = np.empty(len(levels))
    rest = np.empty((len(levels), count))  # residual of the target at each level
    for level in range(len(levels)):
        start[level] = _quantile(target.copy(), levels[level])
        rest[level] = target - start[level]
    slope = np.empty(count)
    for tree in range(trees):
        turn = tree % len(levels)
        for row in range(count):
            short = rest[turn, row]  # no gradient where a level equals its target
            slope[row] = 0.0 if short == 0 else levels[turn] - (1.0 if short < 0 else 0.0)
        base = tree * size
        order = np.arange(count)
        nodes, spans = _split_all(
            bins, slope, order, (leaves, per_leaf, base), (feature, threshold, left, right, edges)
        )
        for node in range(nodes):
            if feature[base + node] >= 0:
                continue
            inside = order[spans[node, 0] : spans[node, 1]]
            for level in range(len(levels)):
                step = rate * _quantile(rest[level][inside], levels[level])
                value[base + node, level] = step
                for row in inside:
                    rest[level, row] -= step
    return feature, threshold, left, right, value, start


@compiled
def _quantile(values: Floats, level: float) -> float:
    """Return a quantile between neighbours, as numpy does; values are reordered."""
    place = level * (len(values) - 1)
    low = int(place)
    if low + 1 >= len(values):
        return float(values.max())
    parted = np.partition(values, low)
    above = parted[low + 1 :].min()
    return float(parted[low] + (place - low) * (above - parted[low]))


@compiled
def _split_all(
    bins: Bins,
    slope: Floats,
    order: Ints,
    limits: tuple[int, int, int],
    tree: tuple[Ints, Floats, Ints, Ints, Floats],
) -> tuple[int, Ints]:
    """Grow one tree: always the leaf whose split gains most. Rows of node n: ``order[spans[n,
    0]:spans[n, 1]]``."""
    leaves, per_leaf, base = limits
    feature, threshold, left, right, edges = tree
    size, columns = 2 * leaves - 1, bins.shape[1]
    sums = np.zeros((size, columns, edges.shape[1] + 1, 2))
    spans = np.zeros((size, 2), dtype=np.int64)
    best = np.zeros((size, 3))  # gain, column, bin
    spans[0, 1] = len(order)
    _histogram(bins, slope, order, sums[0])
    _best_split(sums[0], per_leaf, best[0])
    nodes = 1
    while nodes + 1 < size:
        node = int(np.argmax(best[:nodes, 0]))
        if best[node, 0] <= 1e-12:
            break
        column, cut = int(best[node, 1]), int(best[node, 2])
        low, high = spans[node]
        middle = _part(bins, order, low, high, column, cut)
        feature[base + node], threshold[base + node] = column, edges[column, cut]
        left[base + node], right[base + node] = base + nodes, base + nodes + 1
        spans[nodes, 0], spans[nodes, 1] = low, middle
        spans[nodes + 1, 0], spans[nodes + 1, 1] = middle, high
        few = nodes if middle - low <= high - middle else nodes + 1
        many = 2 * nodes + 1 - few
        _histogram(bins, slope, order[spans[few, 0] : spans[few, 1]], sums[few])
        sums[many] = sums[node] - sums[few]
        best[node, 0] = 0.0
        for child in (nodes, nodes + 1):
            _best_split(sums[child], per_leaf, best[child])
        nodes += 2
    return nodes, spans


@compiled
def _histogram(bins: Bins, slope: Floats, rows: Ints, result: Floats) -> None:
    columns = bins.shape[1]
    for row in rows:
        s = slope[row]
        for column in range(columns):
            spot = bins[row, column]
            result[column, spot, 0] += s
            result[column, spot, 1] += 1.0


@compiled
def _best_split(sums: Floats, per_leaf: int, best: Floats) -> None:
    """Find the split of a node that gains most of the squared gradient, with its column and bin."""
    best[0] = 0.0
    total, count = sums[0, :, 0].sum(), sums[0, :, 1].sum()
    if count < 2 * per_leaf:
        return
    whole = total * total / count
    for column in range(sums.shape[0]):
        slope, below = 0.0, 0.0
        for cut in range(sums.shape[1] - 1):
            slope += sums[column, cut, 0]
            below += sums[column, cut, 1]
            if below < per_leaf:
                continue
            if count - below < per_leaf:
                break
            other = total - slope
            gain = slope * slope / below + other * other / (count - below) - whole
            if gain > best[0]:
                best[0], best[1], best[2] = gain, column, cut


@compiled
def _part(bins: Bins, order: Ints, low: int, high: int, column: int, cut: int) -> int:
    """Move rows of a node up to the cut to the front; return where the others begin."""
    retained = np.empty(high - low, dtype=np.int64)
    middle, others = low, 0
    for spot in range(low, high):
        row = order[spot]
        if bins[row, column] <= cut:
            order[middle] = row
            middle += 1
        else:
            retained[others] = row
            others += 1
    order[middle:high] = retained[:others]
    return middle


@compiled
def _walk_trees(
    rows: Floats, roots: Ints, shape: tuple[Ints, Floats, Ints, Ints], value: Floats, start: Floats
) -> Floats:
    feature, threshold, left, right = shape
    result = np.empty((len(rows), len(start)))
    for row in range(len(rows)):
        result[row] = start
        for root in roots:
            node = root
            while feature[node] >= 0:
                below = rows[row, feature[node]] <= threshold[node]
                node = left[node] if below else right[node]
            for level in range(len(start)):
                result[row, level] += value[node, level]
    return result

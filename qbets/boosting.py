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
        # compiled only where the steps to save are worth loading the compiled code
        walk = _walk_trees.after(len(rows) * len(self.roots) * _STEPS)
        return np.asarray(walk(rows, self.roots, shape, self.value, self.start))


def grow(rows: Floats, target: Floats, levels: tuple[float, ...], growth: Growth) -> Trees:
    """Learn quantiles of a target at ascending levels from rows without NaN."""
    edges = [_compute_edges(column) for column in rows.T]
    width = max(1, *(len(column) for column in edges))
    # columns differ in their number of edges; infinity at the end keeps the order for searchsorted
    table = np.full((len(edges), width), np.inf)
    for number, current in enumerate(edges):
        table[number, : len(current)] = current
    # the nodes of a binary tree with so many leaves
    size = 2 * growth.leaves - 1
    nodes = growth.trees * size
    feature, threshold = np.full(nodes, -1), np.zeros(nodes)
    left, right = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    value, start = np.zeros((nodes, len(levels))), np.empty(len(levels))
    _grow(
        _bin_rows(rows, table),
        np.ascontiguousarray(target, dtype=np.float64),
        np.array(levels),
        (growth.trees, growth.leaves, growth.rate, growth.per_leaf),
        table,
        (feature, threshold, left, right, value, start),
    )
    return Trees(
        feature=feature,
        threshold=threshold,
        left=left,
        right=right,
        value=value,
        start=start,
        roots=np.arange(growth.trees, dtype=np.int64) * size,
    )


def _compute_edges(column: Floats) -> Floats:
    """Return the upper ends of all bins of a column but the last: halfway between values, at most
    as many as quantiles."""
    step = max(1, len(column) // _SAMPLE)
    values = np.unique(column[::step])
    if len(values) > _BINS:
        levels = np.linspace(0.0, 1.0, _BINS + 1)[1:-1]
        values = np.unique(np.quantile(column[::step], levels))
        return np.asarray(values, dtype=np.float64)
    return np.asarray((values[1:] + values[:-1]) / 2.0, dtype=np.float64)


def _bin_rows(rows: Floats, edges: Floats) -> Bins:
    # 64 bins fit in a byte; growing reads this table once for every split
    result = np.empty(rows.shape, dtype=np.uint8)
    for column in range(rows.shape[1]):
        result[:, column] = np.searchsorted(edges[column], rows[:, column])
    return result


@compiled
def _grow(
    bins: Bins,
    target: Floats,
    levels: Floats,
    growth: tuple[int, int, float, int],
    edges: Floats,
    tree: tuple[Ints, Floats, Ints, Ints, Floats, Floats],
) -> None:
    """Fill the nodes of all trees and the start of each level. Only loops: to compile expressions
    of whole arrays takes several times as long as the rest."""
    trees, leaves, rate, per_leaf = growth
    feature, threshold, left, right, value, start = tree
    count, size = len(target), 2 * leaves - 1
    rest = np.empty((len(levels), count))  # residual of the target at each level
    slope, some = np.empty(count), np.empty(count)
    order, spans = np.empty(count, dtype=np.int64), np.empty((size, 2), dtype=np.int64)
    sums, best = np.empty((size, len(edges), edges.shape[1] + 1, 2)), np.empty((size, 3))
    for level in range(len(levels)):
        for row in range(count):
            some[row] = target[row]
        start[level] = _select_quantile(some, count, levels[level])
        for row in range(count):
            rest[level, row] = target[row] - start[level]
    for number in range(trees):
        turn = number % len(levels)
        for row in range(count):
            short = rest[turn, row]  # no gradient where a level equals its target
            slope[row] = 0.0 if short == 0 else levels[turn] - (1.0 if short < 0 else 0.0)
            order[row] = row
        base = number * size
        nodes = _split_all(
            bins,
            slope,
            (order, some),
            (leaves, per_leaf, base),
            (feature, threshold, left, right, edges),
            (sums, spans, best),
        )
        for node in range(nodes):
            if feature[base + node] >= 0:
                continue
            rows = (order, spans[node, 0], spans[node, 1])
            for level in range(len(levels)):
                value[base + node, level] = _step(rest[level], rows, levels[level], rate, some)


@compiled
def _step(
    rest: Floats, rows: tuple[Ints, int, int], level: float, rate: float, some: Floats
) -> float:
    """Move the residuals of a leaf's rows towards zero at a level; return the step."""
    order, low, high = rows
    for spot in range(low, high):
        some[spot - low] = rest[order[spot]]
    step = rate * _select_quantile(some, high - low, level)
    for spot in range(low, high):
        rest[order[spot]] -= step
    return float(step)


@compiled
def _select_quantile(values: Floats, count: int, level: float) -> float:
    """Return a quantile of the first ``count`` values between neighbours, as numpy does; they are
    reordered (selection: Hoare 1961, doi:10.1145/366622.366647)."""
    place = level * (count - 1)
    low, first, last = int(place), 0, count - 1
    while first < last:
        pivot, up, down = values[(first + last) >> 1], first, last
        while up <= down:
            while values[up] < pivot:
                up += 1
            while pivot < values[down]:
                down -= 1
            if up <= down:
                values[up], values[down] = values[down], values[up]
                up, down = up + 1, down - 1
        if low <= down:
            last = down
        elif low >= up:
            first = up
        else:
            break
    result = values[low]
    if low + 1 >= count:
        return float(result)
    # the selection has left all larger values on the right: their minimum is the upper neighbour
    above = values[low + 1]
    for n in range(low + 2, count):
        above = min(above, values[n])
    return float(result + (place - low) * (above - result))


@compiled
def _split_all(
    bins: Bins,
    slope: Floats,
    rows: tuple[Ints, Floats],
    limits: tuple[int, int, int],
    tree: tuple[Ints, Floats, Ints, Ints, Floats],
    work: tuple[Floats, Ints, Floats],
) -> int:
    """Grow one tree: always the leaf whose split gains most; return the number of its nodes. Rows
    of node n: ``order[spans[n, 0]:spans[n, 1]]``."""
    leaves, per_leaf, base = limits
    feature, threshold, left, right, edges = tree
    (order, some), (sums, spans, best) = rows, work
    size = 2 * leaves - 1
    spans[0, 0], spans[0, 1] = 0, len(order)
    _sum_histogram(bins, slope, order, spans, sums, 0)
    _find_best_split(sums, 0, per_leaf, best)
    nodes = 1
    while nodes + 1 < size:
        node = 0
        for other in range(1, nodes):
            if best[other, 0] > best[node, 0]:
                node = other
        # a leaf of equal slopes gains zero but for rounding
        if best[node, 0] <= 1e-12:
            break
        column, cut = int(best[node, 1]), int(best[node, 2])
        low, high = spans[node, 0], spans[node, 1]
        middle = _partition_rows(bins, order, some, (low, high, column, cut))
        feature[base + node], threshold[base + node] = column, edges[column, cut]
        left[base + node], right[base + node] = base + nodes, base + nodes + 1
        spans[nodes, 0], spans[nodes, 1] = low, middle
        spans[nodes + 1, 0], spans[nodes + 1, 1] = middle, high
        # rows are summed for the smaller part only: the rest is the difference (Ke et al. 2017)
        few = nodes if middle - low <= high - middle else nodes + 1
        many = 2 * nodes + 1 - few
        _sum_histogram(bins, slope, order, spans, sums, few)
        for c in range(sums.shape[1]):
            for b in range(sums.shape[2]):
                sums[many, c, b, 0] = sums[node, c, b, 0] - sums[few, c, b, 0]
                sums[many, c, b, 1] = sums[node, c, b, 1] - sums[few, c, b, 1]
        best[node, 0] = 0.0
        _find_best_split(sums, nodes, per_leaf, best)
        _find_best_split(sums, nodes + 1, per_leaf, best)
        nodes += 2
    return nodes


@compiled
def _sum_histogram(
    bins: Bins, slope: Floats, order: Ints, spans: Ints, sums: Floats, node: int
) -> None:
    """Sum the slopes of a node's rows, and count them, by column and bin."""
    columns = bins.shape[1]
    for column in range(columns):
        for spot in range(sums.shape[2]):
            sums[node, column, spot, 0], sums[node, column, spot, 1] = 0.0, 0.0
    for at in range(spans[node, 0], spans[node, 1]):
        row = order[at]
        s = slope[row]
        for column in range(columns):
            spot = bins[row, column]
            sums[node, column, spot, 0] += s
            sums[node, column, spot, 1] += 1.0


@compiled
def _find_best_split(sums: Floats, node: int, per_leaf: int, best: Floats) -> None:
    """Find the split of a node that gains most of the squared gradient, with its column and bin."""
    # every row is in one bin of each column, so the first column has the totals of all
    best[node, 0] = 0.0
    total, count = 0.0, 0.0
    for spot in range(sums.shape[2]):
        total += sums[node, 0, spot, 0]
        count += sums[node, 0, spot, 1]
    if count < 2 * per_leaf:
        return
    whole = total * total / count
    for column in range(sums.shape[1]):
        slope, below = 0.0, 0.0
        for cut in range(sums.shape[2] - 1):
            slope += sums[node, column, cut, 0]
            below += sums[node, column, cut, 1]
            if below < per_leaf:
                continue
            # all further cuts leave even fewer rows above
            if count - below < per_leaf:
                break
            other = total - slope
            gain = slope * slope / below + other * other / (count - below) - whole
            if gain > best[node, 0]:
                best[node, 0], best[node, 1], best[node, 2] = gain, column, cut


@compiled
def _partition_rows(bins: Bins, order: Ints, some: Floats, node: tuple[int, int, int, int]) -> int:
    """Move rows of a node up to the cut to the front; return where the others begin. ``some``:
    room for their numbers."""
    low, high, column, cut = node
    middle, others = low, 0
    for spot in range(low, high):
        row = order[spot]
        if bins[row, column] <= cut:
            order[middle] = row
            middle += 1
        else:
            some[others] = row
            others += 1
    for spot in range(others):
        # row numbers pass through an array of floats, which is exact up to 2^53
        order[middle + spot] = int(some[spot])
    return middle


@compiled
def _walk_trees(
    rows: Floats, roots: Ints, shape: tuple[Ints, Floats, Ints, Ints], value: Floats, start: Floats
) -> Floats:
    feature, threshold, left, right = shape
    result = np.empty((len(rows), len(start)))
    for row in range(len(rows)):
        for level in range(len(start)):
            result[row, level] = start[level]
        for n in range(len(roots)):
            node = roots[n]
            while feature[node] >= 0:
                below = rows[row, feature[node]] <= threshold[node]
                node = left[node] if below else right[node]
            for level in range(len(start)):
                result[row, level] += value[node, level]
    return result

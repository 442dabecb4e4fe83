"""The graph of a workflow's tasks as SVG: dependencies from left to right, a state in each node."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

import networkx as nx
from markupsafe import Markup

MOST_NODES = 120
"""Tasks up to which each has its node; of a larger workflow, those of a kind share one."""
Graph: TypeAlias = "nx.DiGraph[str]"
_WIDTH, _HEIGHT, _COLUMN_GAP, _ROW_GAP, _MARGIN = 168, 34, 52, 12, 8
_SWEEPS = 6
_LETTERS = 20
SIGNS = {
    "done": "✓",
    "running": "▶",
    "failed": "✕",
    "cancelled": "⊘",
    "skipped": "–",
    "waiting": "○",
    "planned": "○",
}
"""A sign for each state, besides its colour."""
_WORST_FIRST = ("failed", "running", "waiting", "planned", "cancelled", "skipped", "done")
_NUMBERED = re.compile(r"[\d_.:\-]+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A node: one task, or all of a kind at the same depth; ``detail``: its second line; ``link``:
    an address, or empty."""

    name: str
    state: str
    detail: str
    link: str = ""


def render_graph(
    title: str,
    parents: Mapping[str, Sequence[str]],
    states: Mapping[str, str],
    links: Mapping[str, str],
) -> Markup:
    """Render the tasks of a workflow: task → its parents, its state, and its address, if any."""
    graph: Graph = nx.DiGraph()
    graph.add_nodes_from(parents)
    graph.add_edges_from((p, task) for task, before in parents.items() for p in before)
    nodes = {
        task: GraphNode(
            name=task,
            state=states.get(task, "planned"),
            detail=states.get(task, "not placed"),
            link=links.get(task, ""),
        )
        for task in parents
    }
    if len(nodes) > MOST_NODES:
        graph, nodes = _group_by_kind(graph, states)
    columns = _list_columns(graph)
    return _draw(title, columns, nodes, graph.edges)


def _group_by_kind(graph: Graph, states: Mapping[str, str]) -> tuple[Graph, dict[str, GraphNode]]:
    """Return the graph of kinds: tasks of a depth whose names differ only in their numbers."""
    group: dict[str, str] = {}
    members: dict[str, list[str]] = defaultdict(list)
    for depth, generation in enumerate(nx.topological_generations(graph)):
        for task in generation:
            # no name contains a NUL
            group[task] = f"{_NUMBERED.sub('', task) or task}\0{depth}"
            members[group[task]].append(task)
    merged: Graph = nx.DiGraph()
    merged.add_nodes_from(members)
    merged.add_edges_from((group[a], group[b]) for a, b in graph.edges if group[a] != group[b])
    nodes = {}
    for name, tasks in members.items():
        counts = Counter(states.get(task, "planned") for task in tasks)
        ordered = [state for state in _WORST_FIRST if counts[state]]
        nodes[name] = GraphNode(
            name=f"{name.partition(chr(0))[0]} × {len(tasks)}",
            state=ordered[0] if ordered else "planned",
            detail=", ".join(f"{counts[state]} {state}" for state in ordered),
        )
    return merged, nodes


def _list_columns(graph: Graph) -> list[list[str]]:
    """Return the nodes by depth, each column ordered by the mean position of its neighbours, so
    that few edges cross."""
    columns = [sorted(generation) for generation in nx.topological_generations(graph)]
    for sweep in range(_SWEEPS):
        # in turn by the parents and by the children of each node
        forward = sweep % 2 == 0
        rows = {node: i / len(column) for column in columns for i, node in enumerate(column)}
        for column in columns if forward else reversed(columns):
            near = graph.predecessors if forward else graph.successors
            means = {node: _compute_mean(rows, near(node), rows[node]) for node in column}
            column.sort(key=lambda node: (means[node], node))
            rows |= {node: i / len(column) for i, node in enumerate(column)}
    return columns


def _compute_mean(rows: Mapping[str, float], nodes: Iterable[str], otherwise: float) -> float:
    positions = [rows[node] for node in nodes]
    return sum(positions) / len(positions) if positions else otherwise


def _draw(
    title: str,
    columns: Sequence[Sequence[str]],
    nodes: Mapping[str, GraphNode],
    edges: Iterable[tuple[str, str]],
) -> Markup:
    tallest = max((len(column) for column in columns), default=1)
    width = len(columns) * (_WIDTH + _COLUMN_GAP) - _COLUMN_GAP + 2 * _MARGIN
    height = tallest * (_HEIGHT + _ROW_GAP) - _ROW_GAP + 2 * _MARGIN
    places = {}
    for number, column in enumerate(columns):
        top = (height - len(column) * (_HEIGHT + _ROW_GAP) + _ROW_GAP) / 2
        for row, node in enumerate(column):
            x = _MARGIN + number * (_WIDTH + _COLUMN_GAP)
            places[node] = (x, top + row * (_HEIGHT + _ROW_GAP))
    lines = [_draw_edge(places[a], places[b]) for a, b in edges]
    boxes = [_draw_box(nodes[node], *places[node]) for node in places]
    return Markup(
        f'<svg class="graph" xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height:.0f}" viewBox="0 0 {width} {height:.0f}" role="group" '
        f'aria-label="{escape(title)}">{"".join(lines)}{"".join(boxes)}</svg>'
    )


def _draw_edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y = start[0] + _WIDTH, start[1] + _HEIGHT / 2
    to_x, to_y = end[0], end[1] + _HEIGHT / 2
    bend = (x + to_x) / 2
    return f'<path class="edge" d="M{x:.0f} {y:.1f}C{bend:.0f} {y:.1f} {bend:.0f} {to_y:.1f} {to_x:.0f} {to_y:.1f}"/>'  # noqa: E501


def _draw_box(node: GraphNode, x: float, y: float) -> str:
    name = node.name
    short = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 7]}…{name[-6:]}"
    detail = node.detail if len(node.detail) <= _LETTERS + 4 else node.detail[: _LETTERS + 3] + "…"
    inner = (
        f"<title>{escape(name)}: {escape(node.detail)}</title>"
        f'<rect class="node state-{escape(node.state)}" x="{x:.0f}" y="{y:.1f}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" rx="5"/>'
        f'<text class="sign" x="{x + 9:.0f}" y="{y + 22:.1f}">'
        f"{SIGNS.get(node.state, '○')}</text>"
        f'<text class="name" x="{x + 28:.0f}" y="{y + 14:.1f}">{escape(short)}</text>'
        f'<text class="detail" x="{x + 28:.0f}" y="{y + 28:.1f}">{escape(detail)}</text>'
    )
    if not node.link:
        return f"<g>{inner}</g>"
    return f'<a href="{escape(node.link)}">{inner}</a>'

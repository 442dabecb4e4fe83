"""Queues that share nodes are one machine: jobs of each take nodes that the others wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from vgrads.drivers.api import QueueLimits
from vgrads.kernel.units import format_count

_ELEMENT = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")


def expand_hosts(text: str) -> frozenset[str]:
    """Return the names of a host list as Slurm prints it.

    >>> sorted(expand_hosts("login,n[08-10,12]"))
    ['login', 'n08', 'n09', 'n10', 'n12']
    >>> sorted(expand_hosts("rack[1-2]n[1,3]"))
    ['rack1n1', 'rack1n3', 'rack2n1', 'rack2n3']
    """
    names: set[str] = set()
    for element in _ELEMENT.findall(text.strip()):
        parts = _BRACKETS.split(element)  # names and bracketed lists in turn
        choices = [_parse_numbers(p) if n % 2 else [p] for n, p in enumerate(parts)]
        names.update(map("".join, product(*choices)))
    return frozenset(names - {"(null)"})


def _parse_numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and high.isdigit():
            yield from (f"{n:0{len(low)}d}" for n in range(int(low), int(high) + 1))
        else:
            yield part


def find_machines(queues: Iterable[QueueLimits]) -> Mapping[str, frozenset[str]]:
    """Return for each queue the queues of its machine, itself included: those that share nodes
    with it, directly or through others."""
    groups: list[tuple[frozenset[str], frozenset[str]]] = []  # names, nodes
    for queue in queues:
        names, nodes = frozenset({queue.name}), queue.nodes
        apart = []
        for group in groups:
            if group[1] & nodes:
                names, nodes = names | group[0], nodes | group[1]
            else:
                apart.append(group)
        groups = [*apart, (names, nodes)]
    return {name: names for names, _ in groups for name in names}


def describe_shared_nodes(queue: QueueLimits, queues: Iterable[QueueLimits]) -> str:
    """Return which queues share nodes with a queue, and how many; empty if none does."""
    counts = {q.name: len(q.nodes & queue.nodes) for q in queues if q.name != queue.name}
    shared = [
        f"{format_count(count, 'node')} with '{name}'" for name, count in counts.items() if count
    ]
    return f"queue '{queue.name}' shares {', '.join(shared)}" if shared else ""

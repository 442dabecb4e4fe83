"""Processors of a job of PBS, OpenPBS or Torque: the largest of what it requests and what it got.

Torque writes its default ``ncpus=1`` beside ``nodes=2:ppn=8``, so no field alone is right. Forms:
pbs_resources(7B), ``exec_host`` of the administrators' guides of Torque (``n1/0+n1/1``, ``n1/0-7``)
and PBS Professional (``n1/0*16``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PER_CHUNK = re.compile(r"(?:ppn|ncpus)=(\d+)")
_VNODE = re.compile(r"ncpus=(\d+)")
_COUNTS = ("Resource_List.ncpus", "Resource_List.procs", "resources_used.ncpus")
_CHUNKS = ("Resource_List.nodes", "Resource_List.neednodes", "Resource_List.select")


def processors_of(fields: Mapping[str, object]) -> int:
    """Return processors by the attributes of a job, as in its accounting or in ``qstat -f``; 0 if
    it states none."""
    count = max(_parse_number(fields.get(name)) for name in _COUNTS)
    chunks = max(_count_in_chunks(str(fields.get(name, ""))) for name in _CHUNKS)
    hosts = _count_in_hosts(str(fields.get("exec_host", "")))
    vnodes = sum(map(int, _VNODE.findall(str(fields.get("exec_vnode", "")))))
    # the same processors are stated in several forms, in some only a part of them
    most = max(count, chunks, hosts, vnodes)
    return most or _parse_number(fields.get("Resource_List.nodect"))


def _parse_number(value: object) -> int:
    match = re.match(r"\d+", str(value))
    return int(match[0]) if match else 0


def _count_in_chunks(text: str) -> int:
    """Return processors of ``2:ppn=8+node7:ppn=4+3`` or ``2:ncpus=16``: a chunk without a count is
    one, and has one processor unless it states more.

    >>> _count_in_chunks("node1:ppn=8+node2:super:ppn=4:cool+3:small")
    15
    >>> _count_in_chunks("2:ncpus=16:mem=4gb")
    32
    """
    total = 0
    # what follows # applies to the whole request
    for chunk in text.partition("#")[0].split("+") if text else ():
        first, _, _ = chunk.partition(":")
        each = _PER_CHUNK.search(chunk)
        total += (int(first) if first.isdigit() else 1) * (int(each[1]) if each else 1)
    return total


def _count_in_hosts(text: str) -> int:
    """Return processors of ``n1/0+n1/1``, ``n1/0-7,9`` or ``n1/0*16``.

    >>> _count_in_hosts("n1/0-7+n2/0,2"), _count_in_hosts("c1/0*13+c2/0*13")
    (10, 26)
    """
    total = 0
    for host in text.strip("()").split("+") if text else ():
        _, _, places = host.partition("/")
        places, _, times = places.partition("*")
        if times.isdigit():
            total += int(times)
        else:
            total += sum(map(_count_span, places.split(",")))
    return total


def _count_span(text: str) -> int:
    first, _, last = text.partition("-")
    return int(last) - int(first) + 1 if first.isdigit() and last.isdigit() else 1

"""Shapes of jobs: jobs of one shape are tasks of one open bag. Partitions and what fits in them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from vgrads.api.slurm.records import StoredSubmission
from vgrads.kernel.units import format_count
from vgrads.slurm.job import Partition
from vgrads.slurm.sbatch import submission_error
from vgrads.vgrid.catalog import Catalog, Site

DEFAULT_PARTITION = "vgrads"
LIMITS_S = (900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0)
_MARGIN_S = 120.0
"""Added to the time limit of a task: its own program ends the job in time."""
_IDLE_S = 60.0
_UNAVAILABLE = "Requested node configuration is not available"
_SHORTEST_S = 3600.0
_JOBS = 8
"""So many jobs, one after another, fill an allocation."""
_STEPS_S = (60.0, 600.0, *LIMITS_S)
_FEWEST = 3


@dataclass(frozen=True)
class JobShape:
    """What jobs of one bag have in common. ``limit_s``: rounded up; 0: none. ``runtime_s``: how
    long most of them run, as learned, rounded up; 0: not known."""

    user: str
    partition: str
    cpus: int
    memory_mib: int
    limit_s: float
    runtime_s: float = 0.0

    def to_json(self) -> list[Any]:
        """Return it as a JSON list."""
        return list(astuple(self))

    def document(self, sites: Sequence[str]) -> dict[str, Any]:
        """Return the document of its bag."""
        memory = f", {self.memory_mib} MiB" if self.memory_mib else ""
        limit = f", {self.limit_s / 3600:g} h" if self.limit_s else ""
        document: dict[str, Any] = {
            "name": f"slurm {self.partition}: {self.cpus} cores{memory}{limit}",
            "open": True,
            "procs": self.cpus,
            "memory_mib": self.memory_mib,
            "retries": 0,
            "sites": list(sites),
            "hosts": {"idle": _IDLE_S, "longest": max(_SHORTEST_S, self._allocation_s())},
        }
        if self.runtime_s:
            document["runtime_s"] = self.runtime_s
        if self.limit_s:
            document["limit"] = self.limit_s + _MARGIN_S
        return document

    def _allocation_s(self) -> float:
        """Return how long allocations for such jobs are at most: for several of them as they have
        run, since users overstate limits; for one with its limit until that is known."""
        return min(_JOBS * self.runtime_s, self.limit_s or math.inf) or self.limit_s


def shape_of(job: StoredSubmission, runs_s: Sequence[float] = ()) -> JobShape:
    """Return the shape of the jobs of a submission. ``runs_s``: run times of earlier jobs of this
    name, script and limit, in seconds."""
    limit_s = job.limit_s or 0.0
    # rounded up, so that one bag serves jobs with many different limits
    rounded_s = next((limit for limit in LIMITS_S if limit_s <= limit), limit_s)
    return JobShape(
        user=job.user,
        partition=job.partition,
        cpus=job.cpus,
        memory_mib=job.memory_mib,
        limit_s=rounded_s if limit_s else 0.0,
        runtime_s=_estimate_usual_s(runs_s),
    )


def _estimate_usual_s(runs_s: Sequence[float]) -> float:
    """Return a time in which nine of ten jobs have ended, rounded up; 0 for too few records."""
    if len(runs_s) < _FEWEST:
        return 0.0
    usual_s = sorted(runs_s)[math.ceil(0.9 * len(runs_s)) - 1]
    return next((step for step in _STEPS_S if usual_s <= step), 0.0)


class Partitions:
    """The partitions of a service: ``vgrads`` has all sites, ``vgrads-SITE`` one each."""

    def __init__(self, catalog: Catalog) -> None:
        self._sites = {site.name: site for site in catalog.sites}
        names = {f"{DEFAULT_PARTITION}-{name}": (name,) for name in self._sites}
        self.sites: dict[str, tuple[str, ...]] = {DEFAULT_PARTITION: tuple(self._sites), **names}

    def listed(self) -> list[Partition]:
        """Return them as sinfo shows them."""
        return [self._listed(name) for name in self.sites]

    def _listed(self, name: str) -> Partition:
        sites = [self._sites[site] for site in self.sites[name]]
        limits = [_limit_s(site) for site in sites]
        return Partition(
            name=name,
            default=name == DEFAULT_PARTITION,
            limit_s=None if None in limits else max(limit for limit in limits if limit),
            nodes=tuple(f"{site.name}-{n}" for site in sites for n in range(_count_nodes(site))),
            cores_per_node=max(map(_count_cores, sites)),
            memory_mib=max(map(_find_memory_mib, sites)),
        )

    def nodes(self, name: str) -> str:
        """Return the first node of a partition, for a job of which no node is chosen yet."""
        return self._listed(name).nodes[0]

    def check(self, job: StoredSubmission) -> None:
        """Raise SlurmError where no node of the partition is as large as a job needs."""
        partition = self._listed(job.partition)
        widest = partition.cores_per_node
        if job.cpus > widest:
            raise submission_error(
                _UNAVAILABLE,
                f"CPU count per node can not be satisfied: the job needs "
                f"{format_count(job.cpus, 'core')} of one "
                f"node, the largest node of partition {job.partition} has {widest}",
            )
        if partition.memory_mib and job.memory_mib > partition.memory_mib:
            raise submission_error(
                _UNAVAILABLE,
                f"Memory specification can not be satisfied: the job needs {job.memory_mib} MiB, "
                f"the largest node of partition {job.partition} has {partition.memory_mib}",
            )
        if partition.limit_s is not None and (job.limit_s or 0.0) > partition.limit_s:
            raise submission_error(
                "Requested time limit is invalid (missing or exceeds some limit)"
            )

    def chosen(self, name: str) -> str:
        """Return the partition of this name, the default one for none. Raise SlurmError."""
        if not name:
            return DEFAULT_PARTITION
        for part in name.split(","):
            if part in self.sites:
                return part
        raise submission_error(
            "Invalid partition name specified", f"invalid partition specified: {name}"
        )


def _count_cores(site: Site) -> int:
    if site.driver == "local":
        return site.procs
    return max(node.cores for node in site.nodes)


def _find_memory_mib(site: Site) -> int:
    if site.driver == "local":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    return int(max(node.memory_mib or 0 for node in site.nodes))


def _count_nodes(site: Site) -> int:
    return max(1, min(1000, site.procs // _count_cores(site)))


def _limit_s(site: Site) -> float | None:
    """Return the longest walltime of a site; None where there is no limit."""
    return max((queue.max_walltime_s for queue in site.queues), default=None)

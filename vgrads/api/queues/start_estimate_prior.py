"""Start-estimate prior: for a queue without history, the site's own start estimate, with wide
uncertainty, makes a first promise possible.

A batch system that estimates starts (Slurm) is queried for each shape of job; for others only the
waiting jobs are known. The estimate is only an announcement: jobs end early, others are submitted
in between, priorities change. So the wait is assumed to be spread widely around it: log-logistic
with shape 1, its median a minute plus the announced wait. There is no correction for a site whose
estimates were wrong; once there is a history, the prior is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.api.queues.log_queues import ENOUGH
from vgrads.api.queues.site_snapshots import refresh_snapshot
from vgrads.api.wiring import is_batch_system, open_batch
from vgrads.drivers.api import SlotSpec
from vgrads.drivers.batch_site import BatchSite
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import format_count
from vgrads.vgrid.catalog import Catalog, Queue, Site

BASIS = "the site's own estimate"
_ABOUT = 60
_AT_ONCE_S = 60.0
"""The median wait if the site announces an immediate start."""
_BUSY_S = 4 * 3600.0
"""The assumed announcement for a site that makes none, if other jobs wait already, or it does not
show whether they do."""


@dataclass
class StartEstimatePrior:
    """GETPROB of a queue without history (:class:`vgrads.vgrid.varq.WaitOracle`); queries the site
    once for each shape.

    ``jobs``: in its history, too few; ``errors``: messages of refusals and failures of the site;
    then the probability is 0.
    """

    site: Site
    queue: Queue
    batch: BatchSite
    jobs: int = 0
    errors: set[str] = field(default_factory=set)
    _announced: dict[tuple[int, float], float | None] = field(default_factory=dict)

    def group(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        return hash((procs, walltime_s, ahead))

    def probability(
        self,
        procs: int,
        walltime_s: float,
        within_s: ArrayLike,
        confidence: float = 0.95,  # noqa: ARG002 there is nothing to be confident of
        ahead: int = 0,
        submit_in_s: float = 0.0,  # noqa: ARG002 sites announce starts of jobs that come now
    ) -> NDArray[np.float64]:
        """Return P(wait ≤ d) for every d, in seconds; each of our own jobs ahead adds the median
        wait without any."""
        within = np.asarray(within_s, dtype=np.float64)
        announced_s = self._ask(procs, walltime_s)
        if announced_s is None:
            return np.zeros_like(within)
        median_s = (_AT_ONCE_S + announced_s) * (1.0 + ahead)
        # log-logistic with shape 1: half wait longer than the median, and some many times as long
        return within / (within + median_s)

    @property
    def is_queried(self) -> bool:
        """True if the prior was used."""
        return bool(self._announced)

    def _ask(self, procs: int, walltime_s: float) -> float | None:
        shape = (procs, walltime_s)
        if shape not in self._announced:
            try:
                self._announced[shape] = max(0.0, self._announcement(procs, walltime_s))
            except SiteError as error:
                self.errors.add(str(error))
                self._announced[shape] = None
        return self._announced[shape]

    def _announcement(self, procs: int, walltime_s: float) -> float:
        nodes = -(-procs // self.site.nodes[0].cores)
        estimate_s = self.batch.start_estimate_s(
            SlotSpec(
                id="first-word",
                name="first-word",
                site=self.site.name,
                queue=self.queue.name,
                procs=procs,
                duration_s=walltime_s,
                nodes=nodes,
            )
        )
        if estimate_s is not None:
            return estimate_s
        snapshot = refresh_snapshot(self.site)
        if not snapshot.is_listed or snapshot.is_hidden:
            return _BUSY_S  # whether others wait is not known
        jobs = [j for j in snapshot.jobs if j.eligible and j.queue == self.queue.name]
        busy = sum(job.procs for job in jobs if job.left_s is not None)
        waits = any(job.left_s is None for job in jobs)
        return _BUSY_S if waits or busy + procs > self.queue.max_procs else 0.0


def describe_priors(
    words: Mapping[tuple[str, str], StartEstimatePrior], file: Path | None = None
) -> list[str]:
    """Return a note for each site whose start estimates a promise is based on, and how to improve
    it.

    ``file``: the file of the sites, if they are not in the database.
    """
    used = [word for word in words.values() if word.is_queried and not word.errors]
    sites = {word.site.name: word.site for word in used}
    return [
        _describe(site, [word for word in used if word.site.name == name], file)
        for name, site in sites.items()
    ]


def _describe(site: Site, used: Sequence[StartEstimatePrior], file: Path | None) -> str:
    most = max(word.jobs for word in used)
    if len(used) == 1:
        count = f"{site.name}/{used[0].queue.name}: {format_count(most, 'job', 'are')} known"
    else:
        count = f"{site.name}: at most {format_count(most, 'job')} of a queue are known"
    whose = "Slurm's" if site.driver == "slurm" else "the site's"
    text = f"{count}, about {_ABOUT} are needed: {whose} own estimates are used, widely spread; "
    if any(queue.history for queue in site.queues):
        return f"{text}stated_probability and stated_wait state what you know"
    first = f"vgrads sites add {quote(str(file))}; " if file else ""
    return (
        f"{text}'{first}vgrads sites collect {site.name}' learns from its accounting, "
        "stated_probability and stated_wait state what you know"
    )


def list_refusals(words: Mapping[tuple[str, str], StartEstimatePrior]) -> list[str]:
    """Return the messages of sites about queues without history for which nothing can be
    promised."""
    return [text for word in words.values() for text in sorted(word.errors)]


def start_estimate_priors(
    catalog: Catalog, past_jobs: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], StartEstimatePrior]:
    """Return priors for the queues of real batch sites that have neither a history nor a statement
    of their operator.

    ``past_jobs``: jobs in the existing histories; a few do not suffice for a statement with
    confidence.
    """
    return {
        (site.name, queue.name): StartEstimatePrior(
            site, queue, open_batch(site), past_jobs.get((site.name, queue.name), 0)
        )
        for site in catalog.sites
        if is_batch_system(site)
        for queue in site.queues
        if past_jobs.get((site.name, queue.name), 0) < ENOUGH and queue.stated_probability <= 0
    }

"""Queues that nobody has a history of: the site's own word, taken with doubt, makes a first promise
possible.

A batch system that reckons starts ahead (Slurm) is asked for each shape of job; of the others only
what waits is known. What it says is no more than an announcement: jobs end early, others come in
between, priorities change. So the wait is believed to be spread widely around it: log-logistic with
shape 1, its median a minute and what was announced. Of a site that was not right so far nothing
better can be said; with a history nobody asks it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.api.wiring import is_real, open_batch
from vgrads.drivers.api import SlotSpec
from vgrads.drivers.batch_site import BatchSite
from vgrads.kernel.errors import SiteError
from vgrads.vgrid.catalog import Catalog, Queue, Site

BASIS = "the site's own word"
ENOUGH = 59
"""Waits without which no bound at .95 with confidence .95 can be given: log .05 / log .95 (SC'09
§3.1)."""
_AT_ONCE_S = 60.0
"""The median wait where the site announces an immediate start."""
_BUSY_S = 4 * 3600.0
"""What is announced for a site that announces nothing, and where others wait already."""


@dataclass
class SiteWord:
    """GETPROB of a queue without history (:class:`vgrads.vgrid.varq.WaitOracle`); asks the site
    once for each shape.

    ``said``: what the site refused or did not answer, in its words; there the probability is 0.
    """

    site: Site
    queue: Queue
    batch: BatchSite
    said: set[str] = field(default_factory=set)
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
        """P(wait ≤ d) for every d, in seconds; each of our own jobs ahead counts as much as
        none."""
        within = np.asarray(within_s, dtype=np.float64)
        announced_s = self._ask(procs, walltime_s)
        if announced_s is None:
            return np.zeros_like(within)
        median_s = (_AT_ONCE_S + announced_s) * (1.0 + ahead)
        return within / (within + median_s)

    @property
    def asked(self) -> bool:
        """True where somebody wanted to know."""
        return bool(self._announced)

    def _ask(self, procs: int, walltime_s: float) -> float | None:
        shape = (procs, walltime_s)
        if shape not in self._announced:
            try:
                self._announced[shape] = max(0.0, self._announcement(procs, walltime_s))
            except SiteError as error:
                self.said.add(str(error))
                self._announced[shape] = None
        return self._announced[shape]

    def _announcement(self, procs: int, walltime_s: float) -> float:
        nodes = -(-procs // self.site.nodes[0].cores)
        found = self.batch.start_estimate_s(
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
        if found is not None:
            return found
        jobs = [job for job in self.batch.queue() if job.queue == self.queue.name]
        busy = sum(job.procs for job in jobs if job.left_s is not None)
        waits = any(job.left_s is None for job in jobs)
        return _BUSY_S if waits or busy + procs > self.queue.max_procs else 0.0


def told(words: Mapping[tuple[str, str], SiteWord], file: Path | None = None) -> list[str]:
    """What a person should know of a promise that rests on the word of sites, and what would make
    it better.

    ``file``: where the sites stand, if not in the database.
    """
    first = f"vgrads sites add {quote(str(file))}; " if file else ""
    return [
        f"{site}/{queue} has no history, or a short one: what its site announces of starts "
        "is believed, with doubt. "
        f"'{first}vgrads sites collect {site}' learns from its accounting; "
        "stated_probability and stated_wait tell what you know"
        for (site, queue), word in words.items()
        if word.asked and not word.said
    ]


def refusals(words: Mapping[tuple[str, str], SiteWord]) -> list[str]:
    """What sites said of queues without history where nothing can be promised."""
    return [said for word in words.values() for said in sorted(word.said)]


def first_words(
    catalog: Catalog, known: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], SiteWord]:
    """What speaks for the queues of real batch sites that have neither a history nor a statement of
    their operator.

    ``known``: jobs in the histories that there are; of a few nothing can be said with confidence
    yet.
    """
    return {
        (site.name, queue.name): SiteWord(site, queue, open_batch(site))
        for site in catalog.sites
        if is_real(site) and site.kind == "batch"
        for queue in site.queues
        if known.get((site.name, queue.name), 0) < ENOUGH and queue.stated_probability <= 0
    }

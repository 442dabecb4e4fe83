"""For jupyterhub_config.py: the page of a pending server says when its job starts.

    from vgrads_progress import ForecastSlurmSpawner
    c.JupyterHub.spawner_class = ForecastSlurmSpawner

The environment of JupyterHub has ``VGRADS_URL``, ``VGRADS_SITE`` (the cluster's name there), and
``VGRADS_TOKEN`` (scope ``forecast``; none for a public queue). Standard library and batchspawner.
"""

import asyncio
import json
import logging
import math
import os
import re
import urllib.parse
import urllib.request

from batchspawner import SlurmSpawner

BOUNDS = {0.5: "1 of 2", 0.95: "19 of 20"}
"""Probability of a start by then, in words."""
TIMEOUT_S = 2.0
_DEFAULT_RUNTIME_S = 3600.0
_log = logging.getLogger("vgrads")


class ForecastProgress:
    """Adds the interval in which the job starts to the messages of a batch spawner."""

    async def progress(self):
        """Yield the spawner's events, with the interval while the job is pending."""
        interval = await asyncio.to_thread(expected_start, self._job_shape())
        async for event in super().progress():
            if interval and self.state_ispending():
                yield {**event, "message": f"{event['message']} {interval}"}
            else:
                yield event

    def _job_shape(self):
        """Return the job's queue, processors and wall time."""
        procs = re.match(r"\d+", self.req_nprocs)
        return {
            "queue": self.req_partition or self.req_queue,
            "procs": int(procs[0]) if procs else 1,
            "walltime_s": runtime_s(self.req_runtime),
        }


class ForecastSlurmSpawner(ForecastProgress, SlurmSpawner):
    """SlurmSpawner with this; a spawner of another batch system is made in the same way."""


def expected_start(shape):
    """Return the interval in which a job of this shape starts, if it is submitted now; an empty
    text where there is no forecast: it must not stop a server."""
    try:
        bounds = [_bound_s(shape, probability) for probability in BOUNDS]
    except Exception as error:
        _log.warning("no forecast of the start: %s", error)
        return ""
    if None in bounds:
        return ""
    low, high = (math.ceil(bound_s / 60) for bound_s in bounds)
    interval = f"{low} to {high}" if low < high else f"{high}"
    return f"Jobs like this start within {interval} min ({' to '.join(BOUNDS.values())} jobs)."


def _bound_s(shape, probability):
    site, queue = (
        urllib.parse.quote(n, safe="") for n in (os.environ["VGRADS_SITE"], shape["queue"])
    )
    values = {name: shape[name] for name in ("procs", "walltime_s")}
    query = urllib.parse.urlencode({**values, "probability": probability})
    url = f"{os.environ['VGRADS_URL']}/v1/sites/{site}/queues/{queue}/bound?{query}"
    token = os.environ.get("VGRADS_TOKEN", "")
    head = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=head), timeout=TIMEOUT_S) as r:
        return json.load(r)["bound_s"]


def runtime_s(text):
    """Return the seconds of a time limit as Slurm reads it.

    >>> [runtime_s(t) for t in ("90", "30:00", "8:00:00", "1-12", "1-0:30", "")]
    [5400.0, 1800.0, 28800.0, 129600.0, 88200.0, 3600.0]
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        return _DEFAULT_RUNTIME_S
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    units = (3600, 60, 1) if days is not None or len(numbers) == 3 else (60, 1)
    return 86400.0 * float(days or 0) + sum(
        n * unit for n, unit in zip(numbers, units, strict=False)
    )

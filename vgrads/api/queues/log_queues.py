"""The log queue that counts for a queue of a site, as a row and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vgrads.kernel.units import format_count
from vgrads.traces.log_queue import ALL_QUEUES
from vgrads.traces.records import JobLog
from vgrads.vgrid.catalog import Queue

Json = dict[str, Any]
ENOUGH = 59
"""Minimum number of waits for a bound at .95 with confidence .95: log .05 / log .95 (SC'09 §3.1).
"""


def log_queue_row(queue: Queue, whole: JobLog) -> Json:
    """Return the queue of its log that counts for a site's queue (None: all of them), and the
    number of queues of the log."""
    stated = None if queue.log_queue == ALL_QUEUES else queue.log_queue
    own = queue.name if queue.log_queue is None and whole.has_queue(queue.name) else None
    return {
        "log_queue": own if stated is None else str(stated),
        "log_queues": len(np.unique(whole.queue)),
    }


def describe_history(history: Mapping[str, Any]) -> str:
    """Describe how many jobs a history has, and of which queues of its log, if it has several, and
    what could not be used of its file."""
    return _format_jobs(history) + _format_unused(history["reading"])


def _format_unused(reading: Mapping[str, Any] | None) -> str:
    unused = sum(entry["records"] for entry in (reading or {}).get("not_used", {}).values())
    return f" ({format_count(unused, 'record')} of its file not used)" if unused else ""


def _format_jobs(history: Mapping[str, Any]) -> str:
    jobs = f"{format_count(history['jobs'], 'job')}"
    if history["log_queues"] == 1:
        return jobs
    if history["log_queue"] is None:
        return f"{jobs} of all {format_count(history['log_queues'], 'queue')} of its log"
    return f"{jobs} of queue '{history['log_queue']}' of its log"

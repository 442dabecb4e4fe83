"""The log queue that counts for a queue of a site: as text, with one note if an earlier version
used the whole log."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.api.config import home
from vgrads.api.queues.history_files import open_history
from vgrads.kernel.units import format_count
from vgrads.traces.log_queue import ALL_QUEUES
from vgrads.traces.records import JobLog
from vgrads.vgrid.catalog import Catalog, Queue

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


def history_text(history: Mapping[str, Any]) -> str:
    """Describe how many jobs a history has, and of which queues of its log, if it has several, and
    what could not be used of its file."""
    return _jobs_text(history) + _unused_text(history["reading"])


def _unused_text(reading: Mapping[str, Any] | None) -> str:
    unused = sum(entry["records"] for entry in (reading or {}).get("not_used", {}).values())
    return f" ({format_count(unused, 'record')} of its file not used)" if unused else ""


def _jobs_text(history: Mapping[str, Any]) -> str:
    jobs = f"{format_count(history['jobs'], 'job')}"
    if history["log_queues"] == 1:
        return jobs
    if history["log_queue"] is None:
        return f"{jobs} of all {format_count(history['log_queues'], 'queue')} of its log"
    return f"{jobs} of queue '{history['log_queue']}' of its log"


def changed_defaults(catalog: Catalog) -> list[str]:
    """Return a note on the queues whose promises use fewer jobs than in versions that used the
    whole log; once. A log from which no version promises anything needs none."""
    folder = home() / "log-queues"
    before = set(_lines(folder))
    changed, looked = [], []
    for site, queue in ((s, q) for s in catalog.sites for q in s.queues):
        if queue.history is None or queue.log_queue is not None:
            continue
        key = f"{site.name}/{queue.name} {Path(queue.history).parent}"
        if key in before:
            continue
        looked.append(key)
        whole = open_history(queue.history)
        mine = len(whole.only_queue(queue.of_log))
        if mine < len(whole) >= ENOUGH:
            changed.append(f"{site.name}/{queue.name}, {mine:,} of {len(whole):,}")
    if looked:
        with suppress(OSError):  # then they are noted again
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with folder.open("a", encoding="utf-8") as file:
                file.write("".join(f"{key}\n" for key in looked))
    if not changed:
        return []
    return [
        f"only the jobs of a queue's own name in its log count, earlier versions took all "
        f"({'; '.join(changed)}); log_queue in a queue's entry chooses another, "
        f'"{ALL_QUEUES}" takes all'
    ]


def _lines(folder: Path) -> list[str]:
    with suppress(OSError):
        return folder.read_text(encoding="utf-8").splitlines()
    return []

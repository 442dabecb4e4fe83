"""What a client calls things: a run that it has started, the path of a queue."""

import urllib.parse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A run of a set."""

    set_id: str
    run_id: str


def queue_path(site: str, queue: str) -> str:
    """Return the path of a queue of a service."""
    names = (urllib.parse.quote(name, safe="") for name in (site, "queues", queue))
    return f"/v1/sites/{'/'.join(names)}"

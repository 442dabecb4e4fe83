"""What a client has of a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A run of a set."""

    set_id: str
    run_id: str

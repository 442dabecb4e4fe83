"""Time spent by an attempt, measured where it was spent."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds and MiB; 0 if nothing was spent or measured.

    ``waited_s``: from the start command to the start; ``in_s``: transfer of inputs, ``in_mib`` of
    them, of which ``cached_mib`` were present; ``ran_s``: wall-clock time, ``cpu_s``: CPU time,
    ``peak_mib``: maximum memory; ``out_s``, ``out_mib``: transfer of outputs; ``commit_s``: until
    they were on the disk; ``own_s``: the manager's own work since the previous reported end,
    divided among ends reported together.
    """

    waited_s: float = 0.0
    in_s: float = 0.0
    in_mib: float = 0.0
    cached_mib: float = 0.0
    ran_s: float = 0.0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    out_s: float = 0.0
    out_mib: float = 0.0
    commit_s: float = 0.0
    own_s: float = 0.0

    def and_then(self, more: Times | None) -> Times:
        """Add later reports of the same attempt; of memory the maximum."""
        if more is None:
            return self
        both = {
            field.name: getattr(self, field.name) + getattr(more, field.name)
            for field in fields(Times)
        }
        return Times(**both | {"peak_mib": max(self.peak_mib, more.peak_mib)})

    def as_json(self) -> dict[str, float]:
        """Return the values that are not 0."""
        values = ((field.name, getattr(self, field.name)) for field in fields(Times))
        return {name: round(value, 6) for name, value in values if value}


def with_own(times: Times | None, own_s: float) -> Times:
    """Return the times with the manager's own work."""
    return replace(times or Times(), own_s=own_s)

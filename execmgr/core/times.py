"""Where the time of an attempt went, measured where it went."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds, and MiB; 0 where nothing was spent or nobody measured it.

    ``waited_s``: ordered, and not begun; ``in_s``: inputs were brought, ``in_mib`` of them, of
    which ``cached_mib`` were there; ``ran_s``: by the clock, ``cpu_s``: of processors,
    ``peak_mib``: memory at most; ``out_s``, ``out_mib``: outputs were brought back; ``commit_s``:
    until they were on the disk; ``own_s``: the manager's own work since the end that was told
    before, shared by those told together.
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
        """With what was told of the same attempt later; of memory the most counts."""
        if more is None:
            return self
        both = {
            one.name: getattr(self, one.name) + getattr(more, one.name) for one in fields(Times)
        }
        return Times(**both | {"peak_mib": max(self.peak_mib, more.peak_mib)})

    def as_json(self) -> dict[str, float]:
        """What is not 0."""
        told = ((one.name, getattr(self, one.name)) for one in fields(Times))
        return {name: round(value, 6) for name, value in told if value}


def with_own(times: Times | None, own_s: float) -> Times:
    """With the manager's own part."""
    return replace(times or Times(), own_s=own_s)

"""Input, result and memory of a sizing policy for one manager, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgrads.pool.capacity import Interval
from vgrads.pool.lookahead import ArrivalHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeView:
    """State of one manager. Times in seconds of the caller's clock.

    ``requests``: open requests as (request time, workers). ``previous``: the number decided
    ``elapsed_s`` ago. ``capacity``: the estimate; ``execution_s`` of a task, ``cycle_s`` with its
    overhead. ``arrived``: tasks it ever had. ``wait_s``, ``wait_low_s``: after which half of the
    requested workers, and one in ten, have come. ``failing``: every ended task has failed.
    ``max_change`` is in workers per minute.
    """

    now_s: float
    waiting: int = 0
    running: int = 0
    connected: int = 0
    idle: int = 0
    requests: tuple[tuple[float, int], ...] = ()
    capacity: Interval | None = None
    execution_s: float | None = None
    cycle_s: float | None = None
    arrived: int = 0
    wait_s: float = 0.0
    wait_low_s: float = 0.0
    previous: int = 0
    elapsed_s: float = 0.0
    max_workers: int = 200
    max_change: float | None = None
    default_capacity: float | None = None
    failing: bool = False

    @property
    def unfinished(self) -> int:
        """Return the waiting and running tasks."""
        return self.waiting + self.running

    @property
    def coming(self) -> int:
        """Return the requested workers."""
        return sum(workers for _, workers in self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A sizing policy's memory of a manager. ``recent``: earlier (instant, number); ``arrivals``:
    work so far; ``cap``: the capacity in use, ``below_s``: since when a lower one is reported,
    ``peak``: the highest of these; ``begun_s``: when there was work for the first time."""

    recent: tuple[tuple[float, int], ...] = ()
    arrivals: ArrivalHistory = field(default_factory=ArrivalHistory)
    cap: int | None = None
    below_s: float | None = None
    peak: int = 0
    begun_s: float | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """The minimum of these named numbers, not below 0."""

    name: str
    bounds: tuple[tuple[str, int], ...]

    @property
    def workers(self) -> int:
        """Return the minimum."""
        return max(0, min(number for _, number in self.bounds))

    def __str__(self) -> str:
        least = ", ".join(f"{name} {number}" for name, number in self.bounds)
        return f"{self.workers} {self.name} (least of {least})"


@dataclass(frozen=True, slots=True)
class SizingResult:
    """The maximum of some terms, and the memory."""

    terms: tuple[Term, ...]
    memory: Memory

    @property
    def workers(self) -> int:
        """Return the number of workers."""
        return max(term.workers for term in self.terms)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the terms as text, the decisive one first."""
        return tuple(map(str, sorted(self.terms, key=lambda term: -term.workers)))


def term(name: str, view: SizeView, *bounds: tuple[str, int]) -> Term:
    """Return a term that includes the pool's maximum."""
    return Term(name, (*bounds, ("most", view.max_workers)))

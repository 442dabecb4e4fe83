"""What a sizing policy sees of one manager, what it answers and what it remembers, as frozen
values."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgrads.pool.capacity import Interval
from vgrads.pool.lookahead import Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeView:
    """One manager now. Times in seconds of the asker's clock.

    ``asked``: requests on their way as (asked at, workers). ``previous``: what was decided
    ``elapsed_s`` ago. ``capacity``: as it is known; ``execution_s`` of a task, ``cycle_s`` with all
    that goes with it. ``arrived``: tasks it ever had. ``wait_s``, ``wait_low_s``: after which half
    of the workers, and one in ten, that are asked for have come. ``failing``: every task that has
    ended has failed. ``max_change`` is in workers a minute.
    """

    now_s: float
    waiting: int = 0
    running: int = 0
    connected: int = 0
    idle: int = 0
    asked: tuple[tuple[float, int], ...] = ()
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
        """Tasks that wait or run."""
        return self.waiting + self.running

    @property
    def coming(self) -> int:
        """Workers on their way."""
        return sum(workers for _, workers in self.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a policy remembers of a manager. ``recent``: earlier (instant, number); ``seen``: work
    so far; ``cap``: the capacity that counts, ``below_s``: since when a lower one is told,
    ``peak``: the highest of these; ``begun_s``: when there was work for the first time."""

    recent: tuple[tuple[float, int], ...] = ()
    seen: Seen = field(default_factory=Seen)
    cap: int | None = None
    below_s: float | None = None
    peak: int = 0
    begun_s: float | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """The least of these named numbers, not below 0."""

    name: str
    bounds: tuple[tuple[str, int], ...]

    @property
    def workers(self) -> int:
        """The least."""
        return max(0, min(number for _, number in self.bounds))

    def __str__(self) -> str:
        least = ", ".join(f"{name} {number}" for name, number in self.bounds)
        return f"{self.workers} {self.name} (least of {least})"


@dataclass(frozen=True, slots=True)
class Sized:
    """The largest of some terms, and what is remembered."""

    terms: tuple[Term, ...]
    memory: Memory

    @property
    def workers(self) -> int:
        """How many."""
        return max(one.workers for one in self.terms)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The terms in words, the one that counts first."""
        return tuple(map(str, sorted(self.terms, key=lambda one: -one.workers)))


def term(name: str, view: SizeView, *bounds: tuple[str, int]) -> Term:
    """A term that holds the pool's greatest number."""
    return Term(name, (*bounds, ("most", view.max_workers)))

"""Events that come in, commands that go out, and what a run has come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from immutables import Map

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.times import Times
from vgrads.planner.snapshot import CopyKey, TaskKey


class CopyState(StrEnum):
    """How a copy stands. All but the first two are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"  # another copy was first
    SKIPPED = "skipped"  # given up before it started

    @property
    def settled(self) -> bool:
        """True where nothing more will happen to it."""
        return self not in (CopyState.WAITING, CopyState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotNews:
    """A slot moved on; ``permanent``: it failed for what is written down wrong, so asking again is
    of no use."""

    at_s: float
    slot: str
    state: SlotState
    reason: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAgain:
    """What was asked for is given back, and the slot is asked for anew under another name."""

    at_s: float
    slot: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnded:
    """A running copy came to its end; ``committed``: its outputs, if it has any, are where they
    belong.

    A copy that succeeded and is not committed ends a second time, when it is, or when that has
    failed. ``code``: the exit code that its command chose; None where a signal or something around
    it ended it. ``ended``: its end as a shell tells it, 128 and more for signals; None where it was
    not the command that ended. ``times``: where the time went since it was ordered, or ended the
    first time; None where nobody measured it.
    """

    at_s: float
    key: CopyKey
    ok: bool
    reason: str = ""
    committed: bool = True
    code: int | None = None
    times: Times | None = None
    ended: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Somebody wants the run to stop."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """The planner was asked again. From here the book of ``version`` rules; the same as before: it
    had nothing better."""

    at_s: float
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSilent:
    """A site did not answer, or did not do what it was asked. Changes nothing; it is asked
    again."""

    at_s: float
    site: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Leave to begin a task, with what it is to run; ``number`` tells it from later leaves for the
    same task.

    ``used``: its command has failed by itself, and another leave is needed.
    """

    number: int
    command: str
    memory_mib: float = 0.0
    used: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Whoever handed a released set over has told which tasks may begin, and which it has given up.

    ``upto``: everything up to this number of the mailbox was heard.
    """

    at_s: float
    upto: int
    released: tuple[tuple[TaskKey, Release], ...] = ()
    given_up: tuple[tuple[TaskKey, str], ...] = ()


Event = Told | SlotNews | AskedAgain | CopyEnded | Tick | Cancelled | Replanned | SiteSilent


@dataclass(frozen=True, slots=True)
class OpenSlot:
    """Ask for a slot."""

    slot: str


@dataclass(frozen=True, slots=True)
class CloseSlot:
    """Give a slot back: nothing is left for it."""

    slot: str


@dataclass(frozen=True, slots=True)
class StartCopy:
    """Start a copy in its slot."""

    key: CopyKey


@dataclass(frozen=True, slots=True)
class CommitCopy:
    """Put the outputs of a copy where they belong: they are to count."""

    key: CopyKey


@dataclass(frozen=True, slots=True)
class CancelCopy:
    """Stop a running copy."""

    key: CopyKey


@dataclass(frozen=True, slots=True)
class Replan:
    """Ask the planner about what is left."""

    reason: str


Command = OpenSlot | CloseSlot | StartCopy | CommitCopy | CancelCopy | Replan


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """A slot of the run; ``next``: nothing waits before this position of its planned order.

    ``wake_s``: when it needs another look even if nothing is reported; ``overdue``: it was noticed
    to be late; ``permanent``: it failed for what is written down wrong; ``again``: how often it was
    asked for anew.
    """

    state: SlotState | None = None  # None: not asked for yet
    asked_s: float | None = None
    granted_s: float | None = None
    ready_s: float | None = None
    ended_s: float | None = None
    reason: str = ""
    used: int = 0
    next: int = 0
    closing: bool = False
    wake_s: float = 0.0
    overdue: bool = False
    permanent: bool = False
    again: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """A copy of the run; ``committing``: it has run, and its outputs are on their way to where they
    belong.

    ``code``: the exit code that its last failed attempt chose. ``failures``: attempts that failed
    by a rule of its task's policy; ``memory``, ``time``: by how much these rules have multiplied
    what it is given.
    """

    state: CopyState = CopyState.WAITING
    start_s: float = 0.0
    end_s: float = 0.0
    reason: str = ""
    attempt: int = 0
    committing: bool = False
    code: int | None = None
    failures: int = 0
    memory: float = 1.0
    time: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where and when a task was first done."""

    site: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Everything that a run has come to; the fold of its events.

    ``faulty``: tasks that fail by themselves, and how: no other slot would help; ``version``: the
    book that rules; ``whole``: workflows that are done; ``tried``: how bad things were when the
    planner was last asked; ``notes``: instants and words of what was decided; ``released``: tasks
    that may begin, in sets that are released task by task; ``heard``: how far the mailbox was read.
    """

    now_s: float = 0.0
    slots: Map[str, SlotRecord]
    copies: Map[CopyKey, CopyRecord]
    done: Map[TaskKey, Delivery]
    lost: Map[TaskKey, str]
    faulty: Map[TaskKey, str] = field(default_factory=Map)
    wake_s: float = float("inf")
    whole: int = 0
    version: int = 0
    replans: int = 0
    replanning: bool = False
    tried: tuple[int, int] = (0, 0)
    released: Map[TaskKey, Release] = field(default_factory=Map)
    heard: int = 0
    cancelled: str = ""
    notes: tuple[tuple[float, str], ...] = ()

"""Events, commands, and the state of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from immutables import Map

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.times import Times

if TYPE_CHECKING:
    from vgrads.planner.snapshot import ReplicaKey, TaskKey


class ReplicaState(StrEnum):
    """State of a replica. All but the first two are terminal."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"  # another replica was first
    SKIPPED = "skipped"  # skipped before it started

    @property
    def settled(self) -> bool:
        """True if the state is terminal."""
        return self not in LIVE


LIVE = (ReplicaState.WAITING, ReplicaState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUpdate:
    """A slot changed its state; ``permanent``: it failed because of a configuration error, so
    repeating the request is useless."""

    at_s: float
    slot: str
    state: SlotState
    reason: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequestedAgain:
    """The slot's job was released, and the slot is requested again under another name."""

    at_s: float
    slot: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnded:
    """A running replica ended; ``committed``: its outputs, if it has any, are in place.

    A successful replica that is not committed ends a second time: when it is committed, or when
    that has failed. ``code``: the exit code of its command; None if a signal or something outside
    the command ended it. ``ended``: its end as a shell reports it, 128 and more for signals; None
    if it was not the command that ended. ``times``: time spent since its start command, or since
    its first end; None if not measured.
    """

    at_s: float
    key: ReplicaKey
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
    """The run is to be cancelled."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """Replanning ended. From here the execution plan ``version`` is valid; an unchanged version
    means that there was no better plan."""

    at_s: float
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseChecked:
    """The promise as the manager computed it, if the plan continues unchanged; ``end_s``: median
    time at which it will be kept, None: never. ``possible``: False where it is kept in no scenario,
    nor with every wait and run time at its 5 % quantile."""

    at_s: float
    probability: float
    end_s: float | None = None
    possible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRaised:
    """A message is due by the rule with this position: ``state`` is what it is about, ``reason``
    why the promise is in it. ``number``: of the message, from 1; ``targets``: who gets it;
    ``escalates``: number of an earlier one, which nobody acknowledged in time; 0: none."""

    at_s: float
    number: int
    rule: int
    state: str
    reason: str = ""
    targets: tuple[str, ...] = ()
    escalates: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmsAcknowledged:
    """A user takes care of what messages up to a number are about; ``by``: its name."""

    at_s: float
    upto: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSent:
    """A message was delivered to a target; or was given up, with the reason."""

    at_s: float
    number: int
    target: str
    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSilent:
    """A site did not answer, or did not carry out a request. Changes nothing; the request is
    repeated."""

    at_s: float
    site: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Permission to start a task, with its command; ``number`` distinguishes it from later releases
    of the same task.

    ``used``: its command has failed by itself, and another release is needed.
    """

    number: int
    command: str
    memory_mib: float = 0.0
    used: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseUpdate:
    """The program that submitted a set with releases has released tasks, or given some up.

    ``upto``: the mailbox was read up to this number.
    """

    at_s: float
    upto: int
    released: tuple[tuple[TaskKey, Release], ...] = ()
    abandoned: tuple[tuple[TaskKey, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChange:
    """A change of what a run has to keep; None, or nothing: as before.

    ``deadline_s``: on the run's clock; ``by``: its user; ``drop_sites``: no more slots are
    requested there, and those in which nothing runs are released; ``add_sites``: sites that were
    dropped.
    """

    deadline_s: float | None = None
    needed: int | None = None
    budget_usd: float | None = None
    probability: float | None = None
    add_sites: tuple[str, ...] = ()
    drop_sites: tuple[str, ...] = ()
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChanged:
    """A message with a change was applied, or refused with a reason; ``message``: its number.
    Execution plan ``version`` is valid from here, unchanged after a refusal; ``promise``: of it."""

    at_s: float
    message: int
    version: int
    change: RequestChange
    promise: float | None = None
    refused: str = ""


Event = (
    RequestChanged
    | ReleaseUpdate
    | SlotUpdate
    | SlotRequestedAgain
    | ReplicaEnded
    | Tick
    | Cancelled
    | Replanned
    | PromiseChecked
    | AlarmRaised
    | AlarmsAcknowledged
    | AlarmSent
    | SiteSilent
)


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """Request a slot."""

    slot: str


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """Release a slot: nothing is left for it."""

    slot: str


@dataclass(frozen=True, slots=True)
class StartReplica:
    """Start a replica in its slot."""

    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class CommitReplica:
    """Commit the outputs of a replica: move them into place."""

    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class CancelReplica:
    """Cancel a running replica."""

    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class Replan:
    """Replan the remainder."""

    reason: str


Command = RequestSlot | ReleaseSlot | StartReplica | CommitReplica | CancelReplica | Replan


class SlotRecord(NamedTuple):
    """A slot of the run.

    ``overdue``: it was found to be late; ``permanent``: it failed because of a configuration error;
    ``again``: how often it was requested again; ``paid_until_s``: when it is released, because no
    more is paid for it.
    """

    state: SlotState | None = None  # None: not requested yet
    requested_s: float | None = None
    granted_s: float | None = None
    ready_s: float | None = None
    ended_s: float | None = None
    reason: str = ""
    closing: bool = False
    overdue: bool = False
    permanent: bool = False
    again: int = 0
    paid_until_s: float | None = None


class SlotProgress(NamedTuple):
    """How far a slot has come in its planned order; changes with every replica.

    ``used``: processors of its running replicas; ``next``: no replica before this position waits;
    ``wake_s``: when it needs a check even if nothing is reported.
    """

    used: int = 0
    next: int = 0
    wake_s: float = 0.0


class ReplicaRecord(NamedTuple):
    """A replica of the run; ``committing``: it has run, and its outputs are being moved into place.

    ``code``: the exit code of its last failed attempt. ``failures``: attempts that failed under a
    rule of its task's policy; ``memory``, ``time``: factors by which these rules have multiplied
    its memory and time.
    """

    state: ReplicaState = ReplicaState.WAITING
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
    """Site and instant of a task's first success."""

    site: str
    at_s: float


class PromiseRecord(NamedTuple):
    """The promise of a run as last computed, ``at_s`` (None: not yet), with the median end.

    ``highest``: since the last plan; ``fallen``: from what to what, until the remainder is planned
    again; ``helpless``: it was planned again while the promise was impossible, and no plan was
    better; ``lost_s``: since when it cannot be kept any more; ``points``: instants,
    probabilities and numbers of completed workflows so far.
    """

    at_s: float | None = None
    probability: float | None = None
    end_s: float | None = None
    highest: float | None = None
    fallen: str = ""
    helpless: bool = False
    lost_s: float | None = None
    points: tuple[tuple[float, float, int], ...] = ()


class AlarmRecord(NamedTuple):
    """A message that was due: :class:`AlarmRaised`, and the targets that got it, or did not, with
    the reason."""

    number: int
    at_s: float
    rule: int
    state: str
    reason: str = ""
    targets: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    escalates: int = 0
    acknowledged: str = ""  # by whom

    @property
    def unsent(self) -> tuple[str, ...]:
        """Targets without a result."""
        ended = {*self.sent, *(target for target, _ in self.failed)}
        return tuple(target for target in self.targets if target not in ended)


class RuleRecord(NamedTuple):
    """What a rule of alarms needs of the past: since when the probability is below its limit (None:
    it is not), and whether its last message is outdated by a state without a message."""

    below_since_s: float | None = None
    outdated: bool = False


class RequestRecord(NamedTuple):
    """What a run had to keep from an instant on, and the promise for it; or a refused change.
    ``message``: number of the message that requested it."""

    at_s: float
    deadline_s: float
    needed: int
    probability: float
    budget_usd: float | None
    promise: float | None
    message: int
    by: str = ""
    refused: str = ""


class TaskFailures(NamedTuple):
    """Failures of a task by its own command, all with the same exit status. ``slots``: where;
    ``reason``: of the last one, with the last line of its standard error."""

    status: int
    times: int
    slots: frozenset[str]
    reason: str


class RunState(NamedTuple):
    """The complete state of a run: the fold of its events.

    ``progress``: slot by slot; ``wake_s``: the first instant at which one needs a check;
    ``overdue_s``: the first at which one is overdue; ``faulty``: tasks that fail by themselves, and
    the reason: no other slot would help; ``version``: the valid execution plan; ``whole``: number
    of workflows that are done; ``tried``: severity at the last replanning; ``replan_from_s``: no
    replanning before this instant, ``deferred``: it is due then; ``notes``: instants and texts of
    decisions; ``released``: tasks that may start, in sets that are released task by task;
    ``mailbox_read``: number up to which the mailbox was read; ``promise``: as last computed;
    ``failures``: of tasks by their own commands; ``alarms``: messages that were due,
    ``alarm_rules``: their rules; ``requests``: changes of the request, after the
    first one; ``changes_read``: number of the last message with a change; ``dropped``: sites where
    no slots are requested any more.
    """

    slots: Map[str, SlotRecord]
    replicas: Map[ReplicaKey, ReplicaRecord]
    done: Map[TaskKey, Delivery]
    lost: Map[TaskKey, str]
    progress: Map[str, SlotProgress] = Map()
    faulty: Map[TaskKey, str] = Map()
    now_s: float = 0.0
    wake_s: float = float("inf")
    overdue_s: float = float("inf")
    whole: int = 0
    version: int = 0
    replans: int = 0
    replanning: bool = False
    tried: tuple[int, int] = (0, 0)
    replan_from_s: float = float("-inf")
    deferred: bool = False
    released: Map[TaskKey, Release] = Map()
    mailbox_read: int = 0
    promise: PromiseRecord = PromiseRecord()
    failures: Map[TaskKey, TaskFailures] = Map()
    alarms: tuple[AlarmRecord, ...] = ()
    alarm_rules: tuple[RuleRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    changes_read: int = 0
    dropped: frozenset[str] = frozenset()
    cancelled: str = ""
    notes: tuple[tuple[float, str], ...] = ()

    @property
    def due_s(self) -> float:
        """When the next step is due even if nothing is reported."""
        return min(self.wake_s, self.replan_from_s) if self.deferred else self.wake_s

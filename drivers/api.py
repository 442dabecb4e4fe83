"""The interface of all drivers: submit a slot request, report the states of slots, cancel.

No call waits. The loop that owns the driver polls it, with one call for all slots of a site. In
virtual time :meth:`Driver.wake_at` returns when the next change is due; for a real site that is not
known.

If a site refuses a request (unknown queue, quota, no capacity), the slot becomes FAILED with the
site's message and a flag for permanent refusals; the run continues without it. If a site does not
answer, the call raises :class:`vgrads.kernel.errors.SiteError` with ``transient`` set: it is not
known whether the call had an effect, and repeating it is safe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

SPOT = "spot"
"""Queue name of slots that are requested on a cloud's spot market."""


class SlotState(IntEnum):
    """State of a slot. States are ordered and never decrease, so late updates are recognised by
    rank.

    The last three are terminal: released, lost before its end, or expired at its end.
    """

    REQUESTED = 0
    QUEUED = 1
    GRANTED = 2
    READY = 3
    RELEASED = 4
    FAILED = 5
    EXPIRED = 6

    @property
    def ended(self) -> bool:
        """True if the slot accepts no more tasks."""
        return self >= SlotState.RELEASED


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSpec:
    """A slot request: ``procs`` processors for ``duration_s``, under an id that vgrads chose.

    Submitting the same id again has no effect. ``name`` is the slot's name within its run: it is
    shown to users, and seeds the availability sample of a simulated site. ``begin_s`` and
    ``end_by_s`` (seconds of the run's clock) keep the site from starting the slot too early, or at
    all if it could not end in time. ``pilot`` is a shell command that runs in the slot, on its
    first node, with ``environment``; without a pilot the slot is only held. The slot ends with its
    pilot. With ``every_node`` the pilot runs once on each node, with its index (from 0) in
    ``VGRADS_NODE`` and the number of nodes in ``VGRADS_NODES``; the slot ends when all pilots have
    ended, and fails if a pilot failed.
    """

    id: str
    name: str
    site: str
    queue: str
    procs: int
    duration_s: float
    nodes: int = 1
    node_type: str = ""
    begin_s: float | None = None
    end_by_s: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    pilot: str = ""
    every_node: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    """State of a slot, since when, and the reason if it failed.

    ``permanent``: it failed because of a configuration error, here or at the site; a repeated
    request would fail in the same way.
    """

    id: str
    state: SlotState
    since_s: float
    reason: str = ""
    permanent: bool = False


class Driver(Protocol):
    """A driver: submit, status, cancel. Errors are :class:`vgrads.kernel.errors.SiteError`,
    transient or not."""

    def submit(self, spec: SlotSpec) -> None:
        """Submit a slot request."""

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        """Return the current states of these slots, with one call to the site; unknown ids are
        FAILED."""

    def cancel(self, slot: str) -> None:
        """Release a slot in any state; unknown and terminal slots are no error."""

    def wake_at(self) -> float:
        """Return when the next change is due in virtual time; ``inf`` if none is due or known."""

    def close(self) -> None:
        """Release all slots of this driver."""


@dataclass(frozen=True, kw_only=True)
class SiteAccess:
    """Access to a real site, and parameters that every request there carries.

    ``host``: node with the batch commands, reached over SSH; empty: this machine. ``folder``: where
    slots write their marks and output at the site; empty: ``.vgrads/slots`` in the home there.
    ``shared_home``: False if compute nodes do not see that folder; a slot is then ready as soon as
    it runs. ``python``: the interpreter there that has vgrads; ``contact``: the address at which
    slots reach the manager. ``shared_files``: whether slots see the manager's files under the same
    paths; None: not in clouds and not over SSH. ``poll_s``: interval at which a run polls its
    slots; batch systems are shared.
    """

    host: str = ""
    ssh_options: tuple[str, ...] = ()
    account: str = ""
    reservation: str = ""
    folder: str = ""
    shared_home: bool = True
    shared_files: bool | None = None
    timeout_s: float = 30.0
    poll_s: float = 10.0
    options: tuple[str, ...] = ()
    parallel_environment: str = "smp"
    python: str = ""
    contact: str = ""
    endpoint: str = ""
    region: str = "us-east-1"
    image: str = ""
    key_name: str = ""
    security_groups: tuple[str, ...] = ()
    profile: str = "default"
    spend_limit_usd: float | None = None
    price_date: str = ""


@dataclass(frozen=True, kw_only=True)
class QueueLimits:
    """Limits of a queue as its site describes them; None for no limit. ``nodes``: where its jobs
    run; empty if the site does not list them."""

    name: str
    max_walltime_s: float | None = None
    max_procs: int | None = None
    open: bool = True
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Result of a survey of a site: software version, queues, working features and problems."""

    version: str
    queues: tuple[QueueLimits, ...] = ()
    works: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFacts:
    """What changes rarely at a site: limits of its queues; the ``user`` that asks, and whether
    users are shown their own jobs alone (``hides_jobs``)."""

    user: str
    hides_jobs: bool = False
    queues: tuple[QueueLimits, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job or array task of any user in a queue: processors, requested seconds, time waited so far
    (``waited_s``), or remaining requested time (``left_s``; None while it waits). A job
    that is not ``eligible`` waits and cannot start: it is held, depends on other jobs, or has a
    begin time."""

    queue: str
    user: str
    procs: int
    requested_s: float
    waited_s: float | None = None
    left_s: float | None = None
    eligible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedJob:
    """A job or an instance at a site that carries a mark of vgrads, and its slot (if the site
    reports it)."""

    handle: str
    name: str
    slot: str
    state: SlotState
    age_s: float | None = None
    run: str = ""


def mark(slot: str) -> str:
    """Return the name of a slot at its site: the same for the same id, in plain letters.

    Fifteen characters, the most that Torque accepts. Submission is therefore idempotent wherever
    names can be listed, and no id can break a command.
    """
    return f"vg-{hashlib.sha256(slot.encode()).hexdigest()[:12]}"

"""What every driver does: submit a slot request, say how many of them stand, cancel.

Nothing waits in here. Whoever owns the loop asks, one call for all slots of a site. In virtual time
:meth:`Driver.wake_at` tells when asking again can bring news; a real site cannot know.

A site that refuses a request (unknown queue, quota, no capacity) makes the slot FAILED with the
site's own words, and says whether that is for good; the run goes on without it. A site that does
not answer is a :class:`vgrads.kernel.errors.SiteError` with ``transient`` set: whether the call had
an effect is not known, and the same call again is safe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

SPOT = "spot"
"""The queue of a slot that is asked for on a cloud's spot market."""


class SlotState(IntEnum):
    """Ordered: a slot never goes back, so late news is recognised by its rank.

    The last three end a slot: given back, lost before its end, or run to its end.
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
        """True for a slot that can take no task any more."""
        return self >= SlotState.RELEASED


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSpec:
    """What is asked of a site: ``procs`` processors for ``duration_s``, under an id of ours.

    Submitting the same id again asks for nothing more. ``name`` is the slot's name within its run:
    what a person reads, and what a simulated site draws the slot's fate from. ``begin_s`` and
    ``end_by_s`` (seconds of the run's clock) keep the site from starting the slot too early, or at
    all where it could not end in time. ``pilot`` is a shell command that runs in the slot, on its
    first node, with ``environment``; without one the slot is only held. When the pilot ends, so
    does the slot. With ``every_node`` the pilot runs once on each node, told by ``VGRADS_NODE``
    (from 0) which of ``VGRADS_NODES`` it is; the slot ends when the last of them has, and fails if
    one of them has.
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
    """How a slot stands, since when, and why if it went wrong.

    ``permanent``: it failed for what is written down wrong, here or at the site, not by bad luck;
    asking for the like again would end alike.
    """

    id: str
    state: SlotState
    since_s: float
    reason: str = ""
    permanent: bool = False


class Driver(Protocol):
    """Three verbs. Errors are :class:`vgrads.kernel.errors.SiteError`, transient or not."""

    def submit(self, spec: SlotSpec) -> None:
        """Ask for a slot."""

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        """How these slots stand now; unknown ids are FAILED. One call to the site."""

    def cancel(self, slot: str) -> None:
        """Give a slot back, whatever its state; unknown or ended ones are no error."""

    def wake_at(self) -> float:
        """When news can be expected in virtual time; ``inf`` where nothing is due or knowable."""

    def close(self) -> None:
        """Give back everything that this driver holds."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a real site is reached, and what every request there carries.

    ``host``: where the batch commands are, over SSH; empty: here. ``folder``: where slots leave
    their marks and output on the site, empty: ``.vgrads/slots`` in the home there. ``shared_home``:
    False where compute nodes do not see that folder; a slot is then ready as soon as it runs.
    ``python``: the interpreter there that has vgrads; ``contact``: the address under which slots
    reach the manager. ``shared_files``: whether slots see the manager's files under the same paths;
    None: not in clouds and not over SSH. ``poll_s``: how often a run asks how its slots stand;
    batch systems are everybody's.
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
    """A queue as its site describes it; None where the site names no limit."""

    name: str
    max_walltime_s: float | None = None
    max_procs: int | None = None
    open: bool = True


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What a site says of itself: its software, its queues, what works and what does not."""

    version: str
    queues: tuple[QueueLimits, ...] = ()
    works: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """Somebody's job in a queue: processors, requested seconds, and since when (``waited_s``) or
    for how long yet by request (``left_s``; None while it waits)."""

    queue: str
    user: str
    procs: int
    requested_s: float
    waited_s: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Something at a site that bears our mark: a job or an instance, and whose slot it is (if it
    says so)."""

    handle: str
    name: str
    slot: str
    state: SlotState
    age_s: float | None = None
    run: str = ""


def mark(slot: str) -> str:
    """The name under which a site knows a slot: the same for the same id, and plain letters.

    Fifteen characters, the most that Torque takes; so submitting is idempotent wherever names can
    be listed, and no id can break a command.
    """
    return f"vg-{hashlib.sha256(slot.encode()).hexdigest()[:12]}"

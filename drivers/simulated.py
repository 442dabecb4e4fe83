"""Slots at simulated sites, in virtual time: batch clusters under load, and clouds.

Failures occur with the probabilities of the site catalogue, drawn from named streams: the
availability sample of a slot depends only on the seed and its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgrads.drivers.api import SPOT, SlotSpec, SlotState, SlotStatus
from vgrads.drivers.ledger import SlotLedger
from vgrads.kernel.clock import Clock
from vgrads.kernel.events import EventQueue
from vgrads.kernel.streams import stream
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cloud import CloudRegion, sample_boot_time
from vgrads.simulator.cluster import BatchCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteBehaviour:
    """Behaviour of a simulated site; probabilities and boot times as in the catalogue."""

    slot_up: float = 1.0
    slot_acquire: float = 1.0
    boot_s: float = 0.0
    boot_spread: float = 0.0
    spot_interruptions_per_hour: float = 0.0
    seed: int = 0


class _SlotLife:
    """Events of a slot after its grant: it boots, becomes ready, fails or reaches its end."""

    def __init__(self, behaviour: SiteBehaviour, on_end: Callable[[str], None]) -> None:
        self.ledger = SlotLedger()
        self.behaviour = behaviour
        self._due: EventQueue[tuple[str, SlotState, str]] = EventQueue()
        self._on_end = on_end

    def grant(self, spec: SlotSpec, at_s: float) -> None:
        """Grant the slot and draw its later events."""
        # a stream of its own: what happens to a slot does not depend on the order of grants
        draws = stream(self.behaviour.seed, "slot", spec.name)
        self.ledger.move(spec.id, SlotState.GRANTED, at_s)
        ready_s = at_s + sample_boot_time(self.behaviour.boot_s, self.behaviour.boot_spread, draws)
        self._due.push(ready_s, (spec.id, SlotState.READY, ""))
        self._due.push(at_s + spec.duration_s, (spec.id, SlotState.EXPIRED, "reached its end"))
        if draws.random() >= self.behaviour.slot_up:
            breaks_s = ready_s + draws.random() * max(0.0, at_s + spec.duration_s - ready_s)
            self._due.push(breaks_s, (spec.id, SlotState.FAILED, "a simulated fault of its node"))
        if spec.queue == SPOT and self.behaviour.spot_interruptions_per_hour > 0:
            # the first interruption of any node ends the slot: the rates of its nodes add up
            nodes_hours = 3600.0 / self.behaviour.spot_interruptions_per_hour / spec.nodes
            taken_s = at_s + draws.exponential(nodes_hours)
            self._due.push(taken_s, (spec.id, SlotState.FAILED, "interrupted by the spot market"))

    def refused(self, spec: SlotSpec) -> bool:
        """True if the site refuses this request."""
        return bool(
            stream(self.behaviour.seed, "acquire", spec.name).random()
            >= self.behaviour.slot_acquire
        )

    def end(self, slot: str, state: SlotState, at_s: float, reason: str) -> None:
        """End a slot, once, and free its processors."""
        if self.ledger.move(slot, state, at_s, reason):
            self._on_end(slot)

    def advance(self, now_s: float) -> None:
        """Process the events that are due."""
        for at_s, (slot, state, reason) in self._due.pop_until(now_s):
            if state.ended:
                self.end(slot, state, at_s, reason)
            else:
                self.ledger.move(slot, state, at_s, reason)

    def wake_at(self) -> float:
        return self._due.peek_time()


class SimulatedBatch:
    """Slots as jobs of a simulated batch cluster, which wait among jobs of other users."""

    def __init__(self, cluster: BatchCluster, clock: Clock, behaviour: SiteBehaviour) -> None:
        self._cluster, self._clock = cluster, clock
        self._lifetime = _SlotLife(behaviour, self._leave)
        self._specs: dict[str, SlotSpec] = {}

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._specs:
            return
        self._advance()
        now = self._clock.now()
        self._specs[spec.id] = spec
        if spec.procs > self._cluster.procs or self._lifetime.refused(spec):
            self._lifetime.ledger.move(spec.id, SlotState.FAILED, now, "refused by the site")
            return
        self._lifetime.ledger.move(spec.id, SlotState.QUEUED, now)
        self._cluster.submit(BatchJob(spec.id, spec.procs, spec.duration_s, spec.duration_s), now)
        # it may start at once
        self._advance()

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        self._advance()
        return self._lifetime.ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        self._advance()
        if slot in self._specs:
            self._lifetime.end(slot, SlotState.RELEASED, self._clock.now(), "released")
            # others may start in its place
            self._advance()

    def wake_at(self) -> float:
        return min(self._cluster.next_time(), self._lifetime.wake_at())

    def close(self) -> None:
        for slot in self._lifetime.ledger.open_slots():
            self.cancel(slot)

    def _advance(self) -> None:
        """Advance the cluster and the slots together, instant by instant, to now."""
        now = self._clock.now()
        while self.wake_at() <= now < float("inf"):
            instant = self.wake_at()
            for happening in self._cluster.advance(instant):
                spec = self._specs.get(happening.job)
                if spec is None:
                    continue
                if happening.kind == "started":
                    self._lifetime.grant(spec, happening.time_s)
                elif happening.kind == "killed":
                    self._lifetime.end(spec.id, SlotState.FAILED, happening.time_s, "a node failed")
            self._lifetime.advance(instant)
        self._cluster.advance(now)

    def _leave(self, slot: str) -> None:
        self._cluster.cancel(slot)


class SimulatedCloud:
    """Slots as sets of virtual machines: granted at once or refused, ready after booting.

    The spot market has a separate quota, as large as the region's.
    """

    def __init__(self, region: CloudRegion, clock: Clock, behaviour: SiteBehaviour) -> None:
        self._region, self._clock = region, clock
        self._spot = CloudRegion(region.procs)
        self._lifetime = _SlotLife(behaviour, self._release)

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._lifetime.ledger:
            return
        now = self._clock.now()
        self._lifetime.advance(now)
        self._lifetime.ledger.move(spec.id, SlotState.REQUESTED, now)
        region = self._spot if spec.queue == SPOT else self._region
        if self._lifetime.refused(spec) or not region.acquire(spec.id, spec.procs):
            self._lifetime.ledger.move(spec.id, SlotState.FAILED, now, "refused: no capacity")
        else:
            self._lifetime.grant(spec, now)

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        self._lifetime.advance(self._clock.now())
        return self._lifetime.ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        self._lifetime.advance(self._clock.now())
        if slot in self._lifetime.ledger:
            self._lifetime.end(slot, SlotState.RELEASED, self._clock.now(), "released")

    def wake_at(self) -> float:
        return self._lifetime.wake_at()

    def close(self) -> None:
        for slot in self._lifetime.ledger.open_slots():
            self.cancel(slot)

    def _release(self, slot: str) -> None:
        # the market of a slot is not recorded, and only one of the two has it
        self._region.release(slot)
        self._spot.release(slot)

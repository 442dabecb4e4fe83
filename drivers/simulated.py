"""Slots at simulated sites, in virtual time: batch clusters under load, and clouds.

What can go wrong does, with the probabilities of the site catalogue, drawn from named streams: the
fate of a slot depends on the seed and its own name only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgrads.drivers.api import SPOT, SlotSpec, SlotState, SlotStatus
from vgrads.drivers.ledger import SlotLedger
from vgrads.kernel.clock import Clock
from vgrads.kernel.events import EventQueue
from vgrads.kernel.streams import stream
from vgrads.simulator.backfill import Job
from vgrads.simulator.cloud import CloudRegion, boot_time
from vgrads.simulator.cluster import BatchCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteBehaviour:
    """How a simulated site treats slots; probabilities and boot times as in the catalogue."""

    slot_up: float = 1.0
    slot_acquire: float = 1.0
    boot_s: float = 0.0
    boot_spread: float = 0.0
    spot_interruptions_per_hour: float = 0.0
    seed: int = 0


class _SlotLife:
    """What happens to a slot from the grant on: boots, is ready, breaks or runs to its end."""

    def __init__(self, behaviour: SiteBehaviour, on_end: Callable[[str], None]) -> None:
        self.ledger = SlotLedger()
        self.behaviour = behaviour
        self._due: EventQueue[tuple[str, SlotState, str]] = EventQueue()
        self._on_end = on_end

    def grant(self, spec: SlotSpec, at_s: float) -> None:
        """The slot was granted; its future is drawn now."""
        draws = stream(self.behaviour.seed, "slot", spec.name)
        self.ledger.move(spec.id, SlotState.GRANTED, at_s)
        ready_s = at_s + boot_time(self.behaviour.boot_s, self.behaviour.boot_spread, draws)
        self._due.push(ready_s, (spec.id, SlotState.READY, ""))
        self._due.push(at_s + spec.duration_s, (spec.id, SlotState.EXPIRED, "reached its end"))
        if draws.random() >= self.behaviour.slot_up:
            breaks_s = ready_s + draws.random() * max(0.0, at_s + spec.duration_s - ready_s)
            self._due.push(breaks_s, (spec.id, SlotState.FAILED, "the slot broke down"))
        if spec.queue == SPOT and self.behaviour.spot_interruptions_per_hour > 0:
            nodes_hours = 3600.0 / self.behaviour.spot_interruptions_per_hour / spec.nodes
            taken_s = at_s + draws.exponential(nodes_hours)
            self._due.push(taken_s, (spec.id, SlotState.FAILED, "the spot market took it back"))

    def refused(self, spec: SlotSpec) -> bool:
        """True where the site refuses this request outright."""
        return bool(
            stream(self.behaviour.seed, "acquire", spec.name).random()
            >= self.behaviour.slot_acquire
        )

    def end(self, slot: str, state: SlotState, at_s: float, reason: str) -> None:
        """End a slot, once, and give its processors back."""
        if self.ledger.move(slot, state, at_s, reason):
            self._on_end(slot)

    def advance(self, now_s: float) -> None:
        """Carry out what is due."""
        for at_s, (slot, state, reason) in self._due.pop_until(now_s):
            if state.ended:
                self.end(slot, state, at_s, reason)
            else:
                self.ledger.move(slot, state, at_s, reason)

    def wake_at(self) -> float:
        return self._due.peek_time()


class SimulatedBatch:
    """Slots as jobs of a simulated batch cluster, waiting among other people's."""

    def __init__(self, cluster: BatchCluster, clock: Clock, behaviour: SiteBehaviour) -> None:
        self._cluster, self._clock = cluster, clock
        self._life = _SlotLife(behaviour, self._leave)
        self._specs: dict[str, SlotSpec] = {}

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._specs:
            return
        self._advance()
        now = self._clock.now()
        self._specs[spec.id] = spec
        if spec.procs > self._cluster.procs or self._life.refused(spec):
            self._life.ledger.move(spec.id, SlotState.FAILED, now, "refused by the site")
            return
        self._life.ledger.move(spec.id, SlotState.QUEUED, now)
        self._cluster.submit(Job(spec.id, spec.procs, spec.duration_s, spec.duration_s), now)
        self._advance()

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        self._advance()
        return self._life.ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        self._advance()
        if slot in self._specs:
            self._life.end(slot, SlotState.RELEASED, self._clock.now(), "released")
            self._advance()

    def wake_at(self) -> float:
        return min(self._cluster.next_time(), self._life.wake_at())

    def close(self) -> None:
        for slot in self._life.ledger.open_slots():
            self.cancel(slot)

    def _advance(self) -> None:
        """Step the cluster and the slots' lives together, instant by instant, up to now."""
        now = self._clock.now()
        while self.wake_at() <= now < float("inf"):
            instant = self.wake_at()
            for happening in self._cluster.advance(instant):
                spec = self._specs.get(happening.job)
                if spec is None:
                    continue
                if happening.kind == "started":
                    self._life.grant(spec, happening.time_s)
                elif happening.kind == "killed":
                    self._life.end(spec.id, SlotState.FAILED, happening.time_s, "a node failed")
            self._life.advance(instant)
        self._cluster.advance(now)

    def _leave(self, slot: str) -> None:
        self._cluster.withdraw(slot)


class SimulatedCloud:
    """Slots as sets of virtual machines: at once or refused, ready after a boot.

    The spot market is a quota of its own, as large as the region.
    """

    def __init__(self, region: CloudRegion, clock: Clock, behaviour: SiteBehaviour) -> None:
        self._region, self._clock = region, clock
        self._spot = CloudRegion(region.procs)
        self._life = _SlotLife(behaviour, self._release)

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._life.ledger:
            return
        now = self._clock.now()
        self._life.advance(now)
        self._life.ledger.move(spec.id, SlotState.REQUESTED, now)
        region = self._spot if spec.queue == SPOT else self._region
        if self._life.refused(spec) or not region.acquire(spec.id, spec.procs):
            self._life.ledger.move(spec.id, SlotState.FAILED, now, "refused: no capacity")
        else:
            self._life.grant(spec, now)

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        self._life.advance(self._clock.now())
        return self._life.ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        self._life.advance(self._clock.now())
        if slot in self._life.ledger:
            self._life.end(slot, SlotState.RELEASED, self._clock.now(), "released")

    def wake_at(self) -> float:
        return self._life.wake_at()

    def close(self) -> None:
        for slot in self._life.ledger.open_slots():
            self.cancel(slot)

    def _release(self, slot: str) -> None:
        self._region.release(slot)
        self._spot.release(slot)

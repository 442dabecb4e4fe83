"""What every driver must do, as checks that run against a real site or a simulated one.

Ships with the package, so that somebody else's driver can be held to it::

    for check in CHECKS:
        check(bench)

A :class:`Bench` says how to open the driver, how to let time pass, and what the site can do. Checks
raise AssertionError with what was seen.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vgrads.drivers.api import Driver, Held, SlotSpec, SlotState, SlotStatus, mark
from vgrads.kernel.errors import SiteError


@dataclass(kw_only=True)
class Bench:
    """A site under test.

    ``open`` makes a new driver that knows nothing of earlier ones; ``elapse`` lets seconds pass (or
    a little less, where something has happened). ``slot`` are the site's fields of a spec,
    ``nodes`` how many a slot can have. ``read`` returns what a pilot has written to a file that it
    was told by name, None where pilots do not run. ``patience_s``: how long the site may take for
    anything.
    """

    open: Callable[[], Driver]
    elapse: Callable[[float], None]
    slot: SlotSpec
    procs: int
    nodes: int = 1
    read: Callable[[str], str] | None = None
    folder: str = ""
    patience_s: float = 60.0
    step_s: float = 0.3
    many: int = 50
    lose_answer: Callable[[], None] | None = None

    def spec(self, duration_s: float = 600.0, **changes: object) -> SlotSpec:
        """A slot of one processor under an id of its own."""
        fields = {name: getattr(self.slot, name) for name in SlotSpec.__slots__}
        name = f"t{uuid.uuid4().hex[:10]}"
        fields |= {"id": f"run-{name}.a", "name": name, "duration_s": duration_s}
        return SlotSpec(**{**fields, **changes})

    def wide(self, pilot: str, environment: Mapping[str, str] | None = None) -> SlotSpec:
        """A slot over all nodes, with its pilot on each."""
        return self.spec(
            pilot=pilot,
            environment=environment or {},
            every_node=True,
            nodes=self.nodes,
            procs=self.nodes * self.slot.procs,
        )

    def until(
        self, driver: Driver, slots: Sequence[str], done: Callable[[SlotState], bool]
    ) -> list[SlotStatus]:
        """Ask until all slots are where they should be; states must never go back meanwhile."""
        last: dict[str, SlotStatus] = {}
        waited_s = 0.0
        while True:
            statuses = driver.status(slots)
            for status in statuses:
                before = last.get(status.id)
                if before is not None:
                    assert status.state >= before.state, f"went back: {before} → {status}"
                    assert not before.state.ended or status == before, (
                        f"moved after its end: {status}"
                    )
                last[status.id] = status
            if all(done(status.state) for status in statuses):
                return statuses
            assert waited_s < self.patience_s, f"still {statuses[:3]} after {waited_s:.0f} s"
            self.elapse(self.step_s)
            waited_s += self.step_s


def is_ready(state: SlotState) -> bool:
    return state >= SlotState.READY


def has_ended(state: SlotState) -> bool:
    return state.ended


def opens_and_is_given_back(bench: Bench) -> None:
    """submit → granted → ready → released; the pilot has run with its environment."""
    driver = bench.open()
    pilot, value = "", "spaces, 'quotes', \"more\", $(false) `x` \\ and\na second line"
    if bench.read:
        pilot = f'printf %s "$GREETING" > {bench.folder}/$VGRADS_SLOT; exec sleep 500'
    spec = bench.spec(pilot=pilot, environment={"GREETING": value})
    driver.submit(spec)
    (status,) = bench.until(driver, [spec.id], is_ready)
    assert status.state == SlotState.READY, status
    if bench.read:
        _await_text(bench, spec.id, value)
    driver.cancel(spec.id)
    driver.cancel(spec.id)
    (status,) = bench.until(driver, [spec.id], has_ended)
    assert status.state == SlotState.RELEASED, status


def _await_text(bench: Bench, name: str, expected: str) -> None:
    assert bench.read is not None
    waited_s = 0.0
    while bench.read(name) != expected:
        assert waited_s < bench.patience_s, f"the pilot wrote {bench.read(name)!r}"
        bench.elapse(bench.step_s)
        waited_s += bench.step_s


def runs_on_every_node(bench: Bench) -> None:
    """With ``every_node`` each node has a pilot, which knows its index, how many there are, and the
    environment."""
    driver = bench.open()
    pilot, value = "", "spaces, 'quotes', \"more\", $(false) `x` \\ and\na second line"
    if bench.read:
        told = '"$VGRADS_NODES $VGRADS_PROCS $GREETING"'
        pilot = f'printf %s {told} > {bench.folder}/"$VGRADS_SLOT.$VGRADS_NODE"; exec sleep 500'
    spec = bench.wide(pilot, {"GREETING": value})
    driver.submit(spec)
    (status,) = bench.until(driver, [spec.id], is_ready)
    assert status.state == SlotState.READY, status
    if bench.read:
        for node in range(bench.nodes):
            _await_text(bench, f"{spec.id}.{node}", f"{spec.nodes} {spec.procs} {value}")
    driver.cancel(spec.id)
    (status,) = bench.until(driver, [spec.id], has_ended)
    assert status.state == SlotState.RELEASED, status


def expires_at_its_end(bench: Bench) -> None:
    """A slot of a few seconds reaches its end by itself, and stays there."""
    driver = bench.open()
    spec = bench.spec(duration_s=3.0)
    driver.submit(spec)
    (status,) = bench.until(driver, [spec.id], has_ended)
    assert status.state == SlotState.EXPIRED, status
    driver.cancel(spec.id)
    assert driver.status([spec.id])[0] == status


def cancels_in_every_state(bench: Bench) -> None:
    """Given back at once, while it waits or boots, and when it is ready: released each time."""
    driver = bench.open()
    for wanted in (SlotState.REQUESTED, SlotState.QUEUED, SlotState.READY):
        spec = bench.spec()
        driver.submit(spec)
        if wanted != SlotState.REQUESTED:
            bench.until(driver, [spec.id], lambda state, least=wanted: state >= least)  # type: ignore[misc]
        driver.cancel(spec.id)
        (status,) = bench.until(driver, [spec.id], has_ended)
        assert status.state == SlotState.RELEASED, (wanted, status)


def tells_of_a_failing_pilot(bench: Bench) -> None:
    """A pilot that ends with an error fails its slot, with its last words; one that ends well
    releases it."""
    driver = bench.open()
    bad = bench.spec(pilot="echo the disk is full >&2; exit 3")
    good = bench.spec(pilot="true")
    driver.submit(bad)
    driver.submit(good)
    failed, released = bench.until(driver, [bad.id, good.id], has_ended)
    assert failed.state == SlotState.FAILED, failed
    assert "3" in failed.reason and "disk is full" in failed.reason, failed
    assert released.state == SlotState.RELEASED, released


def ends_with_its_last_pilot(bench: Bench) -> None:
    """A slot with a pilot on every node lasts until the last of them has ended, and fails if one
    failed."""
    assert bench.read is not None
    driver = bench.open()
    last = bench.nodes - 1
    wait = (
        f'[ "$VGRADS_NODE" = {last} ] || exit 0; sleep 2; echo over > {bench.folder}/"$VGRADS_SLOT"'
    )
    good = bench.wide(wait)
    driver.submit(good)
    (status,) = bench.until(driver, [good.id], has_ended)
    assert status.state == SlotState.RELEASED, status
    _await_text(bench, good.id, "over\n")
    bad = bench.wide(f'[ "$VGRADS_NODE" = {last} ] || exit 0; echo the disk is full >&2; exit 3')
    driver.submit(bad)
    (status,) = bench.until(driver, [bad.id], has_ended)
    assert status.state == SlotState.FAILED, status
    assert "3" in status.reason and "disk is full" in status.reason, status


def submits_once(bench: Bench) -> None:
    """Asking again, also by a driver that knows nothing of the first, asks for nothing more."""
    driver = bench.open()
    spec = bench.spec()
    driver.submit(spec)
    driver.submit(spec)
    bench.until(driver, [spec.id], is_ready)
    later = bench.open()
    later.submit(spec)
    (status,) = bench.until(later, [spec.id], is_ready)
    assert status.state == SlotState.READY, status
    later.cancel(spec.id)
    (status,) = bench.until(driver, [spec.id], has_ended)
    assert not _held(later, spec.id)


def _held(driver: Driver, slot: str) -> list[Held]:
    """What the site still has of a slot; nothing where the driver cannot tell."""
    if not hasattr(driver, "held"):
        return []
    return [one for one in driver.held() if one.name == mark(slot)]


def finds_its_slots_again(bench: Bench) -> None:
    """A driver that is new finds open slots by their ids alone, and can give them back."""
    first = bench.open()
    spec = bench.spec()
    first.submit(spec)
    bench.until(first, [spec.id], is_ready)
    second = bench.open()
    (status,) = bench.until(second, [spec.id], is_ready)
    assert status.state == SlotState.READY, status
    second.cancel(spec.id)
    (status,) = bench.until(second, [spec.id], has_ended)
    assert status.state == SlotState.RELEASED, status


def survives_a_lost_answer(bench: Bench) -> None:
    """A purchase whose answer is lost is one purchase when it is repeated."""
    if bench.lose_answer is None:
        return
    driver = bench.open()
    spec = bench.spec()
    bench.lose_answer()
    try:
        driver.submit(spec)
    except SiteError as error:
        assert error.transient, error
    driver.submit(spec)
    (status,) = bench.until(driver, [spec.id], is_ready)
    assert status.state == SlotState.READY, status
    assert len(_held(driver, spec.id)) <= 1
    driver.cancel(spec.id)
    bench.until(driver, [spec.id], has_ended)


def holds_many(bench: Bench) -> None:
    """Many slots at once, more than fit: each is told of, none twice, and all can be given back."""
    driver = bench.open()
    specs = [bench.spec() for _ in range(bench.many)]
    for spec in specs:
        driver.submit(spec)
    ids = [spec.id for spec in specs]
    statuses = bench.until(driver, ids, lambda state: state >= SlotState.QUEUED)
    assert [status.id for status in statuses] == ids
    bench.until(driver, ids[:1], is_ready)
    driver.close()
    statuses = bench.until(driver, ids, has_ended)
    assert all(s.state in (SlotState.RELEASED, SlotState.FAILED) for s in statuses)


def knows_no_strangers(bench: Bench) -> None:
    """An id that was never submitted has failed; giving it back is no error."""
    driver = bench.open()
    driver.cancel("run-nobody.x")
    (status,) = driver.status(["run-nobody.x"])
    assert status.state == SlotState.FAILED, status


CHECKS: tuple[Callable[[Bench], None], ...] = (
    opens_and_is_given_back,
    runs_on_every_node,
    expires_at_its_end,
    cancels_in_every_state,
    submits_once,
    survives_a_lost_answer,
    holds_many,
    knows_no_strangers,
)
"""For every driver."""
PILOT_CHECKS = (tells_of_a_failing_pilot, ends_with_its_last_pilot)
"""For drivers whose slots end with their pilots, which clouds' do not."""
REAL_CHECKS = (*CHECKS, *PILOT_CHECKS, finds_its_slots_again)
"""For drivers of sites that outlive the manager and run pilots; clouds do without PILOT_CHECKS."""

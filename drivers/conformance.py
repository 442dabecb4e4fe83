"""Conformance checks for drivers, to run against a real or a simulated site.

Part of the package, so that drivers of other authors can be checked::

    for check in CHECKS:
        check(bench)

A :class:`Bench` defines how to open the driver, how to let time pass, and what the site can do.
Checks raise AssertionError with the observed states.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vgrads.drivers.api import Driver, MarkedJob, SlotSpec, SlotState, SlotStatus, mark
from vgrads.kernel.errors import SiteError


@dataclass(kw_only=True)
class Bench:
    """A site under test.

    ``open`` returns a new driver without knowledge of earlier ones; ``elapse`` lets seconds pass
    (or fewer, if something has happened). ``slot`` holds the site's fields of a spec, ``nodes`` the
    maximum number of nodes of a slot. ``read`` returns the content of a file, given by name, that a
    pilot has written; None if pilots do not run. ``patience_s``: the longest time that the site may
    take for any step.
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
        """Return the spec of a slot of one processor with a new id."""
        fields = {name: getattr(self.slot, name) for name in SlotSpec.__slots__}
        name = f"t{uuid.uuid4().hex[:10]}"
        fields |= {"id": f"run-{name}.a", "name": name, "duration_s": duration_s}
        return SlotSpec(**{**fields, **changes})

    def wide(self, pilot: str, environment: Mapping[str, str] | None = None) -> SlotSpec:
        """Return the spec of a slot over all nodes, with a pilot on each."""
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
        """Poll until all slots satisfy ``done``; no state may decrease in the process."""
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


def opens_and_releases(bench: Bench) -> None:
    """Check submit → granted → ready → released, and that the pilot ran with its environment."""
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
    # releasing it again is no error
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
    """Check that with ``every_node`` each node has a pilot with its index, the number of nodes, and
    the environment."""
    driver = bench.open()
    pilot, value = "", "spaces, 'quotes', \"more\", $(false) `x` \\ and\na second line"
    if bench.read:
        variables = '"$VGRADS_NODES $VGRADS_PROCS $GREETING"'
        pilot = (
            f'printf %s {variables} > {bench.folder}/"$VGRADS_SLOT.$VGRADS_NODE"; exec sleep 500'
        )
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
    """Check that a slot of a few seconds expires, and remains expired."""
    driver = bench.open()
    spec = bench.spec(duration_s=3.0)
    driver.submit(spec)
    (status,) = bench.until(driver, [spec.id], has_ended)
    assert status.state == SlotState.EXPIRED, status
    # releasing it afterwards changes nothing
    driver.cancel(spec.id)
    assert driver.status([spec.id])[0] == status


def cancels_in_every_state(bench: Bench) -> None:
    """Cancel at once, while waiting or booting, and when ready: the slot is released each time."""
    driver = bench.open()
    for required in (SlotState.REQUESTED, SlotState.QUEUED, SlotState.READY):
        spec = bench.spec()
        driver.submit(spec)
        if required != SlotState.REQUESTED:
            bench.until(driver, [spec.id], lambda state, least=required: state >= least)  # type: ignore[misc]
        driver.cancel(spec.id)
        (status,) = bench.until(driver, [spec.id], has_ended)
        assert status.state == SlotState.RELEASED, (required, status)


def reports_a_failing_pilot(bench: Bench) -> None:
    """Check that a pilot with an error fails its slot, with its last line of output, and that a
    successful pilot releases it."""
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
    """Check that a slot with a pilot on every node lasts until all have ended, and fails if a pilot
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
    """Check that a repeated submission has no effect, also by a new driver."""
    driver = bench.open()
    spec = bench.spec()
    driver.submit(spec)
    driver.submit(spec)
    bench.until(driver, [spec.id], is_ready)
    # this driver does not know of the first submission
    later = bench.open()
    later.submit(spec)
    (status,) = bench.until(later, [spec.id], is_ready)
    assert status.state == SlotState.READY, status
    later.cancel(spec.id)
    (status,) = bench.until(driver, [spec.id], has_ended)
    assert not _list_marked_jobs(later, spec.id)


def _list_marked_jobs(driver: Driver, slot: str) -> list[MarkedJob]:
    """Return the jobs of a slot that remain at the site; empty if the driver cannot list them."""
    if not hasattr(driver, "marked_jobs"):
        return []
    return [job for job in driver.marked_jobs() if job.name == mark(slot)]


def finds_its_slots_again(bench: Bench) -> None:
    """Check that a new driver finds open slots by their ids alone, and can release them."""
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
    """Check that a purchase whose answer was lost and that is repeated is one purchase."""
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
    assert len(_list_marked_jobs(driver, spec.id)) <= 1
    driver.cancel(spec.id)
    bench.until(driver, [spec.id], has_ended)


def holds_many(bench: Bench) -> None:
    """Check many simultaneous slots, more than fit: each is reported, none twice, and all can be
    released."""
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
    # slots that did not fit may have been refused
    assert all(s.state in (SlotState.RELEASED, SlotState.FAILED) for s in statuses)


def reports_unknown_slots(bench: Bench) -> None:
    """Check that an id that was never submitted is FAILED; releasing it is no error."""
    driver = bench.open()
    driver.cancel("run-nobody.x")
    (status,) = driver.status(["run-nobody.x"])
    assert status.state == SlotState.FAILED, status


CHECKS: tuple[Callable[[Bench], None], ...] = (
    opens_and_releases,
    runs_on_every_node,
    expires_at_its_end,
    cancels_in_every_state,
    submits_once,
    survives_a_lost_answer,
    holds_many,
    reports_unknown_slots,
)
"""Checks for every driver."""
PILOT_CHECKS = (reports_a_failing_pilot, ends_with_its_last_pilot)
"""Checks for drivers whose slots end with their pilots; slots of clouds do not."""
REAL_CHECKS = (*CHECKS, *PILOT_CHECKS, finds_its_slots_again)
"""Checks for drivers of sites that outlive the manager and run pilots; clouds omit PILOT_CHECKS."""

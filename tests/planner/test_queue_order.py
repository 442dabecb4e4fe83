"""Slots of one queue are requested in the order that their curves assume."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vgrads_studies.promises.arena import (
    Arena,
    draw_case,
    draw_instants,
    forecasts_at,
    most_busy,
    rescheduled,
)
from vgrads_studies.promises.replication import lead

from tests.logs import queued_log
from tests.planner.test_planner import slot
from vgrads.api.plans.planning import plan_set
from vgrads.api.plans.replanners import count_own_jobs
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.states import SlotRecord
from vgrads.planner.plan import SlotUse, order_by_queue
from vgrads.vgrid.catalog import Queue, Site
from vgrads.vgrid.offers import Knowledge, OfferRequest, OwnJobs, offer_batch_slots


def use(number, queue, submit_s, price_usd_per_hour=0.0):
    value = slot(
        f"{queue}-{number}",
        queue=queue,
        kind="batch",
        shared=queue or f"alone-{number}",
        price_usd_per_hour=price_usd_per_hour,
    )
    return SlotUse(
        slot=value,
        submit_s=submit_s,
        start_s=900.0,
        end_s=1000.0,
        probability=1.0,
        cost_usd=value.cost_usd(1000.0 - submit_s),
    )


drawn = st.lists(
    st.tuples(
        st.sampled_from(["", "p", "q"]), st.integers(0, 900), st.sampled_from([0.0, 0.0, 1.0])
    ),
    max_size=12,
)


@given(drawn)
def test_no_free_slot_is_requested_after_a_later_one_of_its_queue(rows):
    uses = [
        use(n, queue, float(submit_s), price) for n, (queue, submit_s, price) in enumerate(rows)
    ]
    ordered = order_by_queue(uses)
    assert [u.slot.id for u in ordered] == [u.slot.id for u in uses]
    for n, (before, after) in enumerate(zip(uses, ordered, strict=True)):
        assert after.submit_s <= before.submit_s
        assert after == before or (after.slot.queue and not after.slot.paid)
        assert after.cost_usd == before.cost_usd
        later = [u.submit_s for u in ordered[n + 1 :] if u.slot.shared == after.slot.shared]
        if after.slot.queue and not after.slot.paid:
            assert after.submit_s == min([before.submit_s, *later])


class OracleByJobsAhead:
    """A queue in which each own job ahead costs a tenth of the probability."""

    def group(self, procs, walltime_s, ahead=0):
        return ahead

    def probability(self, procs, walltime_s, within_s, confidence=0.95, ahead=0, submit_in_s=0.0):
        return 0.0 * within_s + 0.9 - ahead / 10


@pytest.mark.parametrize(
    ("own", "expected"), [(OwnJobs(), 5), (OwnJobs(2, 3), 2), (OwnJobs(0, 9), 0)]
)
def test_new_offers_wait_behind_own_jobs_and_respect_the_queues_limit(own, expected):
    queue = Queue(
        name="q", history=None, log_queue=None, max_procs=64, max_walltime_s=9e4, max_jobs=5
    )
    site = Site(name="s", kind="batch", procs=64, queues=(queue,))
    knowledge = Knowledge(oracles={("s", "q"): OracleByJobsAhead()}, own={("s", "q"): own})
    offers = offer_batch_slots(
        site, queue, knowledge, OfferRequest(procs=4, count=9, until_s=3600.0)
    )
    assert len(offers) == expected
    for number, offer in enumerate(offers):
        assert offer.curve.best == pytest.approx(0.9 - (own.ahead + number) / 10)


def test_own_jobs_that_wait_are_ahead_and_started_ones_count_towards_the_limit():
    uses = {u.slot.id: u for u in (use(n, "q", 0.0) for n in range(6))}
    states = (
        None,
        SlotState.REQUESTED,
        SlotState.QUEUED,
        SlotState.READY,
        SlotState.RELEASED,
        SlotState.FAILED,
    )
    slots = {name: SlotRecord(state=state) for name, state in zip(uses, states, strict=True)}
    key = uses["q-0"].slot.site, "q"
    uses = {n: replace(u, slot=replace(u.slot, site=key[0])) for n, u in uses.items()}
    assert count_own_jobs(uses, slots, ()) == {key: OwnJobs(ahead=3, total=4)}
    assert count_own_jobs(uses, slots, {key[0]}) == {key: OwnJobs(ahead=1, total=4)}
    slots["q-1"] = SlotRecord(state=SlotState.REQUESTED, closing=True)
    assert count_own_jobs(uses, slots, ()) == {key: OwnJobs(ahead=2, total=3)}


@pytest.mark.more
def test_plans_request_the_slots_of_a_queue_in_order():
    log = rescheduled(queued_log(4000))
    pairs = draw_instants(log, 2, 0, 86_400.0)
    instants = [at_s for pair in pairs for at_s in pair]
    arena = Arena(log=log, procs=most_busy(log), forecasts=forecasts_at(log, instants, AS_QUESTION))
    compared = 0
    for number, pair in enumerate(pairs):
        case = draw_case(number, 0, pair, [lead()])
        plan = plan_set(case.workflow_set, arena.grid(case), number).plan
        for queue in {u.slot.shared for u in plan.uses if u.slot.queue}:
            submits_s = [u.submit_s for u in plan.uses if u.slot.shared == queue]
            compared += len(submits_s) > 1
            assert submits_s == sorted(submits_s)
    assert compared

"""The study of bags with deadlines: its stage, its measures and its command."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from vgrads_studies.deadlines.cases import (
    SPOT,
    QueueWaits,
    StudyCase,
    StudySource,
    cases_of,
    least_s,
)
from vgrads_studies.deadlines.measures import OURS, against, fifths, totals
from vgrads_studies.deadlines.nodes import SteeringRules, StudyOutcome
from vgrads_studies.deadlines.ours import GoalSteering
from vgrads_studies.deadlines.programme import programme_case
from vgrads_studies.deadlines.rivals import DeadlineScaling, FixedSteering, PeerSteering
from vgrads_studies.deadlines.stage import BagStage
from vgrads_studies.deadlines.study import _RULES, main, outcomes_of
from vgrads_studies.spot.traces import SpotTrace

from tests.logs import make_log
from vgrads.kernel.errors import InputError
from vgrads.traces.swf import write_swf

CLOUD = StudySource(name="cloud", workers=2, most=3, price=6.0, billing_s=3600.0, boot_s=60.0)


def case_of(*sources, tasks=12, run_s=100.0, deadline_s=4000.0):
    return StudyCase(
        number=0,
        run_s=np.full(tasks, run_s),
        stated_s=run_s,
        deadline_s=deadline_s,
        probability=0.9,
        sources=sources,
        began_s={source.name: 0.0 for source in sources},
    )


def queue_of(wait_s, **rules):
    log = make_log(500, waits=np.full(500, wait_s))
    return StudySource(
        name="queue",
        workers=2,
        most=3,
        waits_s=(wait_s,),
        queue=QueueWaits(log, 8),
        **{"length_s": math.inf, **rules},
    )


class SpotSteering(FixedSteering):
    """Two spot nodes, always."""

    rules = SteeringRules()

    def nodes(self, state):
        return {f"cloud {SPOT}": 2}


def test_nodes_that_are_held_do_the_work_in_rounds_and_started_hours_are_paid():
    outcome = BagStage(case_of(CLOUD), FixedSteering(case_of(CLOUD))).simulate()
    assert outcome.in_time
    assert outcome.cost_usd == pytest.approx(3 * 6.0)
    assert outcome.node_hours == pytest.approx(3 * (60.0 + 2 * 100.0) / 3600.0)
    assert (outcome.requested, outcome.useless) == (3, 0)


def test_a_bag_that_is_not_done_at_its_deadline_ends_there():
    case = case_of(queue_of(300.0), deadline_s=450.0)
    outcome = BagStage(case, FixedSteering(case)).simulate()
    assert not outcome.in_time
    assert outcome.node_hours == pytest.approx(3 * 150.0 / 3600.0)


def test_nodes_end_with_their_jobs_and_are_requested_again():
    case = case_of(queue_of(300.0, length_s=150.0), tasks=12)
    outcome = BagStage(case, FixedSteering(case)).simulate()
    assert outcome.in_time
    assert outcome.requested == 6


def test_tasks_on_spot_nodes_that_are_taken_back_start_again():
    spot = np.array([True, False, True, True, True, True])
    source = replace(CLOUD, spot=spot, spot_price=1.0, billing_s=0.0)
    case = case_of(source, tasks=8, run_s=400.0)
    outcome = BagStage(case, SpotSteering(case)).simulate()
    # four tasks end at 460 s, four are lost at 600 s, and start again at 1,260 s or a minute later
    assert outcome.in_time
    lost_hours = 2 * 600.0 / 3600.0
    assert outcome.node_hours == pytest.approx(lost_hours + 2 * 460.0 / 3600.0, abs=0.1)
    assert outcome.cost_usd == pytest.approx(outcome.node_hours)


def test_rules_that_know_the_deadline_request_what_it_needs():
    case = case_of(CLOUD, tasks=12, deadline_s=4000.0)
    assert BagStage(case, DeadlineScaling(case)).simulate().requested == 1
    tight = case_of(CLOUD, tasks=12, deadline_s=320.0)
    assert BagStage(tight, DeadlineScaling(tight)).simulate().requested == 3


def test_a_peer_uses_on_demand_nodes_only_when_it_is_late():
    soon, late = (case_of(queue_of(wait_s), CLOUD) for wait_s in (10.0, 3900.0))
    for case, usd in ((soon, 0.0), (late, 6.0)):
        outcome = BagStage(case, PeerSteering(case, "parsl", late_cloud=True)).simulate()
        assert outcome.in_time
        assert outcome.cost_usd == pytest.approx(usd)


def test_the_decisions_of_a_dispatcher_keep_an_easy_deadline_for_less():
    case = case_of(queue_of(10.0), CLOUD, tasks=60)
    steering = GoalSteering(case)
    outcome = BagStage(case, steering).simulate()
    assert outcome.in_time
    assert steering.promise >= 0.9
    assert outcome.cost_usd == 0.0


def test_a_queue_has_the_next_wait_and_a_forecast_from_before():
    waits = np.arange(500.0)
    queue = QueueWaits(make_log(500, waits=waits), 8)
    at_s = queue.instant_s(0.5)
    past_s = queue.past_s(at_s)
    assert list(past_s) == sorted(past_s)
    assert max(past_s) <= 2.0 * queue.wait_s(at_s)
    assert queue.wait_s(at_s) > np.median(past_s)


def test_the_least_time_counts_nodes_from_their_median_waits():
    assert least_s([CLOUD], 12, 100.0) == pytest.approx(60.0 + 12 * 100.0 / 6 + 100.0)
    never = queue_of(1e6)
    assert least_s([CLOUD, never], 12, 100.0) == least_s([CLOUD], 12, 100.0)


def test_cases_are_a_function_of_the_seed():
    logs, traces = [make_log(3000, seed=1)], [SpotTrace("zone", np.arange(400) % 7 > 2)]
    first, again = (cases_of(logs, traces, 6, 4) for _ in range(2))
    assert [case.deadline_s for case in first] == [case.deadline_s for case in again]
    assert [[source.cloud for source in case.sources] for case in first[1:2]] == [[True]]


def outcome_of(in_time, usd=1.0, promise=None):
    return StudyOutcome(
        in_time=in_time,
        cost_usd=usd,
        node_hours=2.0,
        least_hours=1.5,
        requested=10,
        useless=1,
        promise=promise,
    )


def test_fifths_show_promises_that_were_not_kept():
    honest = [
        {OURS: outcome_of(n % 10 < 10 * share, promise=share)}
        for share in (0.5, 0.6, 0.7, 0.8, 0.9)
        for n in range(100)
    ]
    assert all(part.is_within for part in fifths(honest))
    boasting = [{OURS: outcome_of(n % 2 == 0, promise=0.9)} for n in range(500)]
    assert not any(part.is_within for part in fifths(boasting))


def test_rivals_that_keep_fewer_deadlines_are_no_comparison():
    cases = [
        {
            OURS: outcome_of(True, 2.0),
            "cheap": outcome_of(n > 5, 1.0),
            "dear": outcome_of(True, 4.0),
        }
        for n in range(10)
    ]
    assert against(totals(cases), "cost_usd") == ("dear", pytest.approx(0.5))


@pytest.mark.parametrize("number", range(8))
def test_plans_cost_at_most_a_twentieth_more_than_the_integer_programme(number):
    ratio = programme_case(number, seed=3).ratio
    assert ratio is None or 1.0 - 1e-6 <= ratio <= 1.05


@pytest.mark.long
def test_the_study_prints_its_measures(capsys, tmp_path):
    (tmp_path / "swf").mkdir()
    (tmp_path / "spot").mkdir()
    (tmp_path / "swf" / "made.swf").write_text(write_swf(make_log(3000, seed=2)))
    trace = {"metadata": {"gap_seconds": 600}, "data": [1, 1, 1, 0, 1, 1] * 40}
    (tmp_path / "spot" / "trace.json").write_text(json.dumps(trace))
    main([str(tmp_path), "--count", "1", "--programmes", "1", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert {row["rule"] for row in result["totals"]} == set(_RULES)
    assert sum(part["cases"] for part in result["fifths"]) == 1
    with pytest.raises(InputError, match="has no logs"):
        main([str(tmp_path / "spot")])


def test_outcomes_carry_the_promise():
    outcomes = outcomes_of(case_of(CLOUD), (OURS, "all nodes"))
    assert outcomes[OURS].promise is not None
    assert outcomes["all nodes"].promise is None

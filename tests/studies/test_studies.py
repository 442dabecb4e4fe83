"""Studies: reservations among recorded load; GridBot's tables."""

import json

import numpy as np
import pytest
from vgrads_studies.gridbot import order as gridbot_order
from vgrads_studies.gridbot import replicas as gridbot_copies
from vgrads_studies.gridbot.fleet import play_fleet
from vgrads_studies.gridbot.grid import GRIDS, Field, scaled
from vgrads_studies.gridbot.tables import main as gridbot
from vgrads_studies.promises.quality import study
from vgrads_studies.promises.quality import table as scoreboard
from vgrads_studies.promises.replication import lead, trial
from vgrads_studies.waits.varq_promises import POLICIES, VarqExtent, draw, replay, table

from tests.logs import make_log
from vgrads.bags.replicate import Pace, RunningAttempt, stragglers
from vgrads.planner.placement.replicate import by_paper

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def outcomes():
    log = make_log(8000, seed=11)
    return [
        replay(log, 200, policy, 0.75, VarqExtent(count=24, predicted=40, seed=1))
        for policy in POLICIES
    ]


def test_every_question_is_refused_or_gets_its_job(outcomes):
    assert (outcomes[0].questions, outcomes[0].kept) == (0, 0)
    for outcome in outcomes[1:]:
        assert outcome.questions == 24
        assert 0 < outcome.kept <= outcome.questions - outcome.refused
        assert outcome.idle_node_hours >= 0
        assert np.isfinite(outcome.others_wait_s)


def test_the_promise_holds_where_the_load_is_steady(outcomes):
    for outcome in outcomes[1:]:
        count = outcome.questions - outcome.refused
        assert outcome.share >= 0.75 - 3 * (0.75 * 0.25 / count) ** 0.5, (
            outcome
        )  # three standard errors


def test_a_replay_is_a_function_of_its_seed():
    log = make_log(1500, seed=2)
    extent = VarqExtent(count=12, predicted=10, seed=3)
    assert replay(log, 220, "moving", 0.5, extent) == replay(log, 220, "moving", 0.5, extent)


def test_the_table_has_a_line_for_each_policy_and_level(outcomes):
    assert table(outcomes).count("| made up |") == 3


def test_the_picture_has_a_diagram_for_each_log(outcomes, tmp_path):
    draw(outcomes, tmp_path / "varq.svg")
    drawn = (tmp_path / "varq.svg").read_text()
    assert drawn.lstrip().startswith("<?xml")
    assert "made up" in drawn


def test_replication_gets_harder_with_the_increment_and_easier_with_reliability():
    def rate(levels, increment):
        results = [trial(lead(), levels, increment, seed, by_paper) for seed in range(40)]
        assert all(factor is None or factor >= 1 for factor in results)
        return sum(factor is not None for factor in results)

    weak, strong = ([rate((p, p), step) for step in (0.1, 0.3)] for p in (0.4, 0.8))
    assert weak[0] > weak[1]
    assert strong[0] > weak[0]


def test_studies_run_by_name_and_draw(vgrads, tmp_path):
    answer = vgrads("study", "quality", "--count", 4, "--json", "--picture", tmp_path / "q.svg")
    assert answer.code == 0
    assert len(answer.json["rows"]) == 4 * 4
    assert "mean probability" in (tmp_path / "q.svg").read_text()
    cells = vgrads("study", "replication", "--trials", 1, "--json").json["rows"]
    assert {cell["increment"] for cell in cells} == {0.1, 0.2, 0.3, 0.4, 0.5}
    assert (
        "bags, bounds, deadlines, falkon, gridbot, pool, promises, quality, replication, "
        "run-times-kept, runtimes, spot, table1, timeline, varq, whatif"
    ) in " ".join(vgrads("study").out.split())
    wrong = vgrads("study", "luck")
    assert (
        wrong.code,
        (
            "one of bags, bounds, deadlines, falkon, gridbot, pool, promises, quality, "
            "replication, run-times-kept, runtimes, spot, table1, timeline, varq, whatif"
        )
        in wrong.err,
    ) == (2, True)


def test_the_table_of_plan_quality_has_a_line_for_each_policy():
    scores = study(2, [])
    assert len(scoreboard(scores).splitlines()) == 2 + 4


def test_a_tenth_of_the_jobs_of_collaborative_grids_is_preempted():
    """As the paper has it of jobs of 20 to 60 minutes (section 2.2)."""
    shares = []
    for seed in range(6):
        lengths = np.random.default_rng(seed).uniform(1200.0, 3600.0, 1500)
        field = Field(scaled(GRIDS, 0.05), seed, [lengths])
        field.add(0, 1500, {"Concurrency": "1", "Deadline": "14400"})
        field.simulate()
        field.core.state.check()
        shares.append(field.preempted_busy / 1500)
    assert 0.05 < np.mean(shares) < 0.2


def test_gridbot_rows_come_out_in_their_order():
    """No copies take longest; what is learned is sooner than what is restricted, and wastes no
    more."""
    result = gridbot_copies.table(range(40, 44), 0.05)
    hours = {name: np.mean([simulated.hours for simulated in ran]) for name, ran in result.items()}
    waste = {name: np.mean([simulated.waste for simulated in ran]) for name, ran in result.items()}
    assert hours["learned"] < hours["restrictive, restrictive"] < hours["none, permissive"]
    assert waste["learned"] <= waste["restrictive, restrictive"] <= 8.0
    assert np.mean([simulated.replicas for simulated in result["restrictive, restrictive"]]) <= 12.0
    assert hours["learned, agents with heartbeats"] < hours["restrictive, restrictive"]


def test_gridbot_bags_begin_in_the_order_of_their_ranks():
    order = gridbot_order.order(12, 60, 3, 0.05)
    assert order.in_order >= 98.0
    assert list(order.hours) == sorted(order.hours)


def test_gridbot_black_holes_long_tasks_and_shares():
    holes = gridbot_order.black_holes(40, 1, 20.0, 0.5)
    assert (holes.first, holes.healthy) == (3, 0)
    assert holes.throughput > 99.0
    assert holes.back_s <= 600.0
    assert gridbot_order.long_tasks(40, 1, "bimodal").aborted == 0
    stragglers = gridbot_order.long_tasks(40, 1, "stragglers")
    assert stragglers.straggling > 0
    assert stragglers.late_s <= 2 * stragglers.p95_s
    assert gridbot_order.shares((1, 3), 100, 2, True, 1.0) <= 5.0


def test_policies_beat_naive_dispatch_by_days():
    assert gridbot_copies.play_naive("naive", 5, 0.02) > 20 * gridbot_copies.play_naive(
        "learned", 5, 0.02
    )


def test_hosts_that_were_requested_go_with_the_work():
    fleeted = play_fleet(1, 0.02, vanish=False)
    assert fleeted.idle <= 1.0
    assert fleeted.beyond_s <= 120.0


def test_gridbot_prints_its_tables(tmp_path):
    out = tmp_path / "gridbot.json"
    gridbot(
        ["--only", "replication", "tails", "--seeds", "2", "--scale", "0.01", "--out", str(out)]
    )
    result = json.loads(out.read_text())
    assert set(result) == {"replication", "tails"}
    assert all(len(ran) == 2 for ran in result["replication"].values())


def test_a_slow_host_is_no_straggler_and_a_lost_a_single_waits_for_no_place():
    ended = [100.0 + n % 20 for n in range(200)]
    slow = RunningAttempt(task=1, age_s=190.0, error_rate=0.02, nodes=1, pace=2.0)
    late = RunningAttempt(task=2, age_s=190.0, error_rate=0.02, nodes=1)
    fresh = RunningAttempt(task=3, age_s=0.0, error_rate=0.02, nodes=1)
    abandoned = [600.0] * 10
    assert stragglers(ended, abandoned, [slow, late, fresh], spare=5) == [2]
    assert stragglers(ended, abandoned, [slow, late, fresh], spare=0) == [2]


def test_the_pace_of_a_host_is_learned_from_its_ends():
    pace = Pace()
    for _ in range(30):
        pace = pace.after(2.0)
    assert pace.value == pytest.approx(2.0, abs=0.05)
    assert Pace().after(2.0).value == pytest.approx(1.5)

"""Studies: reservations among recorded load."""

import numpy as np
import pytest

from planner.replicate import by_paper
from studies.quality import study
from studies.quality import table as scoreboard
from studies.replication import lead, trial
from studies.varq_promises import POLICIES, Extent, draw, replay, table
from tests.logs import make_log


@pytest.fixture(scope="module")
def outcomes():
    log = make_log(8000, seed=11)
    return [
        replay(log, 200, policy, 0.75, Extent(count=40, foretold=80, seed=1)) for policy in POLICIES
    ]


def test_every_question_is_refused_or_gets_its_job(outcomes):
    assert (outcomes[0].asked, outcomes[0].kept) == (0, 0)
    for outcome in outcomes[1:]:
        assert outcome.asked == 40
        assert 0 < outcome.kept <= outcome.asked - outcome.refused
        assert outcome.idle_node_hours >= 0
        assert np.isfinite(outcome.others_wait_s)


def test_the_promise_is_kept_where_the_load_is_steady(outcomes):
    for outcome in outcomes[1:]:
        count = outcome.asked - outcome.refused
        assert outcome.share >= 0.75 - 3 * (0.75 * 0.25 / count) ** 0.5, (
            outcome
        )  # three standard errors


def test_a_replay_is_a_function_of_its_seed():
    log = make_log(1500, seed=2)
    extent = Extent(count=40, foretold=30, seed=3)
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
        found = [trial(lead(), levels, increment, seed, by_paper) for seed in range(40)]
        assert all(factor is None or factor >= 1 for factor in found)
        return sum(factor is not None for factor in found)

    weak, strong = ([rate((p, p), step) for step in (0.1, 0.3)] for p in (0.4, 0.8))
    assert weak[0] > weak[1]
    assert strong[0] > weak[0]


def test_studies_run_by_name_and_draw(vgrads, tmp_path):
    answer = vgrads("study", "quality", "--count", 4, "--json", "--picture", tmp_path / "q.svg")
    assert answer.code == 0
    assert len(answer.json["rows"]) == 20
    assert "mean probability" in (tmp_path / "q.svg").read_text()
    cells = vgrads("study", "replication", "--trials", 1, "--json").json["rows"]
    assert {cell["increment"] for cell in cells} == {0.1, 0.2, 0.3, 0.4, 0.5}
    assert (
        "bags, bounds, falkon, promises, quality, replication, table1, timeline, varq, whatif"
        in vgrads("study").out
    )
    wrong = vgrads("study", "luck")
    assert (
        wrong.code,
        "one of bags, bounds, falkon, promises, quality, replication, table1, timeline, varq, whatif"
        in wrong.err,
    ) == (2, True)


def test_the_table_of_plan_quality_has_a_line_for_each_policy():
    scores = study(2, [])
    assert len(scoreboard(scores).splitlines()) == 2 + 5

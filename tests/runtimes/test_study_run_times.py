"""Studies of learned run times: small, on what is recorded, and their arithmetic."""

import pytest

from vgrads.research.runtimes.pilots import pilot_gains
from vgrads.research.runtimes.promises import SetOutcome, _row, rows

pytestmark = pytest.mark.more


def test_gap_and_brier_score_are_those_of_hand():
    set_outcomes = [
        SetOutcome("a", 0.95, True),
        SetOutcome("a", 0.95, False),
        SetOutcome("b", 0.15, False),
        SetOutcome("b", 0.15, False),
    ]
    row = _row("scores", "joint", set_outcomes)
    assert (row.sets, row.groups, row.promised, row.kept) == (4, 2, 0.55, 0.25)
    assert row.gap == pytest.approx((0.9 + 0.3) / 4, abs=1e-3)
    assert row.brier == pytest.approx((0.0025 + 0.9025 + 2 * 0.0225) / 4, abs=1e-3)


def test_every_condition_is_there(shared, monkeypatch):
    monkeypatch.setattr("vgrads.research.runtimes.promises.workflows", lambda _: ("bacass",))
    result = rows(shared / "nextflow", 1)
    assert {(row.learned, row.spread) for row in result} == {
        (way, spread)
        for way in ("scores", "others")
        for spread in ("joint", "alone", "point", "control")
    }
    assert all(0 <= row.gap <= 1 and 0 < row.sets <= row.groups for row in result)


def test_pilots_narrow_the_interval_and_it_stays_true(shared):
    rows = {(row.workflow, row.pilots): row for row in pilot_gains(shared)}
    for name in ("atacseq", "chipseq", "bacass"):
        row = rows[f"{name}, all sizes", "whole"]
        assert row.ratio < 0.7 and row.spent <= 0.07
        assert row.inside_after == row.sets
    alone = rows["helloworld-chain-5-chameleon", "whole"]  # a fifth of the work each
    assert (alone.number, alone.spent, alone.ratio) == (0.0, 0.0, 1.0)

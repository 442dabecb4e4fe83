"""Backtests: scores, coverage, the report."""

import numpy as np
import pytest

from tests.logs import make_log
from vgrads.portal.charts.backtest import write_report
from vgrads.qbets.backtest import backtest, find_worst_window, pinball
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import read_history


def test_scores():
    waits, bounds = np.array([0.0, 10.0, 20.0]), np.array([10.0, 10.0, 10.0])
    assert pinball(waits, bounds, 0.9) == pytest.approx((0.1 * 10 + 0 + 0.9 * 10) / 3)
    retained = np.array([True] * 500 + [False] * 250 + [True] * 500)
    assert find_worst_window(retained) == 0.5
    assert find_worst_window(np.array([True, False])) == 0.5


@pytest.mark.parametrize("method", ["bmbp", "qbets"])
def test_coverage_of_independent_waits(method):
    row = backtest(make_log(20_000, seed=1), "made up", settings=Settings(method=method)).row()
    assert 0.95 <= row.coverage <= 0.99
    assert row.jobs == row.scored + row.unscored == 20_000
    assert row.worst_window_coverage <= row.coverage


def test_a_regime_change_is_survived():
    calm, busy = make_log(3000, seed=1), make_log(3000, seed=2, scale=6000.0)
    waits = np.concatenate([calm.wait_s, busy.wait_s])
    log = make_log(6000, seed=3, waits=waits)
    trial = backtest(log, "shift")
    retained = log.wait_s <= trial.issued_s
    assert trial.predictor.change_points
    assert retained[4500:].mean() >= 0.93


def test_rows_by_cluster_add_up():
    trial = backtest(make_log(5000, seed=1), "made up")
    assert sum(row.scored for row in trial.cluster_rows()) == trial.row().scored


def test_a_history_too_short_to_score_says_so():
    row = backtest(make_log(10), "short").row()
    assert (row.scored, row.unscored, row.coverage) == (0, 10, None)


def test_the_report_is_a_single_page_with_pictures(tmp_path):
    trials = [backtest(make_log(3000, seed=n), f"log {n}") for n in (1, 2)]
    write_report(tmp_path / "report.html", trials)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 1 + 2 * len(trials)
    assert "log 2" in page
    assert "src=" not in page.replace("xlink:href", "")
    worst = min(trials, key=lambda trial: trial.row().coverage)
    kept = "backtests kept their bounds as often as stated, within 0.01; the lowest is"
    assert f"{kept} {worst.row().history}" in page
    assert "prefers-color-scheme:dark" in page


REAL = [
    "KTH-SP2-1996-2.1-cln",
    "SDSC-SP2-1998-4.2-cln",
    "CERIT-SC-wagap-2013-norm",
    "UniLu-Gaia-2014-1",
]


@pytest.mark.parametrize("name", REAL)
def test_coverage_on_real_logs(shared, name):
    log = read_history(shared / "swf" / f"{name}.swf.gz")
    rows = {
        method: backtest(log, name, settings=Settings(method=method)).row()
        for method in ("bmbp", "qbets")
    }
    assert rows["qbets"].jobs == log.started.sum()
    assert rows["qbets"].coverage >= 0.95
    assert rows["qbets"].pinball_s < rows["bmbp"].pinball_s

"""The stored replay of a collected history continues when the next collection finds more jobs."""

import time
from dataclasses import replace

import pytest

from tests.portal.forecasts.slurm_commands import HEADER, use_commands
from tests.qbets.test_state import simulated
from vgrads.api.queues.forecast_cache import store, stored
from vgrads.api.queues.histories import AS_QUESTION, cached_forecast, replay_keys
from vgrads.api.queues.history_files import open_history
from vgrads.api.queues.issued import IssuedForecast
from vgrads.portal.jobs.forecasts.scoring import score_queue
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.reading.sites import read_stored_catalog
from vgrads.qbets.state_forecast import find_present, forecast_state
from vgrads.qbets.state_predictor import StatePredictor

SITES = """
[[site]]
name = "cluster"
kind = "batch"
procs = 64
driver = "slurm"
[[site.queue]]
name = "batch"
"""
SINFO = "#!/bin/sh\necho 'batch|up|1-00:00:00|64/0/0/64|n[1-4]'\n"
BEGAN_S = 1_700_000_000
SETTINGS = replace(AS_QUESTION, knows_queue=False)
"""Those of a question that names no queue."""
MARK = "continued"
"""Added to a stored replay: only a replay that continues it has the same."""


def accounting(log, now_s, began_s=BEGAN_S):
    """What sacct prints at an instant: waiting jobs without a start, running ones without an
    end."""
    lines = [HEADER]
    for n in range(int((log.submit_s <= now_s).sum())):
        start_s, end_s = log.start_s[n], log.start_s[n] + log.run_s[n]
        start = int(began_s + start_s) if start_s <= now_s else "Unknown"
        end = int(began_s + end_s) if end_s <= now_s else "Unknown"
        state = "PENDING" if start == "Unknown" else "RUNNING" if end == "Unknown" else "COMPLETED"
        submit_s, procs = int(began_s + log.submit_s[n]), log.procs[n]
        limit = f"{max(1, int(log.request_s[n] // 60))}"
        lines.append(
            f"{n}|u{log.user[n]}|a|batch|{submit_s}|{submit_s}|{start}|{end}|{state}|{limit}|1|"
            f"{procs}|{procs}"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture
def collect(vgrads, tmp_path, monkeypatch):
    """Return the collection of a log up to an instant; it returns the history's file."""
    use_commands(tmp_path, monkeypatch, SINFO)
    (tmp_path / "sites.toml").write_text(SITES)
    assert vgrads("sites", "add", tmp_path / "sites.toml").code == 0

    def collected(log, now_s, began_s=BEGAN_S):
        (tmp_path / "sacct.txt").write_text(accounting(log, now_s, began_s))
        assert vgrads("sites", "collect", "cluster", "--since", "1d").code == 0
        return read_stored_catalog().site("cluster").queues[0].history

    return collected


def mark_stored(log):
    """Mark every stored replay of a history; return how many there are."""
    marked = 0
    for key in replay_keys(log, SETTINGS, log.end_s).values():
        replay = stored(key)
        if isinstance(replay, StatePredictor):
            assert replay.resumed(log, SETTINGS, log.end_s)
            replay.answered[MARK] += 1
            store(key, replay)
            marked += 1
    return marked


@pytest.mark.more
def test_a_second_collection_continues_the_stored_replay(collect):
    whole = simulated(6000)
    first_s, second_s = float(whole.submit_s[5000]), float(whole.submit_s[5100])
    before = collect(whole, first_s)
    log = open_history(before)
    cached_forecast(before, None, log.end_s)
    assert mark_stored(log) == 4
    after = collect(whole, second_s)
    assert after != before  # a new file, named after its content
    grown = open_history(after)
    assert len(grown) > len(log)
    forecast = cached_forecast(after, None, grown.end_s)
    latest = stored(replay_keys(grown, SETTINGS, grown.end_s)["end"])
    assert latest.now_s == grown.end_s
    assert latest.answered[MARK] == 1
    fresh = forecast_state(grown, grown.end_s, SETTINGS)
    fresh = fresh.with_queue(find_present(grown, SETTINGS))
    for shape in ((1, 600.0), (8, 3600.0), (60, 20_000.0)):
        expected = fresh.bounds(*shape, [0.5, 0.95])
        assert forecast.bounds(*shape, [0.5, 0.95]) == pytest.approx(expected, rel=1e-6)


def test_a_history_with_other_first_jobs_is_learned_anew(collect):
    whole = simulated(6000)
    log = open_history(collect(whole, float(whole.submit_s[5000])))
    trimmed = log.select(log.submit_s > log.submit_s[10])
    keys = {repr(replay_keys(item, SETTINGS, item.end_s)["end"]) for item in (log, trimmed)}
    assert len(keys) == 2


def test_a_job_of_a_queue_in_which_nothing_happens_misses_its_bound(collect, vgrads, store):
    """Nothing is submitted, starts or ends any more, and the history does not change: it is the
    collection that goes on."""
    whole = simulated(600)
    now_s = float(whole.submit_s[500])
    history = open_history(collect(whole, now_s, time.time() - now_s - 2 * 86400.0))
    row = int(history.waiting.submit_s.argmax())
    submit_s = history.unix_start_s + float(history.waiting.submit_s[row])
    forecast = IssuedForecast(
        site="cluster",
        queue="batch",
        procs=int(history.waiting.procs[row]),
        walltime_s=float(history.waiting.request_s[row]),
        instant_s=submit_s,
        kind="bound",
        method="state",
        bounds=((0.95, 86400.0),),
    )
    records = ForecastRecords(store.engine)
    records.add([forecast])
    score_queue(records, "cluster", "batch", history)
    (before,) = records.matchable("cluster", "batch", 0.0)
    assert (before.state, before.covered) == ("open", None)
    assert vgrads("score", "cluster/batch", "--json").json["records"]["scored"] == 1
    (after,) = records.matchable("cluster", "batch", 0.0)
    assert (after.covered, after.wait_s) == (False, None)

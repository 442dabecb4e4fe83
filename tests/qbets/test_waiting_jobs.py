"""A history that is still growing: its waiting and running jobs are the queue when it was taken."""

from dataclasses import replace

import numpy as np

from tests.qbets.test_state import simulated
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state_forecast import StateForecast, find_present, make_forecast
from vgrads.traces.records import WaitingQueue

SETTINGS = Settings(method="state", knows_user=False)


def taken(log, at_s):
    """The log as a site has it at an instant, and the rows of the jobs that wait."""
    begun = log.select(log.submit_s <= at_s)
    left = begun.start_s <= at_s
    part = begun.select(left)
    runs = part.start_s + part.run_s > at_s
    part = replace(part, run_s=np.where(runs, -1.0, part.run_s))
    waits = begun.select(~left)
    names = ("submit_s", "procs", "request_s", "user", "queue")
    columns = {name: getattr(waits, name) for name in names}
    return replace(part, waiting=WaitingQueue(taken_s=at_s, is_listed=True, **columns)), len(waits)


def test_the_state_of_a_growing_history_is_that_of_the_whole_log():
    log = simulated(2000)
    at_s = float(next(s for n, s in enumerate(log.submit_s) if n > 0.8 * len(log))) + 0.5
    dump, waiting = taken(log, at_s)
    assert waiting > 3
    whole = make_forecast(log, at_s, SETTINGS)
    growing = make_forecast(dump, at_s, SETTINGS).with_queue(find_present(dump, SETTINGS))
    without = make_forecast(replace(dump, waiting=None), at_s, SETTINGS)
    assert isinstance(whole, StateForecast) and isinstance(growing, StateForecast)
    shape = (16, 7200.0)
    right, now, before = (f.features(*shape) for f in (whole, growing, without))
    assert np.isclose(right, now, rtol=0.02, equal_nan=True).mean() > 0.9
    assert (
        np.isclose(right, now, rtol=0.02, equal_nan=True).sum()
        > np.isclose(right, before, rtol=0.02, equal_nan=True).sum()
    )
    assert find_present(log, SETTINGS) is None

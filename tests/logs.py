"""Histories made up for tests."""

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.simulator.replay import Workload, replay_starts
from vgrads.traces.gwf import read_gwf_lines
from vgrads.traces.reading_options import DETECTED
from vgrads.traces.records import JobLog


def read_gwf(text, name):
    """The log of a text in the Grid Workload Format."""
    return read_gwf_lines(text.split("\n"), name, DETECTED)


def make_log(count, seed=0, waits=None, scale=600.0):
    """Independent log-normal waits; jobs every 100 s on average."""
    draws = stream(seed, "test log")
    submit = np.cumsum(draws.exponential(100.0, count)).round(1)
    drawn = (scale * np.exp(1.5 * draws.standard_normal(count))).round(1)
    procs = 2 ** draws.integers(0, 6, count)
    return JobLog(
        name="made up",
        submit_s=submit,
        wait_s=drawn if waits is None else waits,
        run_s=draws.exponential(1000.0, count).round(),
        procs=procs.astype(np.int64),
        request_s=np.full(count, 3600.0),
        user=draws.integers(0, 20, count),
        queue=np.ones(count, dtype=np.int64),
        started=np.ones(count, dtype=bool),
        max_procs=64,
        queue_names={1: "default"},
    )


def queued_log(count, seed=0, jump=1.0, request=1.0):
    """A history as EASY makes it on 64 processors; from the middle on jobs run ``jump`` times as
    long."""
    draws = stream(seed, "state log")
    submit = np.cumsum(draws.exponential(420.0, count)).round()
    run = draws.exponential(1500.0, count).round() + 1
    run[count // 2 :] *= jump
    procs = 2 ** draws.integers(0, 6, count)
    requested = run * draws.uniform(1.0, 4.0, count) * request
    load = Workload(submit_s=submit, procs=procs, request_s=requested, run_s=run)
    start = replay_starts(load, 64)
    return JobLog(
        name="simulated",
        submit_s=submit,
        wait_s=start - submit,
        run_s=run,
        procs=procs.astype(np.int64),
        request_s=requested,
        user=draws.integers(0, 30, count),
        queue=np.ones(count, dtype=np.int64),
        started=np.ones(count, dtype=bool),
        max_procs=64,
        queue_names={1: "batch"},
    )

"""One forecast: what a question is answered, what is offered, planned with and replanned with are
the same object's."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.logs import queued_log
from tests.planner.brief import make_plan
from vgrads.api.plans.planning import add_live_queues, open_grid, plan_set
from vgrads.api.plans.set_files import load_set
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.api.queues.queries import walk
from vgrads.qbets.state_forecast import StateForecast, forecast_state
from vgrads.traces.history import read_history
from vgrads.traces.swf import write_swf
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.catalog import load_catalog
from vgrads.vgrid.varq import Reservation

SHAPE = (16, 7200.0)
LOG = queued_log(2500)
_LATE = LOG.submit_s[1500:]
BUSY_S = float(_LATE[np.argmax([((LOG.submit_s <= t) & (t < LOG.start_s)).sum() for t in _LATE])])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A site with a history, a set for it."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "q.swf").write_text(write_swf(LOG))
    (folder / "sites.toml").write_text(
        '[[site]]\nname = "a"\nkind = "batch"\nprocs = 64\nslot_up = 0.9\n[[site.queue]]\n'
        'name = "q"\n'
        'history = "q.swf"\nmax_procs = 32\nmax_jobs = 4\n'
    )
    tasks = "[{id: t, runtime_s: 1200, procs: 16}]"
    (folder / "set.yaml").write_text(
        "name: s\ndeadline: 2h\nfraction: 1/2\nworkflows:\n  - {name: w, count: 2, "
        f"tasks: {tasks}}}\n"
    )
    return folder


@pytest.fixture(scope="module")
def grid(place):
    return open_grid(load_catalog(place / "sites.toml"), BUSY_S)


@pytest.fixture(scope="module")
def forecast_at(place):
    """What a backtest of the same history would ask at that instant."""
    return forecast_state(read_history(place / "q.swf"), BUSY_S, AS_QUESTION)


def test_commands_answer_what_is_offered_and_planned_with(place, grid, forecast_at, vgrads):
    planned = plan_set(load_set(place / "set.yaml")[0], grid)
    times = np.arange(0.0, 7200.0, 450.0)
    for slot in planned.snapshot.slots:
        ahead = int(slot.id.rsplit("-", 1)[1]) - 1
        chances = forecast_at.probability(slot.procs, slot.end_s, times, ahead=ahead)
        assert slot.curve.by_all(times).tolist() == pytest.approx(chances.tolist(), abs=5e-3)
    first = planned.snapshot.slots[0]
    answer = vgrads(
        "probability",
        place / "q.swf",
        "--procs",
        first.procs,
        "--walltime",
        int(first.end_s),
        "--within",
        1800,
        "--at",
        BUSY_S,
        "--json",
    )
    assert answer.json["probability"] == pytest.approx(first.curve.by(1800.0), abs=1e-9)
    assert answer.json["method"] == "state"


def test_so_many_slots_of_a_single_queue_come_as_the_last_of_them_is_foretold(place, grid):
    """Of equal requests none starts before an earlier one: k of them are there as soon as the k-th
    is."""
    slots = plan_set(load_set(place / "set.yaml")[0], grid).snapshot.slots
    assert len({slot.shared for slot in slots}) == 1
    ready = np.array([sample_availability(slot, 20_000, 5)[0] for slot in slots])
    assert (ready[1:] >= ready[:-1]).all()
    message = []
    for within_s in (60.0, 600.0, 1800.0, 3600.0):
        came = (ready <= within_s).sum(axis=0)
        message.append([slot.curve.by(within_s) for slot in slots])
        shares = [np.mean(came >= k + 1) for k in range(len(slots))]
        assert shares == pytest.approx(message[-1], abs=0.015)
    assert np.ptp(message, axis=1).max() > 0.05  # what is ahead counts


def test_trajectories_begin_with_the_answer_of_now(forecast_at):
    reservation = Reservation(procs=16, walltime_s=3600.0, start_by_s=1800.0, probability=0.9)

    class Query:
        starts = forecast_at

    path = walk(Query, reservation)
    assert path.probabilities[0] == forecast_at.probability(16, 5400.0, 1800.0)
    last = forecast_at.probability(16, 3600.0, 0.0, submit_in_s=1800.0)
    assert path.probabilities[-1] == last


def test_a_run_that_goes_on_knows_that_its_state_grows_old(grid):
    [(_, before)] = grid.forecasts.items()
    [(_, after)] = add_live_queues(grid, 3600.0).forecasts.items()
    assert isinstance(before, StateForecast)
    assert (before.age_s, after.age_s) == (0.0, 3600.0)
    later = before.probability(*SHAPE, [600.0, 3600.0], submit_in_s=3600.0)
    assert after.probability(*SHAPE, [600.0, 3600.0]).tolist() == later.tolist()


def test_more_of_own_jobs_ahead_is_never_more_probable(forecast_at):
    times = np.geomspace(1.0, 2e5, 60)
    for shape in ((1, 600.0), SHAPE, (32, 86_400.0)):
        chances = np.array([forecast_at.probability(*shape, times, ahead=n) for n in range(60)])
        assert (np.diff(chances, axis=0) <= 1e-12).all()


def test_a_promise_is_reckoned_in_other_futures_than_the_plan_was_chosen_in(place, grid):
    planned = plan_set(load_set(place / "set.yaml")[0], grid)
    first, second = (make_plan(replace(planned.snapshot, seed=seed)) for seed in (1, 2))
    assert first.promise.probability != second.promise.probability
    assert abs(first.promise.probability - second.promise.probability) < 0.05


def test_an_answer_over_rest_is_the_commands(place, forecast_at, vgrads):
    bound = vgrads(
        "bound", place / "q.swf", "--procs", 16, "--walltime", "2h", "--at", BUSY_S, "--json"
    ).json
    assert bound["bound_s"] == float(forecast_at.bounds(*SHAPE, 0.95))
    assert json.dumps(bound)

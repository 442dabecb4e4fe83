"""Texts that say what is so: offers, scores, explanations of bounds."""

import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests.conftest import DATA
from tests.logs import make_log
from vgrads.kernel.text_table import table_lines
from vgrads.operations.offers import OffersRequest
from vgrads.portal.charts.layout import planned_lanes
from vgrads.portal.cli.queues.ranking_text import score_text, scores_table
from vgrads.portal.cli.sites.offer_text import find_offer, offer_text
from vgrads.qbets.explain import _describe_feature
from vgrads.traces.swf import write_swf
from vgrads.vgrid.procure import GridOffer


@pytest.fixture(scope="module")
def offer():
    request = OffersRequest(file=DATA / "storm.grid", sites=DATA / "sites.toml", as_stated=True)
    return find_offer(request)


def shown(offer: GridOffer, width: int) -> str:
    out = Console(width=width, record=True, markup=False, highlight=False, file=None)
    with out.capture() as captured:
        for item in offer_text(offer):
            out.print(item, overflow="ignore", crop=False)
    return " ".join(captured.get().replace("│", " ").split())


@pytest.mark.parametrize("width", [50, 80])
def test_nothing_of_an_offer_is_cut_on_a_narrow_terminal(offer, width):
    text, whole = (shown(offer, columns) for columns in (width, 400))
    assert text.count("ready in time with probability 0.") == whole.count(
        "in time with probability"
    )


def test_an_offer_names_no_solver_and_mentions_only_a_gap_that_is_visible(offer):
    def last(**changes):
        groups = tuple(replace(group, **changes) for group in offer.groups)
        return str(offer_text(replace(offer, groups=groups))[-1])

    assert last(gap=0.0).endswith("the requested probability is 0.9.")
    assert last(gap=0.0).count("0.0%") == 0
    assert last(gap=0.031).endswith("A choice of slots that is better by up to 3.1% may exist.")
    assert "may exist" in last(gap=None, solver="greedy")
    assert not any(word in last(gap=0.031) for word in ("highs", "greedy"))


def test_slots_of_plans_and_offers_are_shown_with_their_likely_start(vgrads):
    """A slot that is needed late may start at once; its tasks wait until it is safe to begin."""
    plan = vgrads("plan", DATA / "lead-storm.yaml", "--as-stated").out.splitlines()
    assert plan[1].split("  ")[-1] == "tasks"
    assert "submit at  starts about  needed by  prob." in plan[1]
    assert any(re.search(r" 0s  +now  +\d+m", line) for line in plan)
    offers = vgrads("sites", "offers", DATA / "storm.grid").out
    assert offers.count(", likely ready in ") == offers.count("ready in time with probability")


def test_lanes_of_planned_slots_begin_when_they_likely_start():
    slot = {"id": "s", "procs": 4, "start_s": 14000.0, "end_s": 20000.0, "ready_p50_s": 30.0}
    others = [{**slot, "ready_p50_s": None}, {**slot, "ready_p50_s": 15000.0}]
    lanes = planned_lanes({"slots": [slot, *others]})
    assert [lane.start_s for lane in lanes] == [30.0, 14000.0, 14000.0]


def test_times_of_day_are_those_of_a_clock():
    hours = [_describe_feature("hour", h, 12.51) for h in np.linspace(0.0, 23.9999, 200)]
    assert hours[0] == "time of day, by the log's clock: 00:00, usually 12:30"
    assert hours[-1] == "time of day, by the log's clock: 23:59, usually 12:30"
    assert _describe_feature("weekday", 6.0, 0.0) == "day of the log's weeks: 7, usually 1"
    assert _describe_feature("jobs waiting", 1.0, 1200.0) == "waiting jobs: 1, usually 1,200"


WAITS = np.where(np.arange(800) % 4, 60.0, 5400.0)
LIMITED = """
[[site]]
name = "here"
kind = "batch"
procs = 64
[[site.queue]]
name = "default"
history = "{history}"
max_walltime = "3h"
"""


@pytest.mark.parametrize(
    ("start_by", "submit", "until"),
    [("6h", "in 4h 30m and request 3h 30m", "1h 30m"), ("90m", "now and request 3h 30m", "1h 30m")],
)
def test_a_reservation_says_when_to_submit_and_why_it_requests_more(
    vgrads, write, start_by, submit, until
):
    log = write("log.swf", write_swf(make_log(800, waits=WAITS)))
    question = ("--procs", 4, "--walltime", "2h", "--start-by", start_by, "--method", "bmbp")
    text = " ".join(vgrads("trajectory", log, *question).out.split())
    begins = start_by.replace("90m", "1h 30m")
    assert re.match(
        rf"Submit {submit}: with probability 0\.\d+ or more, the job has its processors when the "
        rf"reservation begins, {begins} from now\. It may get them as soon as it is submitted, and "
        rf"its request must last until the reservation ends: {until} until it begins, in which the "
        r"processors idle at worst, and its own 2h\.",
        text,
    ), text
    answer = vgrads("trajectory", log, *question, "--json").json
    assert answer["walltime_s"] == 7200 + 5400


def test_a_job_submitted_when_its_reservation_begins_requests_its_own_time(vgrads, write):
    log = write("log.swf", write_swf(make_log(800, waits=np.zeros(800))))
    answer = vgrads("trajectory", log, "--start-by", "1h", "--method", "bmbp")
    text = " ".join(answer.out.split())
    assert text.startswith("Submit in 1h and request 1h: ")
    assert "as soon as it is submitted" not in text


def test_a_reservation_that_cannot_be_promised_says_what_is_best(vgrads, write):
    log = write("log.swf", write_swf(make_log(800, waits=WAITS)))
    sites = write("sites.toml", LIMITED.format(history=log))
    assert vgrads("sites", "add", sites).code == 0
    question = ("--procs", 4, "--walltime", "2h", "--start-by", "6h", "--method", "bmbp")
    text = " ".join(vgrads("trajectory", "here/default", *question).out.split())
    assert re.match(
        r"No submission reaches probability 0\.9 that the job has its processors when the "
        r"reservation begins, 6h from now\. The best, to submit in 5h \d+m and request 2h \d+m, "
        r"reaches 0\.7\d+\. It may get them .*, and its own 2h\. If it is submitted earlier than "
        r"in 5h, it must request more than the queue permits \(3h\)\.",
        text,
    ), text
    never = write("never.swf", write_swf(make_log(800, waits=np.full(800, 50_000.0))))
    text = " ".join(vgrads("trajectory", never, *question).out.split())
    assert text.startswith("No submission reaches probability 0.9 that the job has its processors")
    assert "6h from now: each has probability 0." in text


def entry(site, queue, coverage, bounds):
    quantiles = [
        {"quantile": q, "coverage": coverage, "bounds": bounds, "pinball_s": None}
        for q in (0.5, 0.75, 0.9, 0.95)
    ]
    states = ("issued", "scored", "open", "without_start", "retrospective")
    records = dict.fromkeys(states, bounds)
    return {
        "site": site,
        "queue": queue,
        "records": records,
        "quantiles": quantiles,
        "views": [{"view": None, "scored": bounds, "bounds": bounds, "coverage": coverage}],
        "watched": {"bounds": bounds, "covered": bounds, "unknown": 0, "hidden": 0},
        "warning": None,
        "slurm": None,
        "reliability": [{"stated": 0.95, "observed": 0.0, "statements": bounds}],
    }


def test_scores_of_few_jobs_are_counts_and_logs_keep_their_names():
    long = "/home/somebody/with/a/long/folder/"
    queues = [
        entry(f"{long}kittyhawk-of-last-winter.swf.gz", "*", 0.0, 1),
        entry("/a/same.swf", "*", None, 0),
        entry("/b/same.swf", "*", 0.5, 200),
        entry("cluster", "batch", 1.0, 2),
    ]
    promises = {"promises": 0, "kept": 0, "open": 0}
    lines = table_lines(scores_table({"queues": queues, "promises": promises}), 80)
    rows = [line.split() for line in lines[2:6]]
    assert rows[0][:1] == ["kittyhawk-of-last-winter.swf.gz"]
    assert rows[0][-3:] == ["0", "of", "1"]
    assert [row[0] for row in rows[1:3]] == ["/a/same.swf", "/b/same.swf"]
    assert (rows[1][-1], rows[2][-1]) == ("–", "0.500")
    assert rows[3][:2] == ["cluster", "batch"]
    assert rows[3][-3:] == ["2", "of", "2"]
    assert "probability 0.95: 0 of 1 statement came true" in score_text(queues[0])

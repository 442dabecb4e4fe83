"""Bags and logs: what is drawn, written, read, fitted, drawn from the fit and played; hours of the
day; bad input."""

import json
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from tests.logs import read_gwf
from vgrads.kernel.errors import InputError
from vgrads.traces.gwf import write_gwf
from vgrads.traces.history import read_history
from vgrads.traces.swf import read_swf, write_swf
from vgrads.workloads.answers import policies
from vgrads.workloads.distributions import stated
from vgrads.workloads.extract import extract_bags
from vgrads.workloads.fit import fit_bags, fit_users
from vgrads.workloads.model import DAY_S, LONGEST_S, MODELS, Target, draw_bags
from vgrads.workloads.models import CHARACTERISTICS
from vgrads.workloads.scheduling import SCHEDULINGS, scheduling_named
from vgrads.workloads.system import parse_clusters

AVERAGE = MODELS["average"]
JOB = "{n} {at} 0 {run} 1 -1 -1 1 -1 -1 1 {user} -1 -1 1 -1 -1 -1"


def swf(jobs, *header):
    """A log of (submit, run time, user)."""
    rows = [JOB.format(n=n, at=at, run=run, user=user) for n, (at, run, user) in enumerate(jobs, 1)]
    return "\n".join([*(f"; {line}" for line in header), *rows]) + "\n"


@pytest.fixture
def drawn(vgrads, tmp_path):
    """A generated log of a few hundred bags."""
    out = tmp_path / "bags.swf"
    created = vgrads("bags", "generate", "--load", ".5", "--procs", 100, "-o", out, "--json")
    assert created.code == 0
    return out, created.json


# the bag that a job is of


@pytest.mark.parametrize(("write_log", "read_log"), [(write_swf, read_swf), (write_gwf, read_gwf)])
def test_bags_that_were_written_are_the_bags_that_are_read(write_log, read_log):
    """Two bags of one user at one instant are two; a pause within a bag does not end it."""
    bags = draw_bags(AVERAGE, Target(load=0.7, capacity=120.0), seed=4)
    log = read_log(write_log(bags.as_log("drawn")), "drawn")
    result = extract_bags(log)
    assert result.sizes.tolist() == bags.sizes.tolist()
    assert result.runtime_s == pytest.approx(np.ceil(bags.runtime_s))
    assert np.diff(result.submit_s) == pytest.approx(np.diff(bags.submit_s), abs=2e-3)
    together = bags.user[:, None] == bags.user[None, :]
    assert ((result.user[:, None] == result.user[None, :]) == together).all()
    assert fit_users(result) == pytest.approx(fit_users(bags))
    before, after = fit_bags(bags), fit_bags(result, log.local_s(result.submit_s))
    assert str(after["size"].best.distribution) == str(before["size"].best.distribution)
    for name in (
        "inter-arrival",
        "daily cycle",
        "run time",
    ):  # variability of whole seconds is another
        assert len(after[name].values) == pytest.approx(len(before[name].values), rel=0.02)
        assert np.median(after[name].values) == pytest.approx(
            np.median(before[name].values), abs=0.1
        )


def test_a_log_without_bags_of_its_own_and_a_stated_gap():
    bags = draw_bags(AVERAGE, Target(load=0.4, capacity=60.0), seed=1)
    log = bags.as_log("drawn")
    by_gap = extract_bags(replace(log, bag=None))
    assert len(by_gap) < len(bags)
    assert extract_bags(log, gap_s=120.0).sizes.tolist() == by_gap.sizes.tolist()
    plain = read_swf(write_swf(replace(log, bag=None)), "x")
    assert plain.bag is None
    assert extract_bags(log.select(log.user >= 0)).sizes.tolist() == bags.sizes.tolist()
    numberless = replace(log, bag=np.full(len(log), -1))
    assert extract_bags(numberless).sizes.tolist() == [1] * len(log)


def test_bags_are_as_many_as_jobs():
    log = draw_bags(AVERAGE, Target(load=0.4, capacity=60.0), seed=1).as_log("drawn")
    log.check()
    with pytest.raises(AssertionError, match="length"):
        replace(log, bag=log.bag[1:]).check()


@pytest.mark.long
def test_generate_fit_generate_gives_the_same_kind_of_workload(vgrads, tmp_path, drawn):
    out, created = drawn
    fitted = vgrads("bags", "fit", out, "--json")
    assert (fitted.json["bags"], fitted.json["tasks"]) == (created["bags"], created["tasks"])
    model = tmp_path / 'a b"c.json'
    model.write_text(fitted.out)
    again = tmp_path / "again.swf"
    args = ("--load", ".5", "--procs", 100, "--days", 4, "--model", model)
    assert vgrads("bags", "generate", *args, "-o", again).code == 0
    before, after = (
        fit_bags(extract_bags(read_history(path)))["run time"].values for path in (out, again)
    )
    assert after.mean() == pytest.approx(before.mean(), abs=0.3)
    assert after.std() == pytest.approx(before.std(), rel=0.15)
    simulated = vgrads("bags", "simulate", "--model", model, "--days", ".1", "--clusters", "64x1")
    assert simulated.code == 0


@pytest.mark.more
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "family", "parameters"),
    [
        ("size", "normal", (1.0, 1e308)),
        ("inter-arrival", "normal", (1.0, -1e308)),
        ("variability", "log-normal", (800.0, 900.0)),
        ("run time", "normal", (1.0, 1e308)),
        ("daily cycle", "Weibull", (1e300, 1e-300)),
        ("daily cycle", "normal", (1e-9, 1e9)),
    ],
)
def test_a_fit_with_the_wildest_tails_can_be_drawn_from(name, family, parameters):
    field = CHARACTERISTICS[name]
    model = replace(AVERAGE, **{field: stated(family, parameters)})
    bags = draw_bags(model, Target(load=0.5, capacity=20.0), seed=0)
    bags.check()
    assert bags.runtime_s.max() <= LONGEST_S
    assert np.isfinite(bags.submit_s).all()


def test_a_fit_that_says_nothing_of_use(vgrads, tmp_path, drawn):
    message = json.loads(vgrads("bags", "fit", drawn[0], "--json").out)

    def refused(change):
        document = json.loads(json.dumps(message))
        change(document)
        path = tmp_path / "fit.json"
        path.write_text(json.dumps(document))
        answer = vgrads("bags", "generate", "--model", path, "-o", tmp_path / "x.swf")
        assert answer.code == 2
        assert "fit.json" in answer.err
        return answer.err

    def first(document):
        return document["characteristics"]["size"]["fits"][0]

    assert "characteristics.size" in refused(lambda d: d["characteristics"].pop("size"))
    assert "unknown family" in refused(lambda d: first(d).update(family="Cauchy"))
    assert "characteristics.size" in refused(lambda d: first(d).update(parameters=[-1.0, 2.0]))
    assert "finite" in refused(lambda d: first(d).update(parameters=[1.0] * 4))
    assert "users" in refused(lambda d: d.pop("users"))
    for text, word in (("", "empty"), ("{", "parsed"), ("[]", "mapping")):
        path = tmp_path / "broken.json"
        path.write_text(text)
        answer = vgrads("bags", "generate", "--model", path, "-o", tmp_path / "x.swf")
        assert (answer.code, word in answer.err) == (2, True)
    with pytest.raises(InputError, match="invalid parameters of the hyper-exponential"):
        stated("hyper-exponential", (1.5, 1.0, 2.0))
    assert stated("normal", (1.0, -3.0)).median() == -3.0


# hours of the day


def test_the_hours_of_a_day_are_those_of_the_logs_zone():
    """Summer time too: noon in San Diego is 20 h UTC in winter and 19 h in summer."""
    winter, summer = 946_756_800, 962_478_000  # noon there on 1 January and on 1 July 2000
    jobs = [(0, 5, 1), (summer - winter, 5, 2)]
    header = (f"UnixStartTime: {winter}", "TimeZone: -28800", "TimeZoneString: US/Pacific")
    log = read_swf(swf(jobs, *header), "x")
    assert (log.local_s(log.submit_s) % DAY_S / 3600).tolist() == [12.0, 12.0]
    fixed = read_swf(swf(jobs, *header[:2]), "x")
    assert (fixed.local_s(fixed.submit_s) % DAY_S / 3600).tolist() == [12.0, 11.0]
    utc = read_swf(swf(jobs, header[0]), "x")
    assert (utc.local_s(utc.submit_s) % DAY_S / 3600).tolist() == [20.0, 19.0]
    for item, zone in (
        (log, ZoneInfo("US/Pacific")),
        (fixed, timezone(timedelta(hours=-8))),
        (utc, UTC),
    ):
        assert item.zone == zone == read_swf(write_swf(item), "x").zone
        assert item.warnings == ()


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "America", "x\x00y"])
def test_a_zone_that_there_is_not_is_reported_and_does_not_stop_the_reading(vgrads, write, name):
    jobs = [(600 * n, 10 + n, n % 3) for n in range(9)]
    log = read_swf(swf(jobs, f"TimeZoneString: {name}"), "x")
    assert log.zone == UTC
    assert "time zone" in log.warnings[0]
    assert read_swf(swf(jobs, f"TimeZoneString: {name}", "TimeZone: 3600"), "x").warnings == ()
    huge = read_swf(swf(jobs, "TimeZone: 99999999"), "x")
    assert huge.zone == UTC


def test_the_fit_of_a_daily_cycle_looks_at_local_hours(vgrads, write):
    """Bags from nine to five in Chicago: the fitted cycle has its middle there, not six hours
    later."""
    draws = np.random.default_rng(0)
    jobs, start = [], 1_231_135_200  # midnight in Chicago
    for day in range(12):
        for at in np.sort(draws.uniform(9, 17, 40)) * 3600:
            jobs += [
                (int(day * DAY_S + at) + k, int(draws.integers(5, 900)), int(draws.integers(0, 4)))
                for k in range(int(draws.integers(1, 5)))
            ]
    jobs.sort()
    zone = (f"UnixStartTime: {start}", "TimeZoneString: America/Chicago")
    path = write("chicago.swf", swf(jobs, *zone))
    result = vgrads("bags", "fit", path, "--json").json["characteristics"]
    normal = next(f for f in result["daily cycle"]["fits"] if f["family"] == "normal")
    assert normal["parameters"][1] / 2 == pytest.approx(13.0, abs=0.3)
    in_utc = vgrads("bags", "fit", write("utc.swf", swf(jobs, zone[0])), "--json").json
    assert (
        result["inter-arrival"]["values"] > 2 * in_utc["characteristics"]["inter-arrival"]["values"]
    )


def test_a_recorded_daily_cycle_fits_better_by_its_own_clock(shared):
    log = read_history(shared / "swf" / "SDSC-SP2-1998-4.2-cln.swf.gz")
    bags = extract_bags(log)
    here = fit_bags(bags, log.local_s(bags.submit_s))["daily cycle"].best.d
    utc = fit_bags(bags, log.unix_start_s + bags.submit_s)["daily cycle"].best.d
    assert here < utc / 2


# a log, a system, all policies


@pytest.mark.more
def test_all_policies_are_played_for_a_log(vgrads, drawn):
    out, created = drawn
    message = vgrads("bags", "simulate", out, "--clusters", "64x1.0,32x1.5", "--json").json
    assert (message["tasks"], message["processors"]) == (created["tasks"], 96)
    assert message["clusters"] == [{"procs": 64, "speed": 1.0}, {"procs": 32, "speed": 1.5}]
    names = [(row["selection"], row["scheduling"]) for row in message["policies"]]
    assert len(set(names)) == len(names) == 7 * 7 + 2
    assert {scheduling for _, scheduling in names} == set(SCHEDULINGS) - {"WQR-1"}
    spans = [row["makespan_s"] for row in message["policies"]]
    assert spans == sorted(spans)
    item = vgrads(
        "bags",
        "simulate",
        out,
        "--clusters",
        "64x1.0,32x1.5",
        "--selection",
        "S-BoT",
        "--scheduling",
        "FPF",
        "--json",
    ).json
    assert item["policies"] == [
        row
        for row in message["policies"]
        if (row["selection"], row["scheduling"]) == ("S-BoT", "FPF")
    ]
    assert 0 < item["policies"][0]["utilisation"] < 1
    flock = vgrads(
        "bags", "simulate", out, "--clusters", "64x1,32x1.5", "--architecture", "fcondor", "--json"
    ).json
    assert [row["scheduling"] for row in flock["policies"]].count("FPLT") == len(
        flock["policies"]
    ) / 3


@pytest.mark.more
def test_a_person_reads_which_policy_is_best(vgrads, write):
    jobs = [(0, 100, 1), (0, 50, 1), (30, 20, 2), (400, 60, 2)]
    path = write('a b"c.swf', swf(jobs))
    shown = vgrads("bags", "simulate", path, "--clusters", "2x1")
    assert shown.code == 0
    for word in ("Lowest average makespan", "S-U-GRR FPLT", "2 of speed 1", 'a b"c.swf', "load"):
        assert word in shown.out.replace("\n", "")
    text = vgrads("bags", "simulate", "--load", ".4", "--days", ".02", "--clusters", "300x2").out
    assert "bags of 2–4" in text
    assert "2 and more" not in text
    assert "utilisation" in text.splitlines()[0]


def test_a_log_of_a_single_job(vgrads, write):
    path = write("one.swf", swf([(7, 100, 1)]))
    message = vgrads("bags", "simulate", path, "--clusters", "4x2", "--json").json
    assert message["load"] is None
    assert {row["makespan_s"] for row in message["policies"]} == {50.0}
    assert message["policies"][0]["by_size"] == [
        {"from": 1, "to": 1, "makespan_s": 50.0, "length": 0.5}
    ]
    assert "all at once" in vgrads("bags", "simulate", path, "--clusters", "4x2").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--clusters", "12y3"), "'12y3'"),
        (("--clusters", ""), "--clusters"),
        (("--clusters", "0x1.0"), "at least one"),
        (("--clusters", "4x0"), "speeds"),
        (("--clusters", "4x1,"), "PROCSxSPEED"),
        (("--clusters", "4xinf"), "'4xinf'"),
        (("--clusters", "999999999x1"), "1,000,000"),
        (("--clusters", "4x-1"), "'4x-1'"),
        ((), "--clusters"),
        (("--clusters", "4x1", "--load", ".5"), "--load"),
        (("--clusters", "4x1", "--model", "x"), "--model"),
        (("--clusters", "4x1", "--selection", "x"), "S-BoT"),
        (("--clusters", "4x1", "--scheduling", "x"), "FPLT"),
        (("--clusters", "4x1", "--architecture", "x"), "csp"),
        (("--clusters", "4x1", "--gap", "x"), "--gap"),
        (("--clusters", "4x1,2x2", "--architecture", "sep-c"), "sep-c"),
    ],
)
def test_what_cannot_be_played_is_reported_in_a_line(vgrads, write, arguments, message):
    path = write("log.swf", swf([(0, 100, 1), (5, 30, 1)]))
    answer = vgrads("bags", "simulate", path, *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("; MaxProcs: 4\n", "history"),
        (swf([(0, 0, 1)]), "ran"),
        (swf([(0, 9, -1)]), "users"),
    ],
)
def test_logs_without_bags(vgrads, write, text, message):
    answer = vgrads("bags", "simulate", write("log.swf", text), "--clusters", "4x1")
    assert answer.code == 2
    assert "log.swf" in answer.err
    assert message in answer.err
    assert vgrads("bags", "simulate", "--gap", "60s").code == 2


def test_a_folder_or_a_seed_below_zero(vgrads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("simulate", ".", "--clusters", "4x1"),
        ("simulate", tmp_path, "--clusters", "4x1"),
        ("fit", "."),
        ("generate", "-o", "x.swf", "--seed", -1),
    ):
        answer = vgrads("bags", *arguments)
        assert answer.code == 2
        assert "Traceback" not in answer.err
    assert vgrads("study", "bags", "--processes", 0).code == 2


def test_speeds_may_be_left_out():
    system = parse_clusters("128, 64x1.5,2x.5", "--clusters")
    assert system.procs.tolist() == [128, 64, 2]
    assert system.speed.tolist() == [1.0, 1.5, 0.5]


def test_policies_are_distinguished():
    """Equal words for equal policies only: RR is WQR-1 and says so."""
    payload = policies()
    for kind in ("selection", "scheduling"):
        abouts = [row["about"] for row in payload[kind]]
        assert len(set(abouts)) == len(abouts)
    assert "3 times" in scheduling_named("WQR-3").about

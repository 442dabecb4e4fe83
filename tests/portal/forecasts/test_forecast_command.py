"""``vgrads forecast``: one question, with the answers of bound, probability and trajectory."""

import pytest

from tests.interface.conftest import LOG

JOB = (LOG, "--procs", 16, "--walltime", "2h", "--method", "qbets")


def test_its_bounds_and_probabilities_are_those_of_the_single_questions(vgrads):
    answer = vgrads("forecast", *JOB, "--quantile", ".95", "--within", "30m", "--json").json
    bound = vgrads("bound", *JOB, "-p", ".95", "--json").json
    chance = vgrads("probability", *JOB, "--within", "30m", "--json").json
    assert answer["bounds"] == [{"quantile": 0.95, "bound_s": bound["bound_s"]}]
    assert answer["curve"] == [{"within_s": 1800.0, "probability": chance["probability"]}]
    assert (answer["method"], answer["jobs"]) == (bound["method"], bound["jobs"])
    assert answer["reading"] == bound["reading"]
    assert answer["best_submission"] is None


def test_with_a_start_it_says_when_to_submit(vgrads):
    answer = vgrads("forecast", *JOB, "--start-by", "6h", "--json").json
    best = answer["best_submission"]
    assert best["meets_request"] and 0 <= best["submit_in_s"] < 6 * 3600
    text = vgrads("forecast", *JOB, "--start-by", "6h").out
    assert "Submit in" in text and "starts within" in text and "95%" in text


def test_a_start_that_cannot_be_reached_is_said(vgrads):
    text = vgrads("forecast", *JOB, "--start-by", "1s", "-p", ".9999").out
    assert "No submission has the requested probability" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--quantile", "2"), "--quantile: 2 is outside"),
        (("--within", "soon"), "--within: 'soon'"),
        (("--start-by", "60d"), "--start-by: '60d' must be at most 31d"),
        (("--procs", "9999"), "--procs: 9,999 processors"),
        (("--methode", "qbets"), "--methode: no such option; did you mean '--method'?"),
    ],
)
def test_wrong_options_are_refused_by_name(vgrads, options, words):
    answer = vgrads("forecast", LOG, *options)
    assert answer.code == 2 and words in answer.err, answer.err

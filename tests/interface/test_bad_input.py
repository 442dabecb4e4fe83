"""Bad arguments are refused with the name of the argument, the file or the field."""

import re
import traceback
from datetime import datetime

import pytest

from tests.conftest import DATA
from tests.interface.conftest import LOG, commands
from tests.ports import free_ports
from vgrads import (
    Bag,
    Client,
    InputError,
    SiteError,
    backtest,
    bound,
    offers,
    plan,
    probability,
    read_set,
    run,
)

CASES = {
    "missing log": (lambda: bound("none.swf.gz"), r"none\.swf\.gz: no such file"),
    "wrong unit": (lambda: bound(LOG, 1, "2 parsecs"), r"walltime: '2 parsecs'.*write 90, 2h"),
    "not a number": (lambda: probability(LOG, within=None), "within: 'None'"),
    "no processors": (lambda: bound(LOG, 0), "procs: '0'"),
    "half a processor": (lambda: bound(LOG, 1.5), "procs: '1.5'"),
    "too wide": (lambda: bound(LOG, 100_000), "^procs: 100,000 processors"),
    "no probability": (lambda: bound(LOG, probability=95), r"probability: 95"),
    "unknown queue": (lambda: bound(LOG, queue="express"), "express"),
    "unknown method": (lambda: bound(LOG, method="magic"), "magic"),
    "unknown user": (lambda: bound(LOG, user="nobody"), "nobody"),
    "no zone": (lambda: bound(LOG, at=datetime(2009, 1, 1)), "at: .*no time zone"),
    "not a valid time": (lambda: bound(LOG, at="noon"), "at: 'noon'"),
    "unknown grouping": (lambda: backtest(LOG, by="user"), "^by: unknown value 'user'"),
    "no logs": (lambda: backtest([]), "histories: names no log"),
    "wrong question": (lambda: backtest(LOG, question="seen"), "question: unknown value 'seen'"),
    "missing set": (lambda: plan("none.yaml"), "no such file"),
    "no deadline": (lambda: plan(DATA / "lead.json"), r"needs a deadline \(use deadline 4h"),
    "unknown policy": (lambda: plan(DATA / "lead.yaml", policy="luck"), "luck"),
    "unknown sites": (lambda: plan(DATA / "lead.yaml", "none.toml"), "none.toml"),
    "unknown field": (lambda: read_set({**commands("true"), "dedline": 1}), "dedline"),
    "wrong site": (lambda: plan(DATA / "lead.yaml", {"site": [{"name": "a"}]}), "site"),
    "no task": (lambda: plan(commands("true"), "here").explain("w-1/zzz"), "no task 'w-1/zzz'"),
    "wrong speed": (lambda: run(plan(DATA / "lead.yaml"), speed=-1), "speed"),
    "sites of a plan": (lambda: run(plan(commands("true"), "here"), sites="here"), "sites"),
    "set read twice": (lambda: plan(read_set(DATA / "lead.yaml"), deadline="1h"), "read_set"),
    "no command": (lambda: run(DATA / "lead.yaml", sites={"site": [BIG]}), "no command"),
    "wrong request": (lambda: offers("grid { nonsense"), "request"),
    "missing request": (lambda: offers("none.grid"), "none.grid"),
    "empty bag": (Bag, "give one of 'command'"),
    "two sources": (lambda: Bag(command="a", commands=["b"]), "give one of"),
    "unknown parameter": (lambda: Bag(command="echo {y}", parameters={"x": [1]}), "'y'"),
    "text as values": (lambda: Bag(command="echo {x}", parameters={"x": "abc"}), "a string"),
    "missing input": (lambda: Bag(commands=["true"], inputs=["none"]).run(), "none"),
    "too wide a bag": (lambda: Bag(commands=["true"], procs=9999).run(), "procs"),
    "missing bag": (lambda: Bag.read("none.yaml"), "no such file"),
}
BIG = {"name": "big", "kind": "local", "procs": 64}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_by_name(name):
    call, pattern = CASES[name]
    with pytest.raises(InputError) as error:
        call()
    text = str(error.value)
    assert re.search(pattern, text), text
    assert not re.search(r"(?<![\w-])--[a-z]", f"{error.value.where} {error.value.fix}"), text


def test_a_notebook_shows_the_message_alone():
    """By the method that IPython calls in place of printing a traceback."""
    with pytest.raises(InputError) as error:
        read_set({"x": 1, "name": 2})
    first, *more = error.value._render_traceback_()
    assert first == "InputError: set: 4 errors"
    assert "  name: must be text: put it in quotes, is 2" in more and len(more) == 4


def test_a_service_that_does_not_answer_is_a_short_error():
    client = Client(f"http://127.0.0.1:{free_ports()}")
    with pytest.raises(SiteError, match=r"Connection refused .*'vgrads serve'") as error:
        client.submit({})
    lines = "".join(traceback.format_exception(error.value)).splitlines()
    assert len(lines) < 15

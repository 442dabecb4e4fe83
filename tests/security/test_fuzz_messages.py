"""Whatever is sent instead of a message is accepted within its ranges, or is one documented error:
no other exception, no end of a process.

``VGRADS_FUZZ`` sets the number of examples of each kind (CI: 1,000; by hand: 100,000).
"""

import json
import math
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given

from tests.conftest import ROOT
from tests.security.mutation import EXAMPLES, like, mutated, quick, text_of, values
from tests.security.recorded_messages import (
    AGENT,
    ANSWER,
    BAG,
    END,
    JOINT,
    MAIL,
    MANAGER,
    POOL,
    SET,
)
from vgrads.agent.answers import parse_answer
from vgrads.api.pools.ledger_entries import ManagerEntry, PoolEntry
from vgrads.dispatch.core.events import AgentJoined, BagAdded, SlotChanged
from vgrads.dispatch.core.protocol import AgentReply, Files
from vgrads.dispatch.core.records import AttemptsEnded, TasksAssigned, pack, unpack
from vgrads.dispatch.document import BagDocument, build_bag, restore_written_parameters
from vgrads.dispatch.server.messages import write
from vgrads.drivers.api import SlotState
from vgrads.exchange.messages import read
from vgrads.exchange.values import AttemptEnd
from vgrads.execmgr.core.journal import event_from_json, event_to_json
from vgrads.execmgr.core.states import Cancelled, Release, ReleaseUpdate, SlotUpdate, Tick
from vgrads.kernel.documents import parse_mapping, validate_field
from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.release_documents import JointSubmissionDocument, MailDocument
from vgrads.portal.records.reading.runs import READ_ERRORS
from vgrads.portal.web.bag_intake import commands_of
from vgrads.portal.web.live_routes import EndReport
from vgrads.workflows.sets import SetDocument, build_set

EVENTS = [
    Tick(at_s=5.0),
    Cancelled(at_s=5.0, reason="why"),
    SlotUpdate(at_s=1.0, slot="s0", state=SlotState.READY),
    ReleaseUpdate(
        at_s=1.0,
        upto=3,
        released=((("w", "a"), Release(number=1, command="true")),),
        abandoned=((("w", "b"), "r"),),
    ),
]


def messages(good, name):
    """Changed copies of a recorded message: the same ones every time."""
    draw = random.Random(name)
    return (mutated(draw, good) for _ in range(EXAMPLES))


def no_file(*_):
    raise InputError("no such file", where="file")


def accept_bag(document):
    """What becomes of a bag of HTTP: agents must accept what is sent to them of it."""
    bag = build_bag(document, Path("/nonexistent"))
    task = len(bag.commands) - 1
    if task < 0:
        return
    files = Files(dict.fromkeys(bag.commands.filled(bag.inputs, task), "0" * 64), bag.outputs)
    reply = AgentReply(give=[(0, task, 1)], new_bags=[0])
    parse_answer(write(1, reply, {0: bag}, lambda *_: files, 60.0))


def accept_set(document):
    build_set(document, no_file, "set", datetime(2026, 1, 1, tzinfo=UTC))


def stored(document):
    """The database stores documents as JSON, in UTF-8."""
    text = json.dumps(document.model_dump(mode="json", by_alias=True), allow_nan=False)
    type(document).model_validate(json.loads(text.encode()))


DOCUMENTS = {
    "bag": (BagDocument, BAG, accept_bag),
    "set": (SetDocument, SET, accept_set),
    "manager": (ManagerEntry, MANAGER, stored),
    "pool": (PoolEntry, POOL, stored),
    "completion": (EndReport, END, stored),
    "mail": (MailDocument, MAIL, stored),
    "joint": (JointSubmissionDocument, JOINT, stored),
}


def take_document(kind, text):
    """True for a document that is accepted; InputError is the one error."""
    model, _, use = DOCUMENTS[kind]
    try:
        document = parse_mapping(text, "", "json")
        use(
            validate_field(
                model, restore_written_parameters(document) if kind == "bag" else document
            )
        )
    except InputError:
        return False
    return True


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_changed_document_is_accepted_or_an_input_error(kind):
    _, good, _ = DOCUMENTS[kind]
    assert take_document(kind, text_of(good))
    taken = sum(take_document(kind, text) for text in messages(good, kind))
    assert 0 < taken < EXAMPLES


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document_of_any_values_is_accepted_or_an_input_error(kind):
    _, good, _ = DOCUMENTS[kind]

    @quick
    @given(like(good))
    def check(text):
        take_document(kind, text)

    check()


# messages of agents, and answers to them


def in_ranges(received):
    message = received.message
    assert 0 <= message.seq <= 2**53 and 0.0 <= received.wait_s <= 60.0
    numbers = [number for _, end in message.ends for number in end]
    numbers += [n for key, age_s in message.running for n in (*key, age_s)]
    numbers += [n for key in message.returned for n in key]
    if message.hello is not None:
        hello = message.hello
        assert 1 <= hello.procs <= 10**6 and len(hello.attributes) <= 50
        numbers += [hello.memory_mib, hello.node, hello.nodes, hello.left_s or 0.0]
        numbers += [v for v in hello.attributes.values() if not isinstance(v, str)]
    assert all(math.isfinite(number) and abs(number) <= 1e18 for number in numbers)
    texts = [message.agent, message.incarnation, message.leaving, *message.cached]
    texts += [x for p in (*received.printed, *received.printing) for x in (p.out, p.err)]
    json.dumps(texts, ensure_ascii=False).encode()  # raises for what cannot be stored


def take_message(text):
    try:
        received = read(text.encode("utf-8", "surrogatepass"), lambda _: 0, 5.0)
    except InputError:
        return False
    in_ranges(received)
    return True


def test_a_changed_message_of_an_agent_is_in_its_ranges_or_an_input_error():
    assert take_message(text_of(AGENT))
    assert 0 < sum(map(take_message, messages(AGENT, "agent"))) < EXAMPLES


@quick
@given(like(AGENT))
def test_a_message_of_any_values_is_in_its_ranges_or_an_input_error(text):
    take_message(text)


def take_answer(text):
    try:
        parse_answer(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return False
    return True


def test_a_changed_answer_is_accepted_or_a_value_error():
    assert take_answer(text_of(ANSWER))
    assert 0 < sum(map(take_answer, messages(ANSWER, "answer"))) < EXAMPLES


@quick
@given(like(ANSWER))
def test_an_answer_of_any_values_is_accepted_or_a_value_error(text):
    take_answer(text)


def test_no_answer_ends_an_agent(tmp_path):
    """An agent's loop, in a process of its own, applies what it accepts."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.agent_driver", str(tmp_path), str(EXAMPLES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > EXAMPLES / 50, done.stdout


# journals


RECORDS = b"".join(
    map(
        pack,
        (
            BagAdded(
                number=0, count=5, at_s=0.0, name="x", owner="me", weight=1.0, procs=1, retries=0
            ),
            AgentJoined(number=0, id="a", at_s=1.0, incarnation="1", slot="h0", procs=2),
            SlotChanged(id="h0", state=2),
            TasksAssigned(0, 0, [0, 1]),
            AttemptsEnded(0, [AttemptEnd(0, 0, 2.0, 0, 1)]),
        ),
    )
)


def take_records(body):
    try:
        return bool(list(unpack(body)))
    except InputError:
        return False


def test_changed_records_of_a_dispatcher_are_records_or_an_input_error():
    draw, taken = random.Random("records"), 0
    for _ in range(EXAMPLES):
        body = bytearray(RECORDS)
        for _ in range(draw.choice((1, 2, 8))):
            body[draw.randrange(len(body))] = draw.randrange(256)
        taken += take_records(bytes(body[: draw.choice((len(body), draw.randrange(len(body))))]))
    assert 0 < taken < EXAMPLES


@quick
@given(like({"kind": "bag", "number": 0, "count": 5, "at_s": 1.0}), values)
def test_events_of_a_dispatcher_of_any_values_are_records_or_an_input_error(fields, value):
    for text in (f'["bag", {fields}]', f'["slot", {text_of(value)}]', text_of(value)):
        body = text.encode("utf-8", "surrogatepass")
        take_records(bytes([5]) + len(body).to_bytes(4, "little") + body)


def take_event(text):
    try:
        event_from_json(json.loads(text))
    except READ_ERRORS:
        return False
    return True


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_changed_events_of_a_run_are_events_or_damaged(event):
    good = event_to_json(event)
    assert take_event(json.dumps(good))
    for text in messages(good, type(event).__name__):
        take_event(text)


@quick
@given(values)
def test_events_of_any_values_are_damaged(value):
    take_event(text_of({"kind": "told", "released": value, "abandoned": value}))
    take_event(text_of(value))


# commands of an open bag


def take_commands(lines):
    try:
        commands = commands_of(lines, 0)
    except InputError:
        return
    assert all(isinstance(command, str) and command.strip() for command in commands)
    "".join(commands).encode()


@quick
@given(values, values)
def test_commands_of_an_open_bag_are_texts_or_an_input_error(first, second):
    lines = [text_of(value).encode() for value in (first, second, "true")]
    take_commands(lines)
    take_commands([lines[0][:-1], *lines])


def test_changed_commands_of_an_open_bag_are_texts_or_an_input_error():
    for text in messages(["true", "echo a"], "commands"):
        take_commands([line.encode() for line in text.strip("[]").split(", ")])

"""An open bag whose client is gone is closed; one whose client only waits is not."""

import json
import os
import time
import urllib.request

import pytest

from tests.portal.serving import serve_this_machine
from tests.waiting import until
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.storage.folder import (
    NotOpen,
    append_commands,
    close_if_silent,
    keep_bag,
    note_client,
    read_reason_closed,
)
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.portal.client import Client


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    served = serve_this_machine(tmp_path_factory.mktemp("home"))
    yield served
    served.leave()


def test_the_bag_of_a_client_that_is_gone_is_closed_with_the_reason(service):
    client = Client(service.url)
    bag = client.submit_bag({"name": "gone", "open": True, "silence": "5s"})
    waits = client.submit_bag({"name": "waits", "open": True, "silence": "5s"})
    client.add_tasks(bag, ["echo one"])
    follow = urllib.request.urlopen(f"{service.url}/v1/bags/{waits}/results?follow=true")

    def listed(name):  # the list of bags is no sign of life of a single one
        return next(row for row in client.list_bags() if row["name"] == name)

    until(lambda: listed("gone")["state"] == "done", "it is closed, and its tasks have ended", 60)
    assert listed("gone")["reason"] == "its client sent nothing for 5s"
    assert listed("waits")["state"] in ("waiting", "running")
    with pytest.raises(InputError, match="has ended: done"):
        client.add_tasks(bag, ["echo two"])
    assert [row["out"] for row in client.bag_results(bag)] == ["one\n"]
    follow.close()
    until(lambda: listed("waits")["state"] == "done", "its client is gone too", 60)


def an_open_bag(folder, **fields):
    document = BagDocument(name="b", open=True, **fields)
    keep_bag(folder, 0, document, folder)
    return document


def age(folder, seconds):
    given = folder / "bags" / "0000" / "given"
    for name in ("commands.ndjson", "client"):
        if (given / name).exists():
            os.utime(given / name, (time.time() - seconds,) * 2)


def test_adding_tasks_and_any_request_are_signs_of_life(tmp_path):
    document = an_open_bag(tmp_path, silence="10m")
    for sign in (
        lambda: append_commands(tmp_path, 0, ["true"]),
        lambda: note_client(tmp_path, 0),
    ):
        age(tmp_path, 599)
        close_if_silent(tmp_path, 0, document)
        assert read_reason_closed(tmp_path, 0) is None
        age(tmp_path, 700)
        sign()
        close_if_silent(tmp_path, 0, document)
        assert read_reason_closed(tmp_path, 0) is None
    age(tmp_path, 601)
    close_if_silent(tmp_path, 0, document)
    assert read_reason_closed(tmp_path, 0) == "its client sent nothing for 10m"
    with pytest.raises(NotOpen, match="is closed: its client sent nothing for 10m"):
        append_commands(tmp_path, 0, ["true"])


def test_without_a_stated_silence_a_bag_stays_open(tmp_path):
    document = an_open_bag(tmp_path)  # of a pool, or of a program that runs it itself
    age(tmp_path, 1e6)
    close_if_silent(tmp_path, 0, document)
    assert read_reason_closed(tmp_path, 0) is None


@pytest.mark.parametrize("value", ["1s", 0, -5, "soon"])
def test_a_silence_that_no_client_could_keep_is_refused(value):
    with pytest.raises(InputError, match="silence"):
        validate(BagDocument, json.loads(json.dumps({"name": "b", "silence": value})), "bag")

"""Bags that are submitted to a service at the same time."""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.portal.serving import serve_this_machine
from tests.waiting import until


@pytest.mark.more
def test_each_is_stored_and_does_its_own_tasks(tmp_path):
    served = serve_this_machine(tmp_path / "home")

    def call(path, document=None):
        body = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{served.url}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def submit(number):
        # the name of a file makes the submission take a while
        commands = [f"echo {number}; true /etc/passwd"]
        return call("/v1/bags", {"name": f"b{number}", "commands": commands})["id"]

    try:
        with ThreadPoolExecutor(8) as pool:
            bags = list(pool.map(submit, range(24)))
        assert len(set(bags)) == 24
        for number, bag in enumerate(bags):
            until(lambda bag=bag: call(f"/v1/bags/{bag}")["state"] == "done", bag, 60)
            assert call(f"/v1/work/{bag}/logs")["out"] == f"{number}\n"
    finally:
        served.leave()

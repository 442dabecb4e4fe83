"""Messages about the promise of a run: their text, repeated deliveries, and a real run."""

import pytest

from tests.portal.listeners import HttpListener

SET = """
name: storm
deadline: 10m
sites: here
{alarms}
workflows:
  - name: w
    tasks:
      - {{id: a, runtime_s: 1, command: "exit {status}"}}
"""


@pytest.fixture
def put(tmp_path):
    def write(status=2, alarms=""):
        path = tmp_path / "set.yaml"
        path.write_text(SET.format(status=status, alarms=alarms))
        return path

    return write


def test_the_owner_gets_a_message_before_the_deadline(vgrads, put):
    with HttpListener() as server:
        assert vgrads("alarms", "add", "hook", f"json://127.0.0.1:{server.port}/").code == 0
        answer = vgrads("run", put(), "--json")
        assert answer.code == 1
        documents = server.documents
    *_, document = documents  # its first failure may not repeat: the promise is at risk then
    assert document["title"] == "vgrads: the promise of storm is failing"
    lines = document["message"].splitlines()
    assert "Why: your command of w-1/a fails: exit code 2." in lines
    run_id = answer.json["run"]
    assert lines[-1] == f"More: vgrads status {run_id}"
    (shown,) = vgrads("status", run_id, "--json").json["runs"]
    *_, alarm = shown["alarms"]
    assert (alarm["state"], alarm["sent_to"], alarm["failed"]) == ("failing", ["hook"], [])
    assert alarm["at"] < shown["due"]
    assert ": failing; sent to hook\n" in vgrads("status", run_id).out

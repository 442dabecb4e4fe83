"""A promise in danger, with a service in a process of its own: its user is notified in time, and
changes the request from the page in the message; over a real Slurm, and on this machine."""

import email
import email.policy
import html
import re
import sys
import urllib.parse
import urllib.request
from functools import partial

import pytest

from tests import waiting
from tests.portal.listeners import HttpListener, MailListener
from tests.portal.serving import Served, serve_this_machine
from tests.ports import free_ports
from tests.services.slurm import wait_until_empty
from vgrads.kernel.errors import InputError

until = partial(waiting.until, seconds=90.0)
SITES = """
[[site]]
name = "slurm"
kind = "batch"
procs = 2
cores_per_node = 8
driver = "slurm"
access = {{folder = "{folder}/marks", python = "{python}", contact = "127.0.0.1", poll = "0.3s"}}
[[site.queue]]
name = "batch"
max_walltime = "1h"
stated_probability = 0.95
stated_wait = "5s"
"""


def storm(go):
    """A set whose last tasks are to take 3 s, and take until the file ``go`` is there."""
    wait = f"until test -e {go}; do sleep 0.1; done"
    tasks = [
        {"id": "first", "runtime_s": 1, "command": "true"},
        {"id": "last", "runtime_s": 3, "parents": ["first"], "command": wait},
    ]
    workflows = [{"name": "w", "count": 2, "tasks": tasks}]
    return {"name": "storm", "deadline": "2m", "workflows": workflows}


def rest(service, path, method="GET", document=None):
    """The answer of the service as JSON."""
    return service.client()._ask(method, path, document)


@pytest.fixture
def service(slurm_site, vgrads, write, tmp_path):
    """A service with an address that its users may open, which runs sets at Slurm."""
    port = free_ports()
    sites = write("sites.toml", SITES.format(folder=tmp_path, python=sys.executable))
    config = write("vgrads.toml", f'url = "http://127.0.0.1:{port}"\n')
    for words in (("add", sites), ("open", "slurm", "local")):
        assert vgrads("sites", *words).code == 0
    served = Served(tmp_path / "home", "--config", config, port=port)
    yield served
    served.leave()
    wait_until_empty()


def browse(url, fields=None):
    """The page at an address, as a browser opens it, or sends a form there."""
    address = urllib.parse.urlsplit(url)
    head = {"Accept": "text/html", "Origin": f"{address.scheme}://{address.netloc}"}
    body = None if fields is None else urllib.parse.urlencode(fields).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=60) as answer:
        return answer.read().decode()


def fields_of(page, act):
    """The fields of the form on a page that does ``act``, as they are filled in."""
    (form,) = [text for text in page.split("<form")[1:] if f'name="act" value="{act}"' in text]
    inputs = re.findall(r'<input[^>]* name="(\w+)" value="([^"]*)"', form.partition("</form>")[0])
    return {name: html.unescape(value) for name, value in [*inputs, ("act", act)]}


@pytest.mark.services
def test_an_alarm_comes_in_time_and_from_its_page_the_promise_is_kept(service, vgrads, tmp_path):
    client, go = service.client(), tmp_path / "go"
    with MailListener() as mail, HttpListener() as hook:
        address = f"mailto://127.0.0.1:{mail.port}?from=v@example.org&to=ann@example.org"
        assert vgrads("alarms", "add", "mail", address).code == 0
        assert vgrads("alarms", "add", "hook", f"json://127.0.0.1:{hook.port}/").code == 0
        set_id = client.submit(storm(go))
        run = client.run(set_id)
        status = partial(rest, service, f"/v1/workflow-sets/{set_id}/status")
        until(lambda: mail.messages and hook.requests, lambda: f"the alarm: {status()}")
        until(lambda: len(status()["alarms"][0]["sent_to"]) == 2, lambda: f"sent: {status()}")
        service.kill()
        body = check_messages(mail, hook, run.run_id)
        service.begin()

        change_from_page(service, body.splitlines()[-1], set_id)
        go.touch()
        until(lambda: status()["state"] != "running", lambda: f"the end: {status()}")
        ended = status()
    assert (ended["state"], ended["outcome"]["in_time"]) == ("kept", 2), ended
    assert 'data-state="met"' in browse(f"{service.url}/sets/{set_id}")
    first, last = ended["alarms"]
    assert first["at"] < history_of(service, set_id)[0]["due"]
    assert (first["state"], last["state"]) == ("at risk", "on track")
    for alarm in (first, last):
        assert (sorted(alarm["sent_to"]), alarm["failed"]) == (["hook", "mail"], [])
    assert (len(mail.messages), len(hook.requests)) == (2, 2)
    assert hook.documents[-1]["title"] == "vgrads: the promise of storm is met"
    assert "Traceback" not in service.log.read_text()


def check_messages(mail, hook, run_id):
    """Both targets have the same message, which says all that its reader needs; its text."""
    ((_, receivers, content),) = mail.messages
    message = email.message_from_bytes(content, policy=email.policy.default)
    (document,) = hook.documents
    assert receivers == ["ann@example.org"]
    assert message["Subject"] == document["title"] == "vgrads: the promise of storm is at risk"
    body = message.get_content().replace("\r\n", "\n").strip()
    assert body == document["message"].strip()
    what, how_probable, why, *changes, page = body.splitlines()
    assert re.fullmatch(
        rf"Set storm, run {run_id}: 2 workflows are needed by [-\d]+ [:\d]+ \w+, 0 done so far\.",
        what,
    )
    assert re.fullmatch(r"Probability now: 0\.\d+; requested: 0\.9\.", how_probable)
    assert why.startswith("Why: tasks take ") and "as long as expected" in why
    kinds = r"Sufficient now: |May help: |No change of the request was found|Change it: "
    assert changes and all(re.match(kinds, line) for line in changes)
    assert changes[-1].endswith(f": {page}/request")
    return body


def history_of(service, set_id):
    """The requests of a set's run so far."""
    return rest(service, f"/v1/workflow-sets/{set_id}/request")["history"]


def change_from_page(service, link, set_id):
    """Open the page of a set, from there that of its request, and set a later deadline."""
    assert link == f"{service.url}/sets/{set_id}"
    (path,) = set(re.findall(r'href="(/sets/[\w-]+/request)"', browse(link)))
    page = service.url + path
    shown = fields_of(browse(page), "preview")
    preview = browse(page, shown | {"deadline": "10m"})
    assert "Then: 2 workflows are done by" in preview
    (first,) = history_of(service, set_id)
    fields = fields_of(preview, "change")
    assert fields["deadline"] == "10m" and fields["etag"]
    assert f"/sets/{set_id}/request" in browse(page, fields)
    until(lambda: len(history_of(service, set_id)) == 2, "the change")
    _, changed = history_of(service, set_id)
    assert (changed["refused"], changed["needed"]) == ("", 2)
    assert changed["due"] > first["due"] and changed["deadline_s"] >= 600.0


@pytest.mark.more  # a service of its own
def test_a_target_within_the_operators_limits_gets_its_message_and_no_other(tmp_path, write):
    config = write("vgrads.toml", 'alarm_schemes = ["json"]\nalarm_networks = ["127.0.0.1/32"]\n')
    tasks = [{"id": "a", "runtime_s": 1, "command": "exit 2"}]
    document = {"name": "s", "deadline": "10m", "workflows": [{"name": "w", "tasks": tasks}]}
    with HttpListener() as inside, HttpListener(host="127.0.0.2") as outside:
        service = serve_this_machine(tmp_path, "--config", config)
        try:
            add = partial(rest, service, "/v1/alarm-targets", "POST")
            with pytest.raises(InputError, match="not permitted targets with mailto://"):
                add({"name": "mail", "url": "mailto://127.0.0.1?from=v@b.org&to=ann@b.org"})
            add({"name": "inside", "url": f"json://127.0.0.1:{inside.port}/"})
            add({"name": "outside", "url": f"json://127.0.0.2:{outside.port}/"})
            set_id = service.client().submit(document)
            service.client().run(set_id)
            status = partial(rest, service, f"/v1/workflow-sets/{set_id}/status")
            until(lambda: status()["state"] == "broken", lambda: f"the end: {status()}")
            alarms = status()["alarms"]
        finally:
            service.leave()
    assert all(item["sent_to"] == ["inside"] for item in alarms)
    assert len(inside.requests) >= len(alarms)  # one whose answer came late is sent again
    (failed,) = alarms[-1]["failed"]
    assert failed["target"] == "outside"
    assert "127.0.0.2 is not a public address" in failed["reason"]
    assert inside.requests and not outside.requests

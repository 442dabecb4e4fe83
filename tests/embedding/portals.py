"""Programs that show forecasts: where they are, pages for them, and a service to show."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import urllib.request
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.conftest import ROOT
from tests.portal.serving import Served
from tests.services.fixtures import surrounded
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store

DEPLOY = ROOT / "deploy"
PYTHON = Path(os.environ.get("VGRADS_PORTALS") or ROOT / ".venv" / "portals" / "bin" / "python")
PUBLIC, OTHER = "mayhem/default", "mercury/default"
GAUGE = {"site": "mayhem", "queue": "default", "procs": 4, "walltime": "2h"}
_RENDER = """
require "erb"
require "json"
Info = Struct.new(:dispatch_time, :queue_name, :procs, :wallclock_limit, keyword_init: true)
Session = Struct.new(:queued, :cluster_id, :info, keyword_init: true) { alias queued? queued }
values = JSON.parse(STDIN.read, symbolize_names: true)
session = values && Session.new(**values, info: Info.new(**values[:info]))
print ERB.new(File.read(ARGV[0]), trim_mode: "-").result(binding)
"""


def rendered(name: str, session: dict | None = None, **environment: str) -> str:
    """A partial for Open OnDemand, rendered by Ruby's ERB, with a session and variables."""
    command = ["ruby", "-w", "-e", _RENDER, str(DEPLOY / "ondemand" / name)]
    done = subprocess.run(
        command,
        input=json.dumps(session),
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def pages(folder: Path):
    """The port of a server of these files on this machine: another origin than the service."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def service(home: Path, *origins: str):
    """A service with a public queue, a gauge and these origins, and a maker of tokens."""
    settings = {
        "VGRADS_TOKENS": "required",
        "VGRADS_ORIGINS": json.dumps(origins),
        "VGRADS_PUBLIC_FORECASTS": json.dumps([PUBLIC]),
        "VGRADS_WAIT_GAUGES": json.dumps([GAUGE]),
    }
    with surrounded(settings):
        served = Served(home)
    try:
        yield served, partial(_token, home)
    finally:
        served.leave()


def _token(home: Path, scope: str) -> str:
    with Store(f"sqlite:///{home / 'vgrads.db'}") as store:
        return AccessControl(store.engine).create("portal", [scope], 3600.0)[0]


def bound_s(url: str, queue: str, token: str = "", **values: object) -> float:
    """A bound in seconds, as the service returns it."""
    return float(bound(url, queue, token, **values)["bound_s"])


def learned(url: str, queue: str, token: str) -> bool:
    """True once the service has learned this queue: until then it answers by past waits."""
    return bound(url, queue, token)["method"] == "state"


def bound(url: str, queue: str, token: str = "", **values: object) -> dict:
    """A bound, as the service returns it."""
    site, _, name = queue.partition("/")
    query = "&".join(f"{key}={value}" for key, value in values.items())
    head = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(
        f"{url}/v1/sites/{site}/queues/{name}/bound?{query}", None, head
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def run_there(program: str) -> dict:
    """The JSON that a program prints in the environment of the portals."""
    done = subprocess.run(
        [PYTHON, "-c", program],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return {"err": done.stderr, **json.loads(done.stdout.splitlines()[-1])}

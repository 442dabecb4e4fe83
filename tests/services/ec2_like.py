"""An EC2- and Eucalyptus-like cloud that behaves: moto's service with what it lacks.

Instances take time to be placed and to boot, capacity is limited, a repeated client token buys
nothing more, credentials are checked, and user data really runs, as a process of this machine in a
folder of its own, in which ``shutdown`` ends the instance and not the machine.

    python -m tests.services.ec2_like FOLDER [--boot SECONDS] [--capacity INSTANCES]

prints its port. ``GET /_control?capacity=0&boot=1&lose=1&down=1`` changes how it behaves: ``lose``
carries the next purchase out and cuts the connection before the answer, ``down`` answers nothing
but 503. ``take=ID&notice=SECONDS`` takes an instance back after a notice in its metadata.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import socket
import subprocess
import threading
import time
import xml.etree.ElementTree as ET
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlencode

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.services.run import KEY

PLACED_S = 0.2
NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
EUCALYPTUS = "http://msgs.eucalyptus.com/3.3.0"
SIZES = (("m1.small", 1, 5, 512), ("m1.large", 2, 10, 1024), ("c1.xlarge", 8, 20, 7168))
AUTHORIZATION = (
    f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/ec2/aws4_request, "
    "SignedHeaders=host, Signature=x"
)


class Machine:
    """One instance: placed, booted, running its user data, ended."""

    def __init__(self, folder: Path, user_data: bytes, boot_s: float, index: int) -> None:
        self.began_s, self.boot_s, self.ended = time.monotonic(), boot_s, False
        self.folder, self._process, self._lock = folder, None, threading.Lock()
        folder.mkdir(parents=True)
        (folder / "user-data").write_bytes(user_data)
        message = folder / "latest" / "meta-data"
        message.mkdir(parents=True)
        (message / "ami-launch-index").write_text(str(index))
        self._timer = threading.Timer(boot_s, self._run)
        self._timer.daemon = True
        self._timer.start()

    def _run(self) -> None:
        stub = self.folder / "bin" / "shutdown"
        stub.parent.mkdir()
        stub.write_text(f"#!/bin/sh\ntouch {self.folder}/shutdown\n")
        stub.chmod(0o755)
        environment = os.environ | {
            "HOME": str(self.folder),
            "PATH": f"{stub.parent}:{os.environ['PATH']}",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"file://{self.folder}",
        }
        with (self.folder / "console").open("wb") as console, self._lock:
            if self.ended:  # while it booted
                return
            self._process = subprocess.Popen(
                ["/bin/sh", "user-data"],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    @property
    def state(self) -> str:
        if self.ended or (self.folder / "shutdown").exists():
            self.end()
            return "terminated"
        return "running" if time.monotonic() - self.began_s >= PLACED_S else "pending"

    @property
    def booted(self) -> bool:
        return self.state == "running" and time.monotonic() - self.began_s >= self.boot_s + 0.05

    def take_back(self, notice_s: float) -> None:
        """End after a notice, which the metadata service shows."""
        ends = datetime.now(UTC) + timedelta(seconds=notice_s)
        spot = self.folder / "latest" / "meta-data" / "spot"
        spot.mkdir()
        action = {"action": "terminate", "time": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
        (spot / "instance-action").write_text(json.dumps(action))
        timer = threading.Timer(notice_s, self.end)
        timer.daemon = True
        timer.start()

    def end(self) -> None:
        with self._lock:
            self.ended = True
        self._timer.cancel()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


class Cloud:
    """The WSGI application around moto's."""

    def __init__(self, folder: Path, boot_s: float, capacity: int) -> None:
        self.folder, self.boot_s, self.capacity = folder, boot_s, capacity
        self.lose, self.down, self.purchases = 0, 0, 0
        self.machines: dict[str, Machine] = {}
        self.tokens: dict[str, bytes] = {}
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ, start_response):
        query = {k: v[-1] for k, v in parse_qs(_query(environ)).items()}
        path = environ.get("PATH_INFO", "/")
        if path == "/_control":
            return self._control(query, start_response)
        if self.down:
            return _answer(start_response, "503 Service Unavailable", b"")
        if not _is_authentic(environ, query):
            return _answer(start_response, "403 Forbidden", _error("AuthFailure", "no such key"))
        if path.startswith("/services/") and query.get("Action") == "DescribeInstanceTypes":
            return _answer(start_response, "200 OK", _eucalyptus_sizes())
        environ |= {
            "PATH_INFO": "/",
            "REQUEST_METHOD": "GET",
            "QUERY_STRING": urlencode(query),
            "HTTP_AUTHORIZATION": AUTHORIZATION,
        }
        with self._lock:
            status, body = self._serve(environ, query)
        if status == "lost":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        return _answer(start_response, status, body)

    def _control(self, query, start_response):
        for name in ("capacity", "lose", "down"):
            setattr(self, name, int(query.get(name, getattr(self, name))))
        self.boot_s = float(query.get("boot", self.boot_s))
        if "take" in query:  # a spot node, with notice
            self.machines[query["take"]].take_back(float(query.get("notice", 120.0)))
        if "kill" in query:
            self.machines[query["kill"]].end()
        alive = sum(m.state != "terminated" for m in self.machines.values())
        return _answer(start_response, "200 OK", f"{alive} {self.purchases}".encode())

    def _serve(self, environ, query):
        action = query.get("Action")
        if action == "RunInstances":
            return self._buy(environ, query)
        if action == "TerminateInstances":
            for key, value in query.items():
                if key.startswith("InstanceId.") and value in self.machines:
                    self.machines[value].end()
        status, body = self._ask(environ)
        if action == "DescribeInstances":
            body = self._with_states(body)
        if action == "DescribeInstanceStatus":
            body = self._with_checks(body)
        return status, body

    def _buy(self, environ, query):
        token, count = query.get("ClientToken", ""), int(query["MinCount"])
        if token in self.tokens:
            return "200 OK", self.tokens[token]
        alive = sum(m.state != "terminated" for m in self.machines.values())
        if alive + count > self.capacity:
            text = "We currently do not have sufficient capacity in the zone you requested."
            return "500 Internal Server Error", _error("InsufficientInstanceCapacity", text)
        status, body = self._ask(environ)
        if not status.startswith("200"):
            return status, body
        user_data = base64.b64decode(query.get("UserData", ""))
        self.purchases += 1
        for index, item in enumerate(_find(ET.fromstring(body), "instanceId")):
            self.machines[item.text] = Machine(
                self.folder / item.text, user_data, self.boot_s, index
            )
        self.tokens[token] = body
        if self.lose:
            self.lose -= 1
            return "lost", b""
        return status, body

    def _with_states(self, body: bytes) -> bytes:
        root = ET.fromstring(body)
        for item in _find(root, "item"):
            ids = [c.text for c in item if _local(c) == "instanceId"]
            if ids and ids[0] in self.machines:
                for state in (c for c in item if _local(c) == "instanceState"):
                    for name in (c for c in state if _local(c) == "name"):
                        name.text = self.machines[ids[0]].state
        return _write(root)

    def _with_checks(self, body: bytes) -> bytes:
        root = ET.fromstring(body)
        for item in _find(root, "item"):
            ids = [c.text for c in item if _local(c) == "instanceId"]
            if ids and ids[0] in self.machines and not self.machines[ids[0]].booted:
                for status in (s for c in item for s in c if _local(s) == "status"):
                    status.text = "initializing"
        return _write(root)

    def _ask(self, environ) -> tuple[str, bytes]:
        retained: list[str] = []
        body = b"".join(
            self._moto(environ, lambda status, headers, error=None: retained.append(status))
        )
        return retained[0], body.replace(b'/doc/2016-11-15"', b'/doc/2016-11-15/"')

    def close(self) -> None:
        for machine in self.machines.values():
            machine.end()


def _query(environ) -> str:
    if environ.get("REQUEST_METHOD") == "POST":
        return environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
    return environ.get("QUERY_STRING", "")


def _is_authentic(environ, query) -> bool:
    """The right key; signatures are the cloud's own business."""
    value = environ.get("HTTP_AUTHORIZATION", "")
    return query.get("AWSAccessKeyId") == KEY or f"Credential={KEY}/" in value


def _answer(start_response, status: str, body: bytes):
    start_response(status, [("Content-Type", "text/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _error(code: str, text: str) -> bytes:
    return (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors></Response>"
    ).encode()


def _eucalyptus_sizes() -> bytes:
    items = "".join(
        f"<item><name>{n}</name><cpu>{c}</cpu><disk>{d}</disk><memory>{m}</memory></item>"
        for n, c, d, m in SIZES
    )
    return (
        f'<R xmlns="{EUCALYPTUS}"><instanceTypeDetails>{items}</instanceTypeDetails></R>'
    ).encode()


def _find(root, name: str):
    return [part for part in root.iter() if _local(part) == name]


def _local(part) -> str:
    return part.tag.rpartition("}")[2]


def _write(root) -> bytes:
    ET.register_namespace("", NAMESPACE)
    return ET.tostring(root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--boot", type=float, default=0.5)
    parser.add_argument("--capacity", type=int, default=60)
    options = parser.parse_args()
    cloud = Cloud(options.folder, options.boot, options.capacity)
    server = make_server("127.0.0.1", 0, cloud, threaded=True)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(server.server_port, flush=True)
    server.serve_forever()
    cloud.close()


if __name__ == "__main__":
    main()

"""The smallest manager that speaks with a host's agent as it should: every answer is decided by the
test."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import ssl
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, setrlimit
from urllib.parse import unquote

from vgrads.exchange.agent_file import build_agent_file
from vgrads.exchange.certificate import make_certificate

KEY = "a-key"
PATIENCE_S = 15.0


class ReferenceManager:
    """Parks what has nothing to answer; acknowledges what was told; says what the test wants
    said."""

    def __init__(self) -> None:
        self.messages: list[dict] = []
        self.hellos: list[dict] = []
        self.ended: dict[tuple, list] = {}
        self.ends_received: list[tuple] = []  # each end as often as it came
        self.returned: list[tuple] = []
        self.most_under_way = self.overtaken = 0
        self.inputs: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.outputs: dict[str, bytes] = {}
        self.next: dict = {"beat_s": 10, "idle_s": None}
        self.statuses: list[int] = []  # what the next messages are answered with
        self.pages: list[tuple[int, bytes]] = []  # the same, by others: status and body
        self.cut_at_ends = 0  # so many messages with ends are cut off instead of answered
        self.url = ""
        self._long_poll_pending: dict[asyncio.StreamWriter, int] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._answered: set[asyncio.StreamWriter] = set()
        self.cut_answered = 0  # of these, those whose connection had carried an answer
        self._attending: set[asyncio.Task | None] = set()
        self._news = asyncio.Condition()

    async def serve(self, certificate: ssl.SSLContext | None = None) -> asyncio.Server:
        server = await asyncio.start_server(self._attend, "127.0.0.1", 0, ssl=certificate)
        scheme = "tls" if certificate else "tcp"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def send(self, **what) -> None:
        """At once where a question is parked, else with the next answer."""
        for name, value in what.items():
            existing = self.next.get(name)
            if isinstance(existing, dict):
                existing.update(value)
            else:
                self.next[name] = [*existing, *value] if isinstance(existing, list) else value
        for writer, seq in list(self._long_poll_pending.items()):
            self._answer(writer, seq)
            return

    async def run(self, *commands: str, bag: int = 1, **payload) -> list[list]:
        """Have commands run as tasks 0, 1, … of a bag; their ends."""
        keys = [(bag, number, 0) for number in range(len(commands))]
        give = [[*key, name] for key, name in zip(keys, commands, strict=True)]
        await self.send(bags={str(bag): {"procs": 1, **payload}}, give=give)
        await self.until(lambda: all(key in self.ended for key in keys))
        return [self.ended[key] for key in keys]

    async def until(self, done) -> None:
        async with self._news, asyncio.timeout(PATIENCE_S):
            await self._news.wait_for(done)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.cut()
        await asyncio.gather(*filter(None, self._attending), return_exceptions=True)

    async def _attend(self, reader, writer) -> None:
        self._writers.add(writer)
        self._attending.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {item.split(": ")[0].lower(): item.split(": ")[1] for item in head[1:-2]}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, address, _ = head[0].split()
                if headers["authorization"] != f"Bearer {KEY}":
                    self._write(writer, 403)
                elif address == "/exchange":
                    self._exchange(writer, json.loads(body))
                else:
                    self._file(writer, method, address, body, headers)
                async with self._news:
                    self._news.notify_all()
        self._long_poll_pending.pop(writer, None)
        self._writers.discard(writer)
        await hang_up(writer)

    def _exchange(self, writer, message) -> None:
        if self._long_poll_pending.pop(writer, None) is not None:
            self.overtaken += 1
            self._write(writer, 204)
        if self.pages:
            status, body = self.pages.pop(0)
            head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            return
        if self.statuses:
            self._write(writer, self.statuses.pop(0))
            return
        self.messages.append(message)
        if "hello" in message:
            self.hellos.append(message["hello"])
        ended = message.get("ended", [])
        self.ends_received += [tuple(item[:3]) for item in ended]
        if ended and self.cut_at_ends:
            self.cut_at_ends -= 1
            self.cut_answered += writer in self._answered
            writer.transport.abort()
            return
        self.ended.update({tuple(item[:3]): item for item in ended})
        self.returned += [tuple(item) for item in message.get("returned", [])]
        self._long_poll_pending[writer] = message["seq"]
        report = any(
            item in message for item in ("ended", "returned", "cached", "leaving", "hello")
        )
        if report or self.next:
            self._answer(writer, message["seq"])
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(message["wait_s"], self._hold_expired, writer, message["seq"])

    def _hold_expired(self, writer, seq: int) -> None:
        """A question is not held longer than its host said: in turns it can tell nothing
        meanwhile."""
        if self._long_poll_pending.get(writer) == seq:
            self._answer(writer, seq)

    def _answer(self, writer, seq: int) -> None:
        del self._long_poll_pending[writer]
        self._answered.add(writer)
        self._write(writer, 200, json.dumps({"seq": seq, **self.next}).encode())
        self.next = {}

    def _file(self, writer, method, address, body, headers) -> None:
        if method == "PUT":
            good = hashlib.sha256(body).hexdigest() == headers["x-sha256"]
            self.outputs[unquote(address)] = body
            self._write(writer, 200 if good else 400)
            return
        digest = address.rpartition("/")[2]
        self.fetched.append(digest)
        existing = self.inputs.get(digest)
        self._write(writer, 404 if existing is None else 200, existing or b"")

    def _write(self, writer, status: int, body: bytes = b"") -> None:
        ours = "X-Vgrads: 1\r\n" if status >= 400 else ""
        head = f"HTTP/1.1 {status} X\r\n{ours}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Let go of a connection, and wait until it is gone."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


class Host:
    """An agent that was begun, and what it says at its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def code(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()


def environment(manager: ReferenceManager, folder: str, **more: str) -> dict[str, str]:
    """An agent's."""
    plain = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("VGRADS_", "PYTHON", "COV")) and not key.lower().endswith("_proxy")
    }
    slot = {"VGRADS_SLOT": folder, "VGRADS_PROCS": "2", "TMPDIR": folder}
    return {**plain, **slot, "VGRADS_CONTACT": manager.url, "VGRADS_HOST_KEY": KEY, **more}


@asynccontextmanager
async def at_work(secure: bool = False, python: str = sys.executable, files: int = 0, **more: str):
    """(desk, host): an agent from its one file, told of a desk, in a temporary folder of its own;
    ``files``: how many it may open, if that is limited."""
    manager = ReferenceManager()
    with tempfile.TemporaryDirectory() as folder:
        context = None
        if secure:
            certificate, key = make_certificate()
            (Path(folder) / "pem").write_text(certificate + key)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(Path(folder) / "pem")
            more["VGRADS_CERT"] = certificate
        server = await manager.serve(context)
        (Path(folder) / "agent.pyz").write_bytes(build_agent_file())
        payload = environment(manager, folder, **more)
        process = await asyncio.create_subprocess_exec(
            python,
            "-I",
            f"{folder}/agent.pyz",
            env=payload,
            cwd="/",
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=partial(setrlimit, RLIMIT_NOFILE, (files, files)) if files else None,
        )
        try:
            yield manager, Host(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
            server.close()
            await manager.close()

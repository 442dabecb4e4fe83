"""Hosts that run nothing: each task has ended as soon as they have it, or after a stated time.

``python benchmarks/dispatch/noop_hosts.py CONTACT KEYS_FILE [--single] [--seconds S]`` with a
contact ``tcp://host:port`` or ``tls://host:port``; a line of the file for each host: its slot and
its key. ``--single``: every end is a message of its own. ``--seconds``: a host of one processor
runs one task after the other, and each takes so long.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
from collections import deque
from pathlib import Path


class _Host(asyncio.Protocol):
    def __init__(self, number: int, slot: str, key: str, single: bool, seconds: float) -> None:
        self.number, self.slot, self.key = number, slot, key
        self.single, self.seconds = single, seconds
        self.waiting: deque[list[int]] = deque()
        self.busy = False
        self.seq, self.buffer = 0, bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send({"hello": {"slot": self.slot, "procs": 1, "name": f"host{self.number}"}})

    def send(self, more: dict[str, object]) -> None:
        self.seq += 1
        body = json.dumps(
            {"host": f"h{self.number}", "life": "1", "seq": self.seq, "wait_s": 30, **more}
        ).encode()
        head = (
            f"POST /exchange HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        assert self.transport is not None
        self.transport.write(head.encode() + body)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.buffer[:end])
            length = 0
            if b" 204 " not in head:
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
            if len(self.buffer) < end + 4 + length:
                return
            body = bytes(self.buffer[end + 4 : end + 4 + length])
            del self.buffer[: end + 4 + length]
            if length:
                self.on_message(json.loads(body))

    def on_message(self, text: dict[str, list[list[int]]]) -> None:
        if "drain" in text:
            self.send({"leaving": "drained"})
            return
        values = text.get("give", [])
        if self.seconds:
            self.waiting.extend(values)
            self.begin()
            if not values:
                self.send({})
        elif self.single and values:
            for counts in values:
                self.send({"ended": [_ended(counts)]})
        else:
            self.send({"ended": [_ended(item) for item in values]} if values else {})

    def begin(self) -> None:
        """The next task runs, if none does."""
        if self.waiting and not self.busy:
            self.busy = True
            asyncio.get_running_loop().call_later(self.seconds, self.end, self.waiting.popleft())

    def end(self, counts: list[int]) -> None:
        """A task has run: the next one first, then it is told."""
        self.busy = False
        self.begin()
        self.send({"ended": [_ended(counts, self.seconds)]})


def _ended(counts: list[int], ran_s: float = 0.0) -> list[object]:
    return [counts[0], counts[1], counts[2], 0, [0, 0, ran_s, 0], 0, 0, "", ""]


async def main(chosen: argparse.Namespace) -> None:
    """All hosts, until they are cut off."""
    scheme, _, place = chosen.contact.partition("://")
    address, _, port = place.rpartition(":")
    context = None
    if scheme == "tls":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    for number, line in enumerate(chosen.keys.read_text().splitlines()):
        slot, key = line.split()
        await loop.create_connection(
            lambda n=number, s=slot, k=key: _Host(n, s, k, chosen.single, chosen.seconds),  # type: ignore[misc]
            address,
            int(port),
            ssl=context,
        )
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("contact")
    parser.add_argument("keys", type=Path)
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.0)
    asyncio.run(main(parser.parse_args()))

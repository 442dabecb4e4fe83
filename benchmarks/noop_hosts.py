"""Hosts that say each task has ended as soon as they have it: what is left is the dispatcher's own work.

``python -m benchmarks.noop_hosts CONTACT KEYS_FILE`` with a contact ``tcp://host:port`` or ``tls://host:port``; a line of
the file for each host: its slot and its key.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from pathlib import Path


class _Host(asyncio.Protocol):
    def __init__(self, number: int, slot: str, key: str) -> None:
        self.number, self.slot, self.key = number, slot, key
        self.seq, self.buffer = 0, bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.say({"hello": {"slot": self.slot, "procs": 1, "name": f"host{self.number}"}})

    def say(self, more: dict[str, object]) -> None:
        self.seq += 1
        body = json.dumps(
            {"host": f"h{self.number}", "life": "1", "seq": self.seq, "wait_s": 30, **more}
        ).encode()
        head = f"POST /exchange HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\nContent-Length: {len(body)}\r\n\r\n"
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
                self.heard(json.loads(body))

    def heard(self, said: dict[str, list[list[int]]]) -> None:
        if "drain" in said:
            self.say({"leaving": "drained"})
            return
        ended = [[g[0], g[1], g[2], 0, [0, 0, 0, 0], 0, 0, "", ""] for g in said.get("give", ())]
        self.say({"ended": ended} if ended else {})


async def main(contact: str, hosts: list[list[str]]) -> None:
    """All hosts, until they are cut off."""
    scheme, _, place = contact.partition("://")
    address, _, port = place.rpartition(":")
    context = None
    if scheme == "tls":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    for number, (slot, key) in enumerate(hosts):
        await loop.create_connection(
            lambda n=number, s=slot, k=key: _Host(n, s, k), address, int(port), ssl=context
        )
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(
        main(sys.argv[1], [line.split() for line in Path(sys.argv[2]).read_text().splitlines()])
    )

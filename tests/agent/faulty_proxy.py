"""An HTTP proxy whose connections suffer faults, as a seeded schedule says."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from tests.agent.reference_manager import hang_up

PAGE = b"<html><body>not now</body></html>"
STATUSES = ("403 Forbidden", "407 Proxy Authentication Required", "502 Bad Gateway", "200 OK")
FAULTS = ("cut", "delay", "corrupt", "half-close", "black hole", "truncate", "refuse", "page")
LASTING = ("delay", "black hole", "refuse", "page")
"""Faults of a time; the others are of an instant."""


class Tunnel:
    """A connection through the proxy; one that has vanished stays so."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.writers = {"up": far, "down": near}
        self.vanished = asyncio.Event()
        self.strikes: list[tuple[str, str]] = []  # what happens to the next piece: fault, direction

    def cut(self) -> None:
        for writer in self.writers.values():
            writer.transport.abort()


class FaultyProxy:
    """Accepts CONNECT. ``fault``: the lasting one of the moment, empty: none."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.fault, self.url = "", ""
        self._page = b""
        self.tunnels: set[Tunnel] = set()
        self._tasks: set[asyncio.Task] = set()
        self._server: asyncio.Server | None = None

    async def serve(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.close()
        for tunnel in list(self.tunnels):
            tunnel.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def play(self, count: int, span_s: float) -> list[str]:
        """Let so many faults happen within a time; from then on there are none."""
        names = []
        for _ in range(count):
            share = self.draw.uniform(0.2, 1.0)
            names.append(self.draw.choice(FAULTS))
            self.begin(names[-1])
            await asyncio.sleep(share * span_s / count)
            self.fault = ""
            await asyncio.sleep((1.0 - share) * span_s / count)
        return names

    def begin(self, name: str) -> None:
        """Begin a fault."""
        if name in LASTING:
            self.fault = name
        if name == "page":
            status = self.draw.choice(STATUSES)
            self._page = f"HTTP/1.1 {status}\r\nContent-Length: {len(PAGE)}\r\n\r\n".encode() + PAGE
        for tunnel in list(self.tunnels):
            if name in ("cut", "refuse"):
                tunnel.cut()
            elif name == "black hole":
                tunnel.vanished.set()
            elif name == "half-close":
                with suppress(OSError, RuntimeError):
                    tunnel.writers[self.draw.choice(("up", "down"))].write_eof()
            elif name in ("corrupt", "truncate"):
                tunnel.strikes.append((name, self.draw.choice(("up", "down"))))

    async def _accept(self, reader, writer) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._attend(reader, writer)
        finally:
            self._tasks.discard(task)
            await hang_up(writer)

    async def _attend(self, reader, writer) -> None:
        if self.fault == "refuse":
            return
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if self.fault == "page":
            writer.write(self._page)
            await writer.drain()
            await reader.read()
            return
        host, port = head.split()[1].split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        tunnel = Tunnel(writer, far_writer)
        if self.fault == "black hole":
            tunnel.vanished.set()
        self.tunnels.add(tunnel)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            await asyncio.gather(
                self._pump(tunnel, "up", reader), self._pump(tunnel, "down", far_reader)
            )
        finally:
            self.tunnels.discard(tunnel)
            await hang_up(far_writer)

    async def _pump(self, tunnel: Tunnel, way: str, source: asyncio.StreamReader) -> None:
        sink = tunnel.writers[way]
        while True:
            if tunnel.vanished.is_set():  # nothing is read, and no end is passed on
                await asyncio.Event().wait()
            piece = await source.read(65536)
            if tunnel.vanished.is_set():
                continue
            if not piece:
                with suppress(OSError, RuntimeError):
                    sink.write_eof()
                return
            if self.fault == "delay":
                await asyncio.sleep(self.draw.uniform(0.1, 2.0))
            piece = self._struck(tunnel, way, piece)
            if not piece:
                return
            sink.write(piece)
            await sink.drain()

    def _struck(self, tunnel: Tunnel, way: str, piece: bytes) -> bytes:
        """A piece after what happens to it; empty where its connection is cut."""
        for fault in [x for x in tunnel.strikes if x[1] == way]:
            tunnel.strikes.remove(fault)
            at = self.draw.randrange(len(piece))
            if fault[0] == "corrupt":
                piece = (
                    piece[:at] + bytes([piece[at] ^ 1 << self.draw.randrange(8)]) + piece[at + 1 :]
                )
            else:
                tunnel.writers[way].write(piece[:at])
                for writer in tunnel.writers.values():
                    writer.close()
                return b""
        return piece

"""Tasks from Python, in the manner of :mod:`concurrent.futures`; standard library only.

with Client("http://127.0.0.1:8080") as client:
    for result in client.map("python sim.py --seed {}", range(1000)):
        print(result.out)

    done = client.tasks(name="sweep").submit("sleep 1")     # a concurrent.futures.Future
"""

from __future__ import annotations

import http.client
import json
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from string import Formatter
from typing import Any

from vgrads.kernel.errors import SiteError

Ask = Callable[..., dict[str, Any]]
_BLOCK = 1000
_SEND_S = 0.05
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a task ended: its exit code (None: no host could run it), and the ends of what it
    printed."""

    task: int
    command: str
    code: int | None
    out: str = ""
    err: str = ""
    ran_s: float = 0.0
    host: str = ""

    @property
    def ok(self) -> bool:
        """True where it succeeded."""
        return self.code == 0


def command_of(template: str, values: object) -> str:
    """A command with parameters in it, each as one word of the shell: a mapping for ``{name}``, a
    tuple or one value for ``{}``; ``{name:raw}`` puts one in as it is."""
    positional = values if isinstance(values, tuple) else (values,)
    found, at = [], 0
    for before, name, form, _ in Formatter().parse(template):
        found.append(before)
        if name is None:
            continue
        if isinstance(values, Mapping):
            value = values[name]
        else:
            value = positional[int(name) if name else at]
            at += 1
        found.append(str(value) if form == "raw" else shlex.quote(str(value)))
    return "".join(found)


class Tasks:
    """An open bag: commands go in, futures of :class:`TaskResult` come out. ``ask``: makes a
    request of the service."""

    def __init__(
        self, ask: Ask, open_url: Callable[[str], Any], document: Mapping[str, Any]
    ) -> None:
        self._ask, self._open_url = ask, open_url
        self.bag_id = str(ask("POST", "/v1/bags", {**document, "open": True})["id"])
        self._futures: dict[int, Future[TaskResult]] = {}
        self._commands: deque[str] = deque()
        self._count = 0
        self._lock, self._news = threading.Lock(), threading.Event()
        self._closed = self._over = False
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._sender.start()
        self._reader.start()

    def submit(self, command: str) -> Future[TaskResult]:
        """One more task. What is handed over within a moment travels together."""
        if not command.strip() or "\0" in command:
            raise ValueError("a command is a text that is not empty")
        future: Future[TaskResult] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("no more tasks can come: it was shut down")
            self._futures[self._count] = future
            self._count += 1
            self._commands.append(command)
        self._news.set()
        return future

    def map(self, command: str, params: Iterable[Any]) -> Iterator[TaskResult]:
        """The results of a command for each value of its parameters, in their order, as they
        come."""
        futures = [self.submit(command_of(command, values)) for values in params]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Take no more tasks; wait for those that there are, or drop them."""
        with self._lock:
            self._closed = True
        self._news.set()
        if cancel_futures:
            self._sender.join()
            with suppress(Exception):
                self._ask("DELETE", f"/v1/bags/{self.bag_id}")
        if wait:
            self._sender.join()
            self._reader.join()

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def _send(self) -> None:
        """Commands go to the service in bundles, in their order; a service that does not answer is
        asked again."""
        taken = 0
        while True:
            self._news.wait()
            self._news.clear()
            time.sleep(_SEND_S)  # what comes meanwhile goes along
            with self._lock:
                commands, closed = list(self._commands), self._closed
                self._commands.clear()
            try:
                if commands:
                    self._patiently("POST", f"/v1/bags/{self.bag_id}/tasks", commands)
                    taken += len(commands)
                if closed:
                    self._patiently("POST", f"/v1/bags/{self.bag_id}/close", None)
                    return
            except Exception as error:
                self._give_up(error)
                return

    def _patiently(self, method: str, path: str, commands: list[str] | None) -> None:
        while True:
            try:
                lines = (
                    None if commands is None else "".join(json.dumps(c) + "\n" for c in commands)
                )
                self._ask(method, path, lines)
                return
            except SiteError as error:
                if commands is not None or not error.transient:
                    # whether they were taken is not known: to hand them over again might double
                    # them
                    raise
                time.sleep(_PAUSE_S)

    def _read(self) -> None:
        """Results come as they are; a broken connection is taken up again where it broke."""
        lines = 0
        while not self._over:
            try:
                with self._open_url(
                    f"/v1/bags/{self.bag_id}/results?follow=true&skip={lines}"
                ) as answer:
                    for line in answer:
                        lines += 1
                        self._heard(json.loads(line))
                if self._ask("GET", f"/v1/bags/{self.bag_id}")["state"] in (
                    "done",
                    "failed",
                    "cancelled",
                ):
                    break
            except (OSError, ValueError, SiteError, http.client.HTTPException):
                time.sleep(_PAUSE_S)
        self._give_up(CancelledError("its bag ended without it"))

    def _heard(self, told: Mapping[str, Any]) -> None:
        if not told["final"]:
            return
        with self._lock:
            future = self._futures.pop(told["task"], None)
        if future is not None and not future.done():
            names = ("task", "command", "code", "out", "err", "ran_s", "host")
            future.set_result(TaskResult(**{name: told[name] for name in names}))

    def _give_up(self, error: BaseException) -> None:
        self._over = True
        with self._lock:
            self._closed = True
            left, self._futures = list(self._futures.values()), {}
        for future in left:
            if not future.done():
                future.set_exception(error)


class BagCalls:
    """What :class:`vgrads.portal.client.Client` can ask about bags."""

    _ask: Ask

    def submit_bag(self, document: Mapping[str, Any]) -> str:
        """Hand over a bag of tasks; its id."""
        return str(self._ask("POST", "/v1/bags", document)["id"])

    def read_bag(self, bag_id: str) -> dict[str, Any]:
        """How a bag stands, and the hosts of its dispatcher."""
        return self._ask("GET", f"/v1/bags/{bag_id}")

    def list_bags(self) -> list[dict[str, Any]]:
        """The newest bags."""
        rows: Any = self._ask("GET", "/v1/bags")
        return list(rows)

    def cancel_bag(self, bag_id: str) -> None:
        """Drop what has not ended of a bag."""
        self._ask("DELETE", f"/v1/bags/{bag_id}")

    def add_tasks(self, bag_id: str, commands: Iterable[str]) -> int:
        """Add commands to an open bag, streamed; how many were taken."""
        return int(self._ask("POST", f"/v1/bags/{bag_id}/tasks", _blocks(commands))["taken"])

    def close_bag(self, bag_id: str) -> None:
        """No more tasks come to an open bag."""
        self._ask("POST", f"/v1/bags/{bag_id}/close")

    def explain_task(self, bag_id: str, task: int) -> dict[str, Any]:
        """Why a task of a bag stands where it stands."""
        return self._ask("GET", f"/v1/bags/{bag_id}/tasks/{task}")

    def bag_results(
        self, bag_id: str, follow: bool = True, skip: int = 0
    ) -> Iterator[dict[str, Any]]:
        """How each attempt ended, as it does; with ``follow`` until the bag has ended."""
        path = f"/v1/bags/{bag_id}/results?follow={str(follow).lower()}&skip={skip}"
        with self._open(path) as answer:
            for line in answer:
                yield json.loads(line)

    def tasks(self, name: str = "tasks", **options: object) -> Tasks:
        """An open bag to put commands into; ``options`` as in a bag's document (``procs``,
        ``retries``, ``sites``, …)."""
        return Tasks(self._ask, self._open, {"name": name, **options})

    def map(self, command: str, params: Iterable[Any], **options: Any) -> Iterator[TaskResult]:
        """The results of a command for each value of its parameters, in their order, as they
        come."""
        tasks = self.tasks(**options)
        found = tasks.map(command, params)
        tasks.shutdown(wait=False)
        return found

    def _open(self, path: str) -> Any:
        raise NotImplementedError


def _blocks(commands: Iterable[str]) -> Iterator[bytes]:
    """Commands as JSON lines, many at a time: each block is a write to the connection."""
    left = iter(commands)
    while lines := [json.dumps(command) for command in islice(left, _BLOCK)]:
        yield ("\n".join(lines) + "\n").encode()

"""Bag tasks from Python, in the style of :mod:`concurrent.futures`; standard library only.

with Client("http://127.0.0.1:8080") as client:
    for result in client.map("python sim.py --seed {}", range(1000)):
        print(result.out)

    done = client.tasks(name="sweep").submit("sleep 1")     # a concurrent.futures.Future
"""

from __future__ import annotations

import http.client
import json
import shlex
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from string import Formatter
from typing import IO, Any
from urllib.parse import quote

from vgrads.kernel.errors import SiteError

Ask = Callable[..., dict[str, Any]]
_BLOCK = 1000
_RESULT = ("task", "command", "code", "out", "err", "ran_s", "host", "value")
_PAUSE_S = 1.0
_TERMINAL = ("done", "failed", "cancelled")
_STATES = ("waiting", "running", "done", "failed", "dropped")


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of a task: its exit code (None: no agent could run it), the ends of its output, and
    the value of a function, packed, in base64."""

    task: int
    command: str
    code: int | None
    out: str = ""
    err: str = ""
    ran_s: float = 0.0
    host: str = ""
    value: str = ""

    @property
    def ok(self) -> bool:
        """Return True where it succeeded."""
        return self.code == 0


def command_of(template: str, values: object) -> str:
    """Insert parameters into a command, each as one word of the shell: a mapping for ``{name}``, a
    tuple or one value for ``{}``; ``{name:raw}`` inserts one unchanged."""
    positional = values if isinstance(values, tuple) else (values,)
    results, at = [], 0
    for before, name, form, _ in Formatter().parse(template):
        results.append(before)
        if name is None:
            continue
        if isinstance(values, Mapping):
            value = values[name]
        else:
            value = positional[int(name) if name else at]
            at += 1
        results.append(str(value) if form == "raw" else shlex.quote(str(value)))
    return "".join(results)


class ResultFutures:
    """The results of a bag as they arrive, as futures of :class:`TaskResult`. ``ask``: sends a
    request to the service."""

    def __init__(self, ask: Ask, open_url: Callable[[str], Any], bag_id: str) -> None:
        self._ask, self._open_url, self.bag_id = ask, open_url, bag_id
        self._futures: dict[int, Future[TaskResult]] = {}
        self._lock, self._over = threading.Lock(), False
        self._reader = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        """Read results as they arrive; a broken connection is restored at the same position."""
        lines = 0
        while not self._over:
            try:
                with self._open_url(
                    f"/v1/bags/{self.bag_id}/results?follow=true&skip={lines}"
                ) as answer:
                    for line in answer:
                        lines += 1
                        self._on_results(json.loads(line))
                if self._ask("GET", f"/v1/bags/{self.bag_id}")["state"] in _TERMINAL:
                    break
            except (OSError, ValueError, SiteError, http.client.HTTPException):
                time.sleep(_PAUSE_S)
        self._abandon(CancelledError("the bag ended before the task was done"))

    def _on_results(self, payload: Mapping[str, Any]) -> None:
        if not payload["final"]:
            return
        with self._lock:
            future = self._future_of(payload["task"])
        if future is not None and not future.done():
            fields = {name: payload[name] for name in _RESULT if name in payload}
            future.set_result(TaskResult(**fields))

    def _future_of(self, task: int) -> Future[TaskResult] | None:
        """Return the future of a task that has ended, while the lock is held."""
        return self._futures.pop(task, None)

    def _abandon(self, error: BaseException) -> None:
        with self._lock:
            self._over = True
            left = list(self._futures.values())
        for future in left:
            if not future.done():
                future.set_exception(error)


class OpenBag(ResultFutures):
    """An open bag: takes commands, returns futures of :class:`TaskResult`."""

    def __init__(
        self, ask: Ask, open_url: Callable[[str], Any], document: Mapping[str, Any]
    ) -> None:
        bag_id = str(ask("POST", "/v1/bags", {**document, "open": True})["id"])
        super().__init__(ask, open_url, bag_id)
        self._commands: deque[str] = deque()
        self._count = 0
        self._news, self._closed = threading.Event(), False
        self._sent, self._sending = threading.Condition(self._lock), False
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()
        self._reader.start()

    @property
    def count(self) -> int:
        """Return how many tasks were submitted."""
        return self._count

    def submit(self, command: str) -> Future[TaskResult]:
        """Submit a task. Tasks submitted during a request are sent together."""
        if not command.strip() or "\0" in command:
            raise ValueError("a command must be a non-empty string")
        future: Future[TaskResult] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("no more tasks can be submitted: this object was shut down")
            self._futures[self._count] = future
            self._count += 1
            self._commands.append(command)
        self._news.set()
        return future

    def drop(self, tasks: Iterable[int]) -> set[int]:
        """Drop those of these tasks that no agent has; their futures are never completed. Return
        them."""
        with self._sent:
            self._sent.wait_for(lambda: not self._commands and not self._sending)
            if self._over:
                return set()
        request = {"tasks": list(tasks)}
        dropped = set(self._ask("POST", f"/v1/bags/{self.bag_id}/drop", request)["tasks"])
        with self._lock:
            for task in dropped:
                self._futures.pop(task, None)
        return dropped

    def map(self, command: str, params: Iterable[Any]) -> Iterator[TaskResult]:
        """Yield the results of a command for each value of its parameters, in order, as they
        arrive."""
        futures = [self.submit(command_of(command, values)) for values in params]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Close the bag; wait for its tasks, or cancel them."""
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

    def __enter__(self) -> OpenBag:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def _send(self) -> None:
        """Send commands to the service in bundles, in order; requests without an answer are
        retried."""
        while True:
            self._news.wait()
            self._news.clear()  # commands that come during a request are sent together
            with self._lock:
                commands, closed = list(self._commands), self._closed
                self._commands.clear()
                self._sending = True
            try:
                if commands:
                    self._with_backoff("POST", f"/v1/bags/{self.bag_id}/tasks", commands)
                with self._sent:
                    self._sending = False
                    self._sent.notify_all()
                if closed:
                    self._with_backoff("POST", f"/v1/bags/{self.bag_id}/close", None)
                    return
            except Exception as error:
                self._abandon(error)
                return

    def _with_backoff(self, method: str, path: str, commands: list[str] | None) -> None:
        while True:
            try:
                lines = (
                    None if commands is None else "".join(json.dumps(c) + "\n" for c in commands)
                )
                self._ask(method, path, lines)
                return
            except SiteError as error:
                if commands is not None or not error.transient:
                    # it is unknown whether they were accepted: sending them again might duplicate
                    # them
                    raise
                time.sleep(_PAUSE_S)

    def _abandon(self, error: BaseException) -> None:
        with self._sent:
            self._closed, self._sending = True, False
            self._sent.notify_all()
        super()._abandon(error)


class FollowedBag(ResultFutures):
    """A bag that another program submitted, as its results arrive."""

    def __init__(self, ask: Ask, open_url: Callable[[str], Any], bag_id: str) -> None:
        super().__init__(ask, open_url, bag_id)
        self._reader.start()

    def has(self, task: int) -> bool:
        """Return True if the bag has this task. Raise InputError where there is no such bag."""
        bag = self._ask("GET", f"/v1/bags/{self.bag_id}")
        return task < sum(int(bag.get(name, 0)) for name in _STATES)

    def future(self, task: int) -> Future[TaskResult]:
        """Return the future of a task."""
        with self._lock:
            future = self._futures.setdefault(task, Future())
            if self._over and not future.done():
                future.set_exception(CancelledError("the bag ended before the task was done"))
            return future

    def _future_of(self, task: int) -> Future[TaskResult]:
        return self._futures.setdefault(task, Future())  # requested before or after its end


class BagCalls:
    """Calls of :class:`vgrads.portal.client.Client` for bags."""

    _ask: Ask
    _url: str

    def submit_bag(self, document: Mapping[str, Any]) -> str:
        """Submit a bag of tasks; return its id."""
        return str(self._ask("POST", "/v1/bags", document)["id"])

    def url_of(self, bag_id: str) -> str:
        """Return the address of a bag."""
        return f"{self._url}/v1/bags/{bag_id}"

    def read_bag(self, bag_id: str) -> dict[str, Any]:
        """Return the status of a bag, and the agents of its dispatcher."""
        return self._ask("GET", f"/v1/bags/{bag_id}")

    def list_bags(self) -> list[dict[str, Any]]:
        """Return the newest bags."""
        rows: Any = self._ask("GET", "/v1/bags")
        return list(rows)

    def cancel_bag(self, bag_id: str) -> None:
        """Cancel the remaining tasks of a bag."""
        self._ask("DELETE", f"/v1/bags/{bag_id}")

    def delete_bag_records(self, bag_id: str) -> None:
        """Delete a bag that has ended; its folder stays."""
        self._ask("DELETE", f"/v1/bags/{bag_id}/records")

    def add_tasks(self, bag_id: str, commands: Iterable[str]) -> int:
        """Add commands to an open bag, streamed; return how many were accepted."""
        return int(self._ask("POST", f"/v1/bags/{bag_id}/tasks", _encode_blocks(commands))["taken"])

    def close_bag(self, bag_id: str) -> None:
        """Close an open bag: no more tasks can be added."""
        self._ask("POST", f"/v1/bags/{bag_id}/close")

    def put_part(self, bag_id: str, digest: str, pieces: Iterable[Any], size: int) -> None:
        """Store a large part of calls of functions, packed, under its SHA-256. ``pieces``: its
        bytes, of which there are ``size``."""
        length = {"Content-Length": str(size)}
        self._ask("PUT", f"/v1/bags/{bag_id}/parts/{digest}", pieces, length)

    def read_output(self, bag_id: str, name: str, file: IO[bytes]) -> None:
        """Write an output of a bag's task to an open file."""
        with self._open(f"/v1/bags/{bag_id}/outputs/{quote(name)}") as answer:
            shutil.copyfileobj(answer, file, 1 << 20)

    def drop_tasks(self, bag_id: str, tasks: Iterable[int]) -> list[int]:
        """Drop those of these tasks of a bag that no agent has; return them."""
        answer = self._ask("POST", f"/v1/bags/{bag_id}/drop", {"tasks": list(tasks)})
        return list(answer["tasks"])

    def explain_task(self, bag_id: str, task: int) -> dict[str, Any]:
        """Explain the state of a task of a bag."""
        return self._ask("GET", f"/v1/bags/{bag_id}/tasks/{task}")

    def bag_results(
        self, bag_id: str, follow: bool = True, skip: int = 0
    ) -> Iterator[dict[str, Any]]:
        """Yield the result of each attempt in real time; with ``follow`` until the bag is
        terminal."""
        path = f"/v1/bags/{bag_id}/results?follow={str(follow).lower()}&skip={skip}"
        with self._open(path) as answer:
            for line in answer:
                yield json.loads(line)

    def earlier_bag(self, bag_id: str) -> FollowedBag:
        """Return a bag that another program submitted, to receive its results."""
        return FollowedBag(self._ask, self._open, bag_id)

    def tasks(self, name: str = "tasks", **options: object) -> OpenBag:
        """Create an open bag for commands; ``options`` as in a bag's document (``procs``,
        ``retries``, ``sites``, …)."""
        return OpenBag(self._ask, self._open, {"name": name, **options})

    def map(self, command: str, params: Iterable[Any], **options: Any) -> Iterator[TaskResult]:
        """Yield the results of a command for each value of its parameters, in order, as they
        arrive."""
        tasks = self.tasks(**options)
        results = tasks.map(command, params)
        tasks.shutdown(wait=False)
        return results

    def _open(self, path: str) -> Any:
        raise NotImplementedError


def _encode_blocks(commands: Iterable[str]) -> Iterator[bytes]:
    """Encode commands as JSON lines, many at a time: each block is one write to the connection."""
    left = iter(commands)
    while lines := [json.dumps(command) for command in islice(left, _BLOCK)]:
        yield ("\n".join(lines) + "\n").encode()

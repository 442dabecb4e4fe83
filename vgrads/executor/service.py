"""Calls of functions through a service."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from vgrads.agent.functions.packing import packed_size, pieces_of
from vgrads.api.bags.open_calls import Ended, OnEnds
from vgrads.dispatch.core.tasks import ASSIGNED, WORDS
from vgrads.kernel.errors import InputError, SiteError, VgradsError
from vgrads.portal.client import Client
from vgrads.portal.client_bags import FollowedBag, OpenBag, TaskResult

_SLICE = 1 << 20  # bytes
_RUNS = WORDS[ASSIGNED]


class ServiceCalls:
    """An open bag of calls of a service."""

    def __init__(self, client: Client, document: Mapping[str, Any], on_ends: OnEnds) -> None:
        fields = {name: value for name, value in document.items() if name != "open"}
        self._client, self._on_ends = client, on_ends
        self._bag: OpenBag = client.tasks(**fields)
        self.address = client.url_of(self._bag.bag_id)
        self._stored: set[str] = set()

    def put(self, digest: str, parts: Sequence[Any]) -> None:
        if digest in self._stored:
            return
        size = packed_size(parts)
        try:
            self._client.put_part(self._bag.bag_id, digest, _slice_parts(parts), size)
        except InputError as error:
            raise InputError(
                f"{size >> 20} MiB of a call cannot be sent: {error}",
                fix="pass the name of a file, or have the service raise 'max_upload_mib'",
            ) from error
        self._stored.add(digest)

    def add(self, commands: Sequence[str]) -> None:
        for command in commands:
            future = self._bag.submit(command)
            number = self._bag.count - 1
            future.add_done_callback(
                partial(_pass_on, self._client, self._bag.bag_id, number, self._on_ends)
            )

    def cancel(self, tasks: Sequence[int]) -> set[int]:
        try:
            return self._bag.drop(tasks)
        except (InputError, SiteError):  # the bag has ended, or nobody answers: they stay
            return set()

    def is_running(self, task: int) -> bool:
        try:
            return bool(self._client.explain_task(self._bag.bag_id, task)["state"] == _RUNS)
        except (InputError, SiteError):  # not sent yet, or nobody answers
            return False

    def cancel_all(self) -> None:
        """Cancel all calls, also those that run."""
        with suppress(InputError, SiteError):
            self._client.cancel_bag(self._bag.bag_id)

    def close(self) -> None:
        self._bag.shutdown(wait=False)

    def join(self) -> None:
        """Wait for the ends of all calls."""
        self._bag.shutdown(wait=True)


def _slice_parts(parts: Sequence[Any]) -> Iterator[memoryview]:
    """Yield packed parts in pieces that are each sent within the timeout of a connection."""
    for part in pieces_of(parts):
        piece = memoryview(part)
        for begin in range(0, len(piece), _SLICE):
            yield piece[begin : begin + _SLICE]


def _pass_on(
    client: Client, bag_id: str, number: int, on_ends: OnEnds, future: Future[TaskResult]
) -> None:
    """Pass on the end of a task."""
    try:
        result = future.result()
        file = None
        # a large value is not in the result, but a file of its own
        if result.code == 0 and not result.value:
            file = _fetch_value(client, bag_id, f"{number}.value")
        how = "no node could run it" if result.code is None else f"exit code {result.code}"
        printed = (result.value, result.out, result.err, how)
        ended = Ended(number, result.code, *printed, result.ran_s, file, file is not None)
    # whoever waits for the call must get an end, whatever happens here
    except BaseException as error:
        ended = Ended(number, None, how=str(error))
    on_ends([ended])


def _fetch_value(client: Client, bag_id: str, name: str) -> Path:
    """Return a large value as a temporary file."""
    with tempfile.NamedTemporaryFile(prefix="vgrads-", delete=False) as file:
        try:
            client.read_output(bag_id, name, file)
        except VgradsError:
            Path(file.name).unlink()
            raise
    return Path(file.name)


class ServiceChannel:
    """A service, as executors see it. ``goes_on``: its calls outlive the program."""

    def __init__(self, url: str, token: str, goes_on: bool) -> None:
        self.places, self._goes_on = 8, goes_on
        self._client = Client(url, token=token)
        self._calls: list[ServiceCalls] = []
        self._earlier: dict[str, FollowedBag] = {}
        self._interrupted = False

    def open(self, document: Mapping[str, Any], on_ends: OnEnds) -> ServiceCalls:
        calls = ServiceCalls(self._client, document, on_ends)
        self._calls.append(calls)
        return calls

    def attach(self, address: str, task: int, on_ends: OnEnds) -> bool:
        bag_id = address.rpartition("/")[2]
        if address != self._client.url_of(bag_id):  # of another service
            return False
        if bag_id not in self._earlier:
            self._earlier[bag_id] = self._client.earlier_bag(bag_id)
        bag = self._earlier[bag_id]
        try:
            if not bag.has(task):
                return False
        except InputError:  # the service has removed it
            return False
        bag.future(task).add_done_callback(partial(_pass_on, self._client, bag_id, task, on_ends))
        return True

    def interrupt(self) -> None:
        self._interrupted = True
        for calls in () if self._goes_on else self._calls:
            calls.cancel_all()

    def shutdown(self, wait: bool) -> None:
        for calls in self._calls if wait and not self._interrupted else ():
            calls.join()

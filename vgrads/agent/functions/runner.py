"""The program in which functions run: takes a call, runs it, reports its result, takes the next.

``python PROGRAM QUEUE REPLIES CURRENT``: descriptors of the queue of calls, which all interpreters
of an environment share; of the socket for results; of the file that shows the current call. What
functions print goes to standard output and error, two files.

Shipped to nodes with the packages in :data:`vgrads.exchange.function_file`: the standard library
only, Python 3.8 or newer.
"""

from __future__ import annotations

import binascii
import json
import mmap
import os
import pickle
import resource
import socket
import sys
import time
import traceback
from collections import OrderedDict
from typing import Any, Callable, List, Sequence, Union

from .packing import CURRENT, IN_FILE, INLINE, LONGEST, pack, packed_size, unpack, write_packed
from .pickling import CannotBePickled, blame, dump, load, opened

_MOST_FUNCTIONS = 64
Reference = Union[str, List[int]]
"""Where the parts of an object are: the digest of a file, or [begin, end] among the parts that
travelled with the call."""


class Blobs:
    """The files with large parts of calls on this node, by digest."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def parts(self, ref: Reference, inline: Sequence[memoryview]) -> list[memoryview]:
        """Return the parts of an object; ``ref``: [begin, end] among the parts that travelled with
        the call, or the digest of a file."""
        if isinstance(ref, list):
            return list(inline[ref[0] : ref[1]])
        with open(os.path.join(self._folder, ref), "rb") as file:  # noqa: PTH123, PTH118
            return unpack(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


class _ArgumentsUnpickler(pickle.Unpickler):
    """Puts results of earlier calls where their futures stood."""

    def __init__(self, parts: Sequence[memoryview], results: Callable[[int], object]) -> None:
        super().__init__(opened(parts[0]), buffers=parts[1:])
        self._results = results

    def persistent_load(self, pid: int) -> object:
        return self._results(pid)


class FunctionCache:
    """Functions by their pickles: unpickled once."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._by_pickle: OrderedDict[Any, Any] = OrderedDict()

    def of(self, ref: Reference, inline: Sequence[memoryview]) -> Callable[..., object]:
        """Return the function of a reference; ``ref`` as for :meth:`Blobs.parts`."""
        key = bytes(inline[ref[0]]) if isinstance(ref, list) else ref
        if key not in self._by_pickle:
            if len(self._by_pickle) >= _MOST_FUNCTIONS:
                self._by_pickle.popitem(last=False)
            self._by_pickle[key] = load(self._blobs.parts(ref, inline))
        function: Callable[..., object] = self._by_pickle[key]
        return function


class CallRunner:
    """Runs calls in this process."""

    def __init__(self, blobs: str) -> None:
        self._blobs = Blobs(blobs)
        self._functions = FunctionCache(self._blobs)
        self._ready: set[str] = set()

    def result_of(self, text: str, setup: str = "") -> tuple[int, list[Any]]:
        """Return the exit code of a call, 0 or 1, and the parts of its value or its exception."""
        try:
            if setup and setup not in self._ready:
                self._set_up(setup)
            value = self._run(self._parts_of_call(text))
        except BaseException as error:
            return 1, _dump_error(error)
        try:
            return 0, dump(value)
        except Exception as error:
            return 1, _dump_error(_explain_pickling_error(value, error))
        except BaseException as error:
            return 1, _dump_error(error)

    def _parts_of_call(self, text: str) -> list[memoryview]:
        if text.startswith(IN_FILE):
            return self._blobs.parts(text[len(IN_FILE) :], ())
        return unpack(binascii.a2b_base64(text))

    def _run(self, parts: Sequence[memoryview]) -> object:
        head = json.loads(bytes(parts[0]))
        here = "{}.{}".format(*sys.version_info[:2])
        if head["python"] != here:
            raise RuntimeError(
                f"the function was pickled by Python {head['python']}, and the node runs Python "
                f"{here}: name an environment with the same version"
            )
        function = self._functions.of(head["function"], parts)
        earlier, blobs = head.get("results") or (), self._blobs
        arguments = blobs.parts(head["arguments"], parts)
        if not earlier:
            positional, named = load(arguments)
        else:
            positional, named = _ArgumentsUnpickler(
                arguments, lambda number: load(blobs.parts(earlier[number], parts))
            ).load()
        return function(*positional, **named)

    def _set_up(self, digest: str) -> None:
        """Extend the path of modules and call the initializer, once."""
        path, initializer = load(self._blobs.parts(digest, ()))
        sys.path += [folder for folder in path if folder not in sys.path]
        if initializer is not None:
            function, arguments = load(unpack(initializer))
            function(*arguments)
        self._ready.add(digest)


def _explain_pickling_error(value: object, error: BaseException) -> BaseException:
    """Return the error of a result that cannot be pickled, with the attribute at fault."""
    where = blame(value)
    return CannotBePickled(f"the result cannot be pickled: {error}{where}")


def _dump_error(error: BaseException) -> list[Any]:
    """Return the parts of (the packed exception, its traceback as text, its name and text): where
    it is read, its class may be missing."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    words = f"{type(error).__qualname__}: {_format_error(error)}"
    try:
        parts = dump(error)
        load([memoryview(part) for part in parts])  # some are pickled and cannot be read
    except BaseException:
        parts = dump(RuntimeError(words))
    return dump((pack(parts), text, words))


def _shorten_exception(parts: list[Any]) -> list[Any]:
    """Return an exception that fits a report: its type and its beginning in words."""
    _, text, words = load([memoryview(part) for part in parts])
    short = words[:2000]
    return dump((pack(dump(RuntimeError(short))), text[-8000:], short))


def _format_error(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "(no text)"


def _take_tail(descriptor: int, most: int) -> str:
    """Return the last bytes printed to a file, and empty it."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    if not size:
        return ""
    tail = os.pread(descriptor, most, max(0, size - most))
    os.ftruncate(descriptor, 0)
    return tail.decode("utf-8", "replace")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue


def report(
    number: int, outcome: tuple[int, list[Any]], used: Sequence[float], place: str, most: int
) -> bytes:
    """Return the report of a call. A large value is written to the file ``place``."""
    code, parts = outcome
    value, in_file = "", False
    if code and packed_size(parts) > INLINE:
        parts = _shorten_exception(parts)
    if packed_size(parts) <= INLINE:
        value = binascii.b2a_base64(pack(parts), newline=False).decode()
    else:
        os.makedirs(os.path.dirname(place), mode=0o700)  # noqa: PTH103, PTH120
        with open(place, "wb") as file:  # noqa: PTH123
            write_packed(parts, file)
        in_file = True
    most = min(most, (LONGEST - len(value) - 1024) // 12)  # six bytes a character, two streams
    printed = [_take_tail(1, most), _take_tail(2, most)]
    return json.dumps([number, code, *used, *printed, value, in_file]).encode()


def main(words: Sequence[str]) -> None:
    """Run calls until the queue is closed."""
    queue, replies = (socket.socket(fileno=os.dup(int(word))) for word in words[:2])
    current = mmap.mmap(int(words[2]), CURRENT.size)
    for word in words[:3]:  # not for what functions start
        os.close(int(word))
    sys.argv = [""]
    runners: dict[str, CallRunner] = {}
    process = os.getpid()
    while True:
        message = queue.recv(LONGEST)
        if not message:
            return
        number, text, setup, blobs, place, most = json.loads(message)
        begun_s, cpu_s = time.monotonic(), time.process_time()
        CURRENT.pack_into(current, 0, number, begun_s)
        runner = runners.get(blobs) or runners.setdefault(blobs, CallRunner(blobs))
        outcome = runner.result_of(text, setup)
        if os.getpid() != process:  # a child that the function forked
            _flush()
            os._exit(0)
        _flush()
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        used = [
            round(time.monotonic() - begun_s, 6),
            round(time.process_time() - cpu_s, 6),
            round(peak_mib, 1),
        ]
        try:
            body = report(number, outcome, used, place, most)
        except OSError as error:  # a full disk
            body = report(number, (1, _dump_error(error)), used, place, most)
        replies.sendall(body)
        CURRENT.pack_into(current, 0, 0, 0.0)  # last: whoever dies before has not reported it

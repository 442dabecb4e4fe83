"""Calls of functions as commands of a bag, and their values and exceptions."""

from __future__ import annotations

import binascii
import hashlib
import io
import json
import mmap
import os
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import cloudpickle

from vgrads.agent import functions
from vgrads.agent.functions.packing import IN_FILE, INLINE, pack, packed_size, unpack, write_packed
from vgrads.agent.functions.pickling import PLAIN, CannotBePickled, blame, dump, opened
from vgrads.exchange.function_file import SHIPPED_PACKAGE
from vgrads.kernel.errors import VgradsError

PYTHON = "{}.{}".format(*sys.version_info[:2])
_LONGEST_CALL = 72 << 10
"""A call whose parts are larger together, as one of many small results, is a file as a whole: its
text, a third longer, must fit a message to an interpreter."""
_INLINE_AGAIN = 2 << 10  # bytes of what many calls have in common
_MOST_LABEL = 60


class TaskFailed(VgradsError):
    """A call that did not return and raised nothing: its process ended, or no node could run it."""


class RemoteTraceback(Exception):
    """The traceback of an exception on its node; the cause of that exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class _ValueUnpickler(pickle.Unpickler):
    """Reads what the program on a node has pickled: classes of its own are those of this package,
    from which it was built."""

    def find_class(self, module: str, name: str) -> object:
        package, _, rest = module.partition(".")
        return super().find_class(
            f"{functions.__name__}.{rest}" if package == SHIPPED_PACKAGE else module, name
        )


class PartStore(Protocol):
    """Where large parts of calls are put, by digest."""

    def put(self, digest: str, parts: Sequence[Any]) -> None:
        """Store packed parts under the digest of the packed bytes, if they are not there."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Replaces futures by their numbers."""

    def __init__(
        self, file: io.BytesIO, buffers: list[pickle.PickleBuffer], futures: list[Future[Any]]
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self._futures = futures

    def persistent_id(self, obj: object) -> int | None:
        if not isinstance(obj, Future):
            return None
        self._futures.append(obj)
        return len(self._futures) - 1


def dump_arguments(
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
) -> tuple[list[Any], list[Future[Any]]]:
    """Return the parts of arguments, positional and named, and the futures in them: their results
    are inserted where they stand. Raise CannotBePickled, naming the part at fault."""
    positional, named = arguments
    # plain values hold no futures: the pickler of the standard library suffices
    if not named and all(type(item) in PLAIN for item in positional):
        return [pickle.dumps(arguments, 5)], []
    buffers: list[pickle.PickleBuffer] = []
    futures: list[Future[Any]] = []
    file = io.BytesIO()
    try:
        _Pickler(file, buffers, futures).dump(arguments)
    except Exception as error:
        raise _explain_error("an argument", arguments, error) from error
    return [file.getvalue(), *(buffer.raw() for buffer in buffers)], futures


def dump_named(what: str, value: object) -> list[Any]:
    """Return the parts of an object. Raise CannotBePickled, naming the part at fault."""
    try:
        return dump(value)
    except Exception as error:
        raise _explain_error(what, value, error) from error


def _explain_error(what: str, value: object, error: Exception) -> CannotBePickled:
    return CannotBePickled(f"{what} cannot be pickled: {error}{blame(value)}")


class CallEncoder:
    """Encodes calls of one bag."""

    def __init__(self, parts: PartStore) -> None:
        self._parts = parts
        self._functions = FunctionPickles(partial(dump_named, "the function"))
        self._stored: dict[bytes, str] = {}

    def command(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        results: Sequence[Sequence[Any]] = (),
    ) -> str:
        """Return the command of a call. ``arguments``: packed; ``results``: of the futures in them,
        packed."""
        inline: list[Any] = []
        digests: list[str] = []

        def ref(parts: Sequence[Any], again: bool = False) -> str | list[int]:
            if packed_size(parts) <= (_INLINE_AGAIN if again else INLINE):
                inline.extend(parts)
                # part 0 of the command is the head
                return [len(inline) - len(parts) + 1, len(inline) + 1]
            digests.append(self._digest(parts, again))
            return digests[-1]

        head: dict[str, Any] = {
            "python": PYTHON,
            "function": ref(self._functions.parts(function), again=True),
            "arguments": ref(arguments),
        }
        if results:
            head["results"] = [ref(result) for result in results]
        parts = [json.dumps(head).encode(), *inline]
        if packed_size(parts) > _LONGEST_CALL:
            digests.append(self._digest(parts, again=False))
            text = f"{IN_FILE}{digests[-1]}"
        else:
            text = binascii.b2a_base64(pack(parts), newline=False).decode()
        return f"{_label(function)}\t{text}\t{','.join(digests)}"

    def _digest(self, parts: Sequence[Any], again: bool) -> str:
        """Store large parts and return their digest; ``again``: the same object is expected."""
        key = bytes(parts[0]) if again and len(parts) == 1 else b""
        if key in self._stored:
            return self._stored[key]
        digest = digest_of(parts)
        self._parts.put(digest, parts)
        if key:
            self._stored[key] = digest
        return digest


class _Sum:
    """A file that is only summed."""

    def __init__(self) -> None:
        self.sum = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        self.sum.update(data)
        return len(data)


def digest_of(parts: Sequence[Any]) -> str:
    """Return the SHA-256 of packed parts."""
    file = _Sum()
    write_packed(parts, file)
    return file.sum.hexdigest()


def _label(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "") or type(function).__qualname__
    return f"{name.rpartition('.<locals>.')[2][:_MOST_LABEL]}()"


def parts_of_value(text: str, file: Path | None) -> list[memoryview]:
    """Return the parts of a value: from its report, or from its file, which is not copied."""
    if text:
        return unpack(binascii.a2b_base64(text))
    if file is None:
        return []
    with file.open("rb") as opened:
        # an empty file cannot be mapped
        if not os.fstat(opened.fileno()).st_size:
            return []
        # users may change a value in place, which must not change the file
        return unpack(memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)))


def outcome(parts: Sequence[memoryview], code: int | None, why: str) -> tuple[bool, Any]:
    """Return whether a call returned, and its value or exception. ``why``: what was reported of it,
    of which the last line is the reason where it has no value."""
    if not parts:
        lines = [line for line in why.splitlines() if line.strip()] or ["no reason was reported"]
        return False, TaskFailed(f"the call was not completed: {lines[-1]}")
    try:
        value = _ValueUnpickler(opened(parts[0]), buffers=parts[1:]).load()
    except BaseException as error:  # also an exit: it would end the thread of all results
        return False, TaskFailed(f"its value cannot be read here: {error!r}")
    if code == 0:
        return True, value
    packed, text, words = value
    exception = _decode_exception(packed, words)
    exception.__cause__ = RemoteTraceback(text)
    return False, exception


def _decode_exception(packed: bytes, words: str) -> BaseException:
    """Return a packed exception; TaskFailed with its name and text where its class cannot be read
    here."""
    try:
        first, *more = unpack(memoryview(packed))
        result = _ValueUnpickler(opened(first), buffers=more).load()
    except BaseException as error:
        return TaskFailed(f"{words} (its class cannot be read here: {error!r})")
    return result if isinstance(result, BaseException) else TaskFailed(words)


class FunctionPickles:
    """Packed parts of functions. None is referenced from here: what a function holds is freed when
    its user drops it."""

    def __init__(self, dump: Callable[[Callable[..., Any]], list[Any]]) -> None:
        self._dump = dump
        self._stored: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def parts(self, function: Callable[..., Any]) -> list[Any]:
        """Return the parts of a function as it is now."""
        if not is_constant(function):
            return self._dump(function)
        parts = self._stored.get(function)
        if parts is None:
            parts = self._stored[function] = self._dump(function)
        return parts


def is_constant(function: Callable[..., Any]) -> bool:
    """Return True where a function's pickle stays the same: it is pickled by its name, or refers to
    nothing that could change between two calls (closure, default, global variable)."""
    if not isinstance(function, types.FunctionType):
        return False
    if _is_importable(function):
        return True
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        return False
    if function.__dict__:
        return False
    scope = function.__globals__
    return all(
        isinstance(scope[name], types.ModuleType)
        for name in _list_names(function.__code__)
        if name in scope
    )


def _is_importable(function: types.FunctionType) -> bool:
    if function.__module__ == "__main__" or "<" in function.__qualname__:
        return False
    value: object = sys.modules.get(function.__module__ or "")
    for name in function.__qualname__.split("."):
        value = getattr(value, name, None)
    return value is function


def _list_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _list_names(constant)

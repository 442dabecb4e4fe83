"""Pickles of functions, reused only where a second one could not differ."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any


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
        for name in _names(function.__code__)
        if name in scope
    )


def _is_importable(function: types.FunctionType) -> bool:
    if function.__module__ == "__main__" or "<" in function.__qualname__:
        return False
    value: object = sys.modules.get(function.__module__ or "")
    for name in function.__qualname__.split("."):
        value = getattr(value, name, None)
    return value is function


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)

"""Functions that numba compiles, once that pays: loading it takes half a second, a single answer a
thousandth.

A function has one text and two forms: as Python runs it, and compiled. Both call their like: parts
of the plain form are plain, parts of the compiled one compiled. Both must give the same to the last
digit, so such functions add up in loops (numpy's sums go by pairs) and take logarithms from
``math`` (numpy's may differ in the last digit).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Generic, ParamSpec, TypeVar, cast

Given = ParamSpec("Given")
Result = TypeVar("Result")

_WORTH = 50_000  # steps of plain loops, about a microsecond each: a tenth of a second


class Compiled(Generic[Given, Result]):
    """A function of numbers and arrays. Called, it is the compiled one."""

    def __init__(self, body: Callable[Given, Result]) -> None:
        assert isinstance(body, FunctionType)
        self.__doc__, self._body, self._done = body.__doc__, body, 0

    def __call__(self, *arguments: Given.args, **named: Given.kwargs) -> Result:
        return self.fast(*arguments, **named)

    def after(self, steps: int) -> Callable[Given, Result]:
        """The form to call for so many steps: the plain one until all that it was called for would
        have paid for loading the compiled one."""
        self._done += steps
        return self.plain if self._done <= _WORTH else self.fast

    @cached_property
    def plain(self) -> Callable[Given, Result]:
        """As Python runs it."""
        return self._linked("plain")

    @cached_property
    def fast(self) -> Callable[Given, Result]:
        """As numba compiles it; kept on disk for the next process. Threads may run it side by
        side."""
        from numba import njit  # noqa: PLC0415 late: what all of this is for

        compile_ = njit(cache=True, nogil=True)
        return cast(Callable[Given, Result], compile_(self._linked("fast")))

    def _linked(self, form: str) -> Callable[Given, Result]:
        """The function with every part that it calls in this form."""
        body, known = self._body, self._body.__globals__
        parts = {
            name: getattr(known[name], form)
            for name in body.__code__.co_names
            if isinstance(known.get(name), Compiled)
        }
        same = FunctionType(body.__code__, known | parts, body.__name__, body.__defaults__)
        same.__qualname__ = body.__qualname__
        return cast(Callable[Given, Result], same)


def compiled(body: Callable[Given, Result]) -> Compiled[Given, Result]:
    """To be written above a function."""
    return Compiled(body)

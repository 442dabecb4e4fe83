"""Functions that numba compiles once that pays off: to load it takes half a second, to compile a
large function three, and a single call a thousandth.

A function has one text and two forms: plain Python, and compiled. Both call functions of their own
form: parts of the plain form are plain, parts of the compiled one compiled. Both must return the
same to the last digit, so such functions sum in loops (numpy sums pairwise) and take logarithms
from ``math`` (numpy's may differ in the last digit).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Generic, ParamSpec, TypeVar, cast

from vgrads.kernel.compile_state import preparation

Params = ParamSpec("Params")
Result = TypeVar("Result")

_CACHE = 5
"""Part of the names of numba's cache files. Raise it when a class that a compiled signature names
is renamed or moved: numba pickles such classes and fails to read an older file."""
# what the compiled form costs before its first call, in steps of plain loops, about 1 µs each
_READ = 50_000  # to read it, where numba is in memory
_LOAD = 500_000  # to load numba and read it
_COMPILE = 60_000  # to compile it, for each function that it consists of


class Compiled(Generic[Params, Result]):
    """A function of numbers and arrays. A call uses the compiled form. ``in_place``: it neither
    creates nor returns arrays."""

    def __init__(self, body: Callable[Params, Result], in_place: bool = False) -> None:
        assert isinstance(body, FunctionType)
        self.__doc__, self._body, self._done = body.__doc__, body, 0
        self._in_place = in_place

    def __call__(self, *arguments: Params.args, **named: Params.kwargs) -> Result:
        return self.fast(*arguments, **named)

    def after(self, steps: int) -> Callable[Params, Result]:
        """Return the form to call for this number of steps: the plain one until the total steps
        would have paid for loading the compiled one, or for compiling it where no earlier process
        has."""
        self._done += steps
        if self._done <= _READ or ("fast" not in vars(self) and self._done <= self._cost()):
            return self.plain
        return self.fast

    @property
    def stored(self) -> bool:
        """True if an earlier process has compiled it and stored the result on disk."""
        source = Path(self._body.__code__.co_filename)
        version = f"py{sys.version_info.major}{sys.version_info.minor}"
        name = f"{source.stem}.{self._name}-*.{version}*.nbi"
        try:
            changed_ns = source.stat().st_mtime_ns
            return any(
                # numba compiles anew where the source is newer
                index.stat().st_mtime_ns >= changed_ns
                for folder in _list_cache_folders(source)
                for index in folder.glob(name)
            )
        except OSError:
            return False

    def _cost(self) -> int:
        """Return how many steps of the plain form cost as much as to obtain the compiled one."""
        if self.stored:
            return _READ if "numba" in sys.modules else _LOAD
        return _LOAD + _COMPILE * len(self._consists_of(set()))

    def _consists_of(self, functions: set[str]) -> set[str]:
        """Add the names of all functions that are compiled with it to ``functions``."""
        functions.add(self._name)
        for part in self._parts().values():
            # functions may call each other in a circle
            if part._name not in functions:
                part._consists_of(functions)
        return functions

    @property
    def _name(self) -> str:
        return f"{self._body.__qualname__}_{_CACHE}"

    @cached_property
    def plain(self) -> Callable[Params, Result]:
        """The plain Python form."""
        return self._linked("plain")

    @cached_property
    def fast(self) -> Callable[Params, Result]:
        """The form compiled by numba; cached on disk for the next process. Threads may run it in
        parallel."""
        with preparation():
            from vgrads.kernel.compiling import entry

        return cast(Callable[Params, Result], entry(self._linked("part")))

    @cached_property
    def part(self) -> Callable[Params, Result]:
        """The form that compiled functions call; it becomes machine code as part of these."""
        from vgrads.kernel.compiling import part

        return cast(Callable[Params, Result], part(self._linked("part"), self._in_place))

    def _parts(self) -> dict[str, Compiled[..., object]]:
        """Return the functions of this kind that it calls, by their names in it."""
        names = self._body.__globals__
        return {
            name: names[name]
            for name in self._body.__code__.co_names
            if isinstance(names.get(name), Compiled)
        }

    def _linked(self, form: str) -> Callable[Params, Result]:
        """Return the function with every part that it calls in this form."""
        body = self._body
        parts = {name: getattr(part, form) for name, part in self._parts().items()}
        same = FunctionType(
            body.__code__, body.__globals__ | parts, body.__name__, body.__defaults__
        )
        # numba names its files by it
        same.__qualname__ = self._name
        return cast(Callable[Params, Result], same)


def _list_cache_folders(source: Path) -> Iterator[Path]:
    """Return the folders in which numba stores compiled functions of a module, if it may write
    there (:mod:`numba.core.caching`, whose import is what this avoids)."""
    hashed = hashlib.sha1(str(source.parent).encode(), usedforsecurity=False).hexdigest()
    own = f"{source.parent.name}_{hashed}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen) / own
        return
    yield source.parent / "__pycache__"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    yield cache / "numba" / own


def compiled(body: Callable[Params, Result]) -> Compiled[Params, Result]:
    """Decorate a function that is to be compiled."""
    return Compiled(body)


def compiled_in_place(body: Callable[Params, Result]) -> Compiled[Params, Result]:
    """Decorate a function that is to be compiled and neither creates nor returns arrays: numba does
    not count references in it, which takes most of the time of short functions."""
    return Compiled(body, in_place=True)


def use_stored(module: ModuleType) -> None:
    """Use the compiled forms of a module's functions from now on, where an earlier process has
    stored them: many calls are coming."""
    for value in list(vars(module).values()):
        if isinstance(value, Compiled) and value.stored:
            value.after(_LOAD + 1)  # as if the plain form had run for so long

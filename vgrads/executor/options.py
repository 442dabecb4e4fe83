"""What a call needs of its node, and the decorator that states it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_duration, parse_size_mib

Function = TypeVar("Function", bound=Callable[..., Any])
_NAME = "__vgrads_options__"


@dataclass(frozen=True, slots=True)
class CallOptions:
    """``cores``: processors of one node; ``memory_mib``, ``limit_s``: the call is ended beyond them
    (0: never); ``retries``: after an exception, or the death of its process."""

    cores: int = 1
    memory_mib: float = 0.0
    limit_s: float = 0.0
    retries: int = 0


def call_options(
    cores: int = 1, memory: float | str = 0, limit: float | str = 0, retries: int = 0
) -> CallOptions:
    """Check options. ``memory``: MiB, or text as ``"4GB"``; ``limit``: seconds, or text as
    ``"10m"``."""
    if type(cores) is not int or cores < 1:
        raise InputError(f"{cores!r} is not a whole number of at least 1", where="cores")
    if type(retries) is not int or not 0 <= retries <= 100:
        raise InputError(f"{retries!r} is not a whole number from 0 to 100", where="retries")
    limit_s = parse_duration(limit, "limit") if limit else 0.0
    return CallOptions(cores, parse_size_mib(memory, "memory") if memory else 0.0, limit_s, retries)


def task(
    function: Function | None = None,
    *,
    cores: int = 1,
    memory: float | str = 0,
    limit: float | str = 0,
    retries: int = 0,
) -> Function | Callable[[Function], Function]:
    """State what calls of a function need; :meth:`vgrads.Executor.submit` obeys it. The function
    itself is called as before.

    >>> @task(cores=2, memory="4GB", retries=2)
    ... def simulate(seed):
    ...     return seed
    >>> simulate(3)
    3
    """
    options = call_options(cores, memory, limit, retries)

    def decorate(plain: Function) -> Function:
        @functools.wraps(plain)
        def call(*arguments: object, **named: object) -> object:
            return plain(*arguments, **named)

        setattr(call, _NAME, options)
        return call  # type: ignore[return-value]

    return decorate if function is None else decorate(function)


def options_of(function: Callable[..., Any], default: CallOptions) -> CallOptions:
    """Return the options that a function was decorated with."""
    options: CallOptions = getattr(function, _NAME, default)
    return options


def sets_lock_of_tqdm(initializer: Callable[..., object]) -> bool:
    """Return True for ``tqdm.set_lock``, with which tqdm's own ``process_map`` begins.

    Its lock lets the processes of one terminal print their bars in turn. It cannot be sent to
    another node, and is not needed: what calls print goes to files of their own.
    """
    bar = getattr(sys.modules.get("tqdm"), "tqdm", None)
    function = getattr(initializer, "__func__", None)
    return bar is not None and function is not None and function is bar.set_lock.__func__

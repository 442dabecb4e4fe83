"""posix_spawn(3) while the other threads of this process continue.

``os.posix_spawn`` keeps the interpreter's lock until the child has reached its program, which on a
busy machine takes longer than all other work for a task; the C library's own function, called
through ctypes, does not.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache

_libc = ctypes.CDLL(None)
_ROOM = 1024  # bytes; more than any C library's structures need
_SIGDEF, _SIGMASK, _SETSID = 0x04, 0x08, 0x80  # spawn.h


def _make_attributes() -> ctypes.Array[ctypes.c_char]:
    """Create a new session, with no signal ignored or blocked."""
    child, signals = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
    _libc.posix_spawnattr_init(child)
    _libc.sigemptyset(signals)
    _libc.posix_spawnattr_setsigmask(child, signals)
    _libc.sigfillset(signals)
    _libc.posix_spawnattr_setsigdefault(child, signals)
    _check(_libc.posix_spawnattr_setflags(child, ctypes.c_short(_SIGDEF | _SIGMASK | _SETSID)))
    return child


def spawn(
    words: Sequence[str], environment: Mapping[str, str], descriptors: Mapping[int, int]
) -> int:
    """Start a program, whose path is the first word; return its pid. OSError if that fails.

    ``descriptors``: number in the child → descriptor of this process; all others that are not
    inheritable are closed.
    """
    actions = ctypes.create_string_buffer(_ROOM)
    _check(_libc.posix_spawn_file_actions_init(actions))
    try:
        for there, here in descriptors.items():
            _check(_libc.posix_spawn_file_actions_adddup2(actions, here, there))
        pid = ctypes.c_int()
        variables = [_format_variable(name, value) for name, value in environment.items()]
        begun = _libc.posix_spawn(
            ctypes.byref(pid),
            os.fsencode(words[0]),
            actions,
            _ATTRIBUTES,
            _make_strings([os.fsencode(word) for word in words]),
            _make_strings(variables),
        )
        _check(begun)
        return pid.value
    finally:
        _libc.posix_spawn_file_actions_destroy(actions)


@lru_cache(maxsize=1024)
def _format_variable(name: str, value: str) -> bytes:
    """Return a variable as the C library needs it; nearly all are the same for every task."""
    return os.fsencode(f"{name}={value}")


def _make_strings(texts: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    """Return C strings with a terminator; OSError if any contains a zero."""
    if any(b"\0" in text for text in texts):
        raise OSError("a zero byte in a command or its environment")
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


def _check(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))


_ATTRIBUTES = _make_attributes()

"""posix_spawn(3) while the other threads of this process go on.

``os.posix_spawn`` keeps the interpreter's lock until the child has reached its program, which on a
busy machine takes longer than all else that is done for a task; the C library's own function,
called like this, does not.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence

_libc = ctypes.CDLL(None)
_ROOM = 1024  # bytes; more than any C library's structures for it take
_SIGDEF, _SIGMASK, _SETSID = 0x04, 0x08, 0x80  # spawn.h


def _attributes() -> ctypes.Array[ctypes.c_char]:
    """A session of its own, no signal ignored or held back."""
    found, signals = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
    _libc.posix_spawnattr_init(found)
    _libc.sigemptyset(signals)
    _libc.posix_spawnattr_setsigmask(found, signals)
    _libc.sigfillset(signals)
    _libc.posix_spawnattr_setsigdefault(found, signals)
    _check(_libc.posix_spawnattr_setflags(found, ctypes.c_short(_SIGDEF | _SIGMASK | _SETSID)))
    return found


def spawn(
    words: Sequence[str], environment: Mapping[str, str], descriptors: Mapping[int, int]
) -> int:
    """Begin a program, the path of which is the first word; its number. OSError where it cannot be.

    ``descriptors``: what it holds → which of this process's that is; all others are closed that are
    not inheritable.
    """
    actions = ctypes.create_string_buffer(_ROOM)
    _check(_libc.posix_spawn_file_actions_init(actions))
    try:
        for there, here in descriptors.items():
            _check(_libc.posix_spawn_file_actions_adddup2(actions, here, there))
        pid = ctypes.c_int()
        said = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
        begun = _libc.posix_spawn(
            ctypes.byref(pid),
            os.fsencode(words[0]),
            actions,
            _ATTRIBUTES,
            _strings([os.fsencode(word) for word in words]),
            _strings(said),
        )
        _check(begun)
        return pid.value
    finally:
        _libc.posix_spawn_file_actions_destroy(actions)


def _strings(texts: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    """As C has them, with an end; OSError where one holds a zero."""
    if any(b"\0" in text for text in texts):
        raise OSError("a zero byte in a command or its environment")
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


def _check(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))


_ATTRIBUTES = _attributes()

"""A limit on how often the own jobs at a site are listed, by all processes of a user together."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

BURST = 2.0
"""Looks at once, and in each interval: one run is never limited, many share."""

_ROUNDING_S = 1.0


class LookLimit:
    """A token bucket in a file: at most :data:`BURST` looks in ``every_s``, whoever looks."""

    def __init__(self, file: Path, every_s: float) -> None:
        self._file, self._every_s = file, every_s

    def permits(self) -> bool:
        """Take a look from the bucket; False if it is empty. True where the file cannot be
        written: then nothing is known of others."""
        try:
            self._file.parent.mkdir(exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self._file, flags, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            tokens = self._tokens(os.pread(descriptor, 100, 0))
            if tokens < 1.0:
                return False
            body = f"{time.time():.3f} {tokens - 1.0:.3f}".encode()
            os.pwrite(descriptor, body, 0)
            os.ftruncate(descriptor, len(body))
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return True

    def _tokens(self, stored: bytes) -> float:
        """Return the looks that are left now; all of them for a new or damaged file, and after a
        clock was set back."""
        try:
            at_s, tokens = map(float, stored.split())
        except ValueError:
            return BURST
        passed_s = time.time() - at_s
        if passed_s < -_ROUNDING_S:
            return BURST
        return min(BURST, tokens + BURST * max(0.0, passed_s) / max(self._every_s, 1e-3))

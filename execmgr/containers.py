"""Containers whose processes are not children of their task: ended by name, beside what ends by its mark."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

_PATIENCE_S = 30.0


def container_name(mark: str) -> str:
    """The name of a task's container, made from the mark of its processes."""
    return f"vgrads-{hashlib.sha256(mark.encode()).hexdigest()[:20]}"


def end_container(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """End a container by these words; one that is gone is no error, and an engine that hangs is not waited for long."""
    if words:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=False
            )  # fmt: skip

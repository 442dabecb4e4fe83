"""Containers whose processes are not children of their task: ended by name, beside what ends by its
mark."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

_PATIENCE_S = 30.0
CLIENTS = ("docker", "podman")
"""Engines whose containers go on without whoever began them."""


def container_name(mark: str) -> str:
    """The name of a task's container, made from the mark of its processes."""
    return f"vgrads-{hashlib.sha256(mark.encode()).hexdigest()[:20]}"


def ending(engine: str, name: str) -> tuple[str, ...]:
    """The words of a command that ends a container; none where it dies with its processes."""
    if engine not in CLIENTS:
        return ()
    patience = ("--time", "0", "--ignore") if engine == "podman" else ()
    return (engine, "rm", "--force", *patience, name)


def end_container(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """End a container by these words; one that is gone is no error, and an engine that hangs is not
    waited for long."""
    if words:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )

"""Containers whose processes are not children of their task: ended by name, in addition to
processes with its mark.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Mapping, Sequence

_PATIENCE_S = 30.0
CLIENTS = ("docker", "podman")
"""Engines whose containers outlive the process that started them."""
CONTAINER = "VGRADS_CONTAINER"
"""The variable that holds the name of a task's container."""


def container_name(mark: str) -> str:
    """Return the name of a task's container, derived from the mark of its processes."""
    return f"vgrads-{hashlib.sha256(mark.encode()).hexdigest()[:20]}"


def ending(engine: str, name: str) -> tuple[str, ...]:
    """Return the words of a command that ends a container; empty if it ends with its processes."""
    if engine not in CLIENTS:
        return ()
    # podman waits ten seconds before it kills, and fails where the container is gone
    patience = ("--time", "0", "--ignore") if engine == "podman" else ()
    return (engine, "rm", "--force", *patience, name)


def end_container(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """End a container by this command; a missing one is no error, and the wait for an engine that
    hangs is short."""
    if words:
        import subprocess  # noqa: PLC0415 loads much; few tasks run in containers

        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE_S,
                check=False,
            )

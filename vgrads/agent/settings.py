"""The settings of an agent's tasks, and the environment of their processes.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
from typing import Mapping, NamedTuple

from .containers import CONTAINER, container_name
from .processes import MARK


class Environment(NamedTuple):
    """Where calls of a bag run. ``command``: of a shell, ends in a Python; ``program``: digest of
    the program that it runs; ``setup``: digest of what it does first, may be empty; ``key``: the
    same for equal environments."""

    command: str
    program: str
    setup: str
    account: int
    variables: Mapping[bytes, bytes]
    key: str


class BagSettings(NamedTuple):
    """Settings of a task, or common to all tasks of a bag; ``limit_s``, ``memory_mib``: 0 is no
    limit; ``container``: the engine of its container; ``executable``: inputs that are programs;
    ``live``: report what it prints while it runs; ``account``: the account that its processes run
    under, 0 for the agent's own; ``interpreter``: of its functions, None for commands."""

    procs: int
    memory_mib: float
    limit_s: float
    output_bytes: int
    environment: dict[bytes, bytes]
    refused: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    container: str = ""
    executable: tuple[str, ...] = ()
    live: bool = False
    account: int = 0
    interpreter: Environment | None = None

    def environment_for(
        self, mark: str, key: tuple[int, int, int] | None, folder: str
    ) -> dict[bytes, bytes]:
        """Return the environment of a task. ``mark``: of its processes; ``key``: bag, task and
        attempt, where it belongs to a bag; ``folder``: its own, if it has one."""
        environment = dict(self.environment)
        if key is not None:
            environment[b"VGRADS_TASK"] = b"%d" % key[1]
            environment[b"VGRADS_ATTEMPT"] = b"%d" % key[2]
        environment[MARK.encode()] = mark.encode()
        if self.container:
            environment[CONTAINER.encode()] = container_name(mark).encode()
        if folder:
            environment[b"PWD"] = environment[b"VGRADS_FOLDER"] = os.fsencode(folder)
        return environment

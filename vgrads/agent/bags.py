"""An agent's records of bags: the settings common to all tasks of a bag, and their environment.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from .containers import CONTAINER, container_name
from .environment import pass_environment, withheld
from .functions.interpreters import Environment
from .launcher import account_folder, as_bytes
from .processes import MARK


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


class Visible(NamedTuple):
    """The variables of the agent's environment that tasks see (:mod:`vgrads.agent.environment`),
    and variables added to them."""

    environment: dict[str, str]
    own: bool
    allowed: tuple[str, ...]
    more: dict[str, str]


class BagRegistry:
    """All bags whose tasks this agent has received, by number."""

    def __init__(self, visible: Visible, folder: str, inputs: str) -> None:
        """``folder``: working directory of tasks that declare no files; ``inputs``: folder of the
        files that inputs link to."""
        self._visible, self._folder, self._inputs = visible, folder, inputs
        self._bags: dict[int, BagSettings] = {}

    def learn(self, number: int, payload: Mapping[str, Any]) -> BagSettings:
        """Record the manager's settings of a bag."""
        more = {} if "python" in payload else {"VGRADS_BAG": str(number)}  # interpreters are shared
        bag = self._bags[number] = self.make(more, payload)
        return bag

    def make(self, more: Mapping[str, str], payload: Mapping[str, Any]) -> BagSettings:
        """Return the settings that a manager states; ``more``: further variables."""
        visible, stated = self._visible, payload.get("env") or {}
        passed, refused = pass_environment(
            visible.environment, visible.own, payload.get("pass_env") or (), visible.allowed
        )
        passed.update(visible.more)
        # only root can start processes of other accounts
        account = int(payload.get("account") or 0) if os.geteuid() == 0 else 0
        passed.update(PWD=self._folder, VGRADS_PYTHON=sys.executable)
        if account:
            home = account_folder(self._folder, account)
            passed.update(HOME=home, PWD=home, TMPDIR=home)
            passed.update(USER=str(account), LOGNAME=str(account))
        passed.update(stated)
        passed.update(more)
        variables, python = as_bytes(passed), payload.get("python")
        interpreter = None
        if python:
            command, program, setup = python
            key = repr((python, account, passed))
            interpreter = Environment(command, program, setup, account, variables, key)
        return BagSettings(
            max(1, int(payload.get("procs", 1))),
            float(payload.get("memory_mib") or 0),
            float(payload.get("limit_s") or 0),
            int(payload.get("output_bytes", 4096)),
            variables,
            tuple(name for name in refused if name not in stated),
            tuple(withheld(visible.environment, passed)) if visible.own else (),
            str(payload.get("container") or ""),
            tuple(payload.get("executable") or ()),
            bool(payload.get("live")),
            account,
            interpreter,
        )

    def of(self, assigned: Sequence[Any]) -> BagSettings:
        """Return the settings of an assigned task: its own, or those of its bag; default settings
        where none were received."""
        if len(assigned) > 6:
            return self.make({"VGRADS_INPUTS": self._inputs}, assigned[6])
        number = int(assigned[0])
        return self._bags.get(number) or self.learn(number, {})

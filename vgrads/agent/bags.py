"""An agent's records of bags: which settings their tasks have, by what their manager states.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from .environment import pass_environment, withheld
from .launcher import account_folder, as_bytes
from .settings import BagSettings, Environment


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

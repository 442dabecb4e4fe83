"""What a host knows of bags: what holds for all tasks of one, and the environment that they see.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import sys
from typing import Any, Mapping, NamedTuple

from .environment import pass_environment, withheld
from .launcher import as_bytes


class Bag(NamedTuple):
    """What holds for all tasks of a bag; ``limit_s``, ``memory_mib``: 0 is no limit."""

    procs: int
    memory_mib: float
    limit_s: float
    output_bytes: int
    environment: dict[bytes, bytes]
    refused: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


class Visible(NamedTuple):
    """What tasks may see of the agent's environment (:mod:`vgrads.agent.environment`), and what
    they see besides."""

    environment: dict[str, str]
    own: bool
    allowed: tuple[str, ...]
    more: dict[str, str]


class Bags:
    """All bags that a host has had tasks of, by number."""

    def __init__(self, visible: Visible, folder: str) -> None:
        """``folder``: where tasks stand that declare no files."""
        self._visible, self._folder = visible, folder
        self._bags: dict[int, Bag] = {}

    def learn(self, number: int, told: Mapping[str, Any]) -> Bag:
        """What the manager says of a bag."""
        visible, stated = self._visible, told.get("env") or {}
        passed, refused = pass_environment(
            visible.environment, visible.own, told.get("pass_env") or (), visible.allowed
        )
        passed.update(visible.more)
        passed.update(PWD=self._folder, VGRADS_PYTHON=sys.executable)
        passed.update(stated)
        own = as_bytes(passed)
        own[b"VGRADS_BAG"] = b"%d" % number
        bag = self._bags[number] = Bag(
            max(1, int(told.get("procs", 1))),
            float(told.get("memory_mib") or 0),
            float(told.get("limit_s") or 0),
            int(told.get("output_bytes", 4096)),
            own,
            tuple(name for name in refused if name not in stated),
            tuple(withheld(visible.environment, passed)) if visible.own else (),
        )
        return bag

    def of(self, number: int) -> Bag:
        """A bag; one that nothing was said of is the simplest."""
        return self._bags.get(number) or self.learn(number, {})

"""A dispatch policy that cannot be evaluated yet: the library of its language is not installed."""

from __future__ import annotations

from typing import Any

from vgrads.policies.policy import Policy, PolicyVerdict
from vgrads.policies.reading import Written
from vgrads.policies.text import Node
from vgrads.policies.values import UNDEFINED

_NO = Node("value", value=False)


class WaitingPolicy(Policy):
    """Stands for a stored policy: it accepts no node and no grid, so the bag waits, and tasks that
    run already end as usual. ``why``: the missing extra."""

    def __init__(self, why: str) -> None:
        super().__init__(Written({}, {"JobRequirements": _NO, "GridPolicy": _NO}, ()), "")
        self.waits_for = why

    def __reduce__(self) -> tuple[Any, ...]:
        return WaitingPolicy, (self.waits_for,)

    def explain(self, slot: str, *_: object, **__: object) -> PolicyVerdict:
        """Return the reason as the expression of the slots that it refuses."""
        refused = self.has(slot)
        return PolicyVerdict(
            slot, self.waits_for if refused else "", False if refused else UNDEFINED, ()
        )

"""A user's dispatch policy for a bag: up to six expressions, evaluated when an agent requests work.

The slots and their meaning are GridBot's (Silberstein and others, SC'09, section 4, DOI
10.1145/1654059.1654071), the language is ClassAd. A policy is read once, and rejected then or
never. While a bag runs, its state (``Tail``) is substituted first (:meth:`Policy.under`); each
residual slot has a list of the names that it still reads, and caches its results for their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgrads.policies.evaluation import Expression
from vgrads.policies.names import SLOTS, STATE, in_order, job_ad, look_up
from vgrads.policies.reading import Written, read_attributes_of, written_of
from vgrads.policies.simplify import names_in, simplified
from vgrads.policies.slots import COUNTS, PolicySlot
from vgrads.policies.text import Node
from vgrads.policies.values import ERROR, UNDEFINED, Ad, Value

__all__ = [
    "ERROR",
    "SLOTS",
    "UNDEFINED",
    "Ad",
    "Policy",
    "PolicyVerdict",
    "Residual",
    "Value",
    "job_ad",
    "read_policy",
]

RESIDUALS = 64
"""Maximum number of cached bag states with their residual slots; beyond it the cache is cleared."""
NO_AD: Ad = {}


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """Explanation: a slot, its expression as written, its value, and the value of every name that
    it reads."""

    slot: str
    expression: str
    value: Value
    values: tuple[tuple[str, Value], ...]

    @property
    def counts(self) -> Any:
        """Return the dispatcher's interpretation: a truth value, or a number."""
        return COUNTS[self.slot](self.value)


def read_policy(value: str | Mapping[str, Any], where: str) -> Policy:
    """Read a dispatch policy from attributes and their expressions, or from one text: an ad in
    brackets or lines of ``A = …``.

    Attributes that are not slots are helpers, which slots may refer to. Raises InputError with the
    attribute, line and column; ``where``: the location of the whole policy.
    """
    attributes = read_attributes_of(value, where)
    return Policy(written_of(attributes, where), where)


class Policy:
    """The slots of a bag. Immutable except for its cache; used by one thread at a time.

    ``attributes``: all expressions as they were written; ``doubts``: warnings about expressions
    that are allowed and may not be intended.
    """

    def __init__(self, written: Written, where: str) -> None:
        self.attributes: Mapping[str, str] = written.texts
        self.doubts: tuple[str, ...] = written.doubts
        self._where = where
        self._trees: Mapping[str, Node] = written.trees
        self._reads = {slot: frozenset(names_in(tree)) for slot, tree in self._trees.items()}
        read = frozenset[str]().union(*self._reads.values())
        self._state = tuple(name for name in STATE if name in read)
        self._residuals: dict[tuple[Any, ...], Residual] = {}
        self._slots: dict[tuple[str, str], PolicySlot] = {}
        self._whole: dict[str, Expression] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return read_policy, (dict(self.attributes), self._where)

    def __repr__(self) -> str:
        return f"Policy({dict(self.attributes)!r})"

    def has(self, slot: str) -> bool:
        """Return True where the user wrote this slot."""
        return slot in self._trees

    def reads(self, slot: str) -> frozenset[str]:
        """Return the dotted names that decide a slot, through helpers; bare ones of job and queue
        with their ad as prefix."""
        return self._reads.get(slot, frozenset())

    def under(self, state: Mapping[str, Value]) -> Residual:
        """Return the residual slots for fixed values of the bag's ``Tail``, ``JobsLeft`` and
        ``JobsDone``."""
        values = tuple([state.get(name) for name in self._state])
        # with their types: 1, 1.0 and true are equal keys, but other values of the language
        key = (values, tuple(map(type, values)))
        residual = self._residuals.get(key)
        if residual is None:
            if len(self._residuals) >= RESIDUALS:
                self._residuals.clear()
                # expressions that do not depend on the state stay
                self._slots = {key: slot for key, slot in self._slots.items() if not key[1]}
            values_by_name = dict(zip(self._state, values, strict=True))
            residual = Residual({slot: self._slot(slot, values_by_name) for slot in SLOTS})
            self._residuals[key] = residual
        return residual

    def _slot(self, slot: str, values: Mapping[str, Any]) -> PolicySlot:
        """Return one residual slot; the same object where two states leave the same expression."""
        tree = self._trees.get(slot)
        if tree and not self._reads[slot].isdisjoint(values):
            tree = simplified(tree, values)
            key = slot, repr(tree)  # which distinguishes 1, 1.0 and true
        else:
            key = slot, ""
        if key not in self._slots:
            self._slots[key] = PolicySlot(slot, tree)
        return self._slots[key]

    def explain(
        self,
        slot: str,
        state: Mapping[str, Value],
        host: Ad = NO_AD,
        job: Ad = NO_AD,
        queue: Ad = NO_AD,
        grid: Ad = NO_AD,
        concurrency: float = 1,
    ) -> PolicyVerdict:
        """Explain the value of a slot: evaluated as written, without the cache."""
        if slot not in self._trees:
            return PolicyVerdict(slot, "", UNDEFINED, ())
        names = in_order(self._reads[slot])
        if slot not in self._whole:
            self._whole[slot] = Expression(self._trees[slot], names)
        ads = (host, job, queue, grid, concurrency)
        values = [state.get(n) if n in STATE else look_up(n, ads) for n in names]
        value = self._whole[slot].evaluate(values)
        shown = tuple(
            (n, UNDEFINED if v is None else v) for n, v in zip(names, values, strict=True)
        )
        return PolicyVerdict(slot, self.attributes[slot], value, shown)


class Residual:
    """The residual of a dispatch policy in one state of its bag. A slot that was not written has a
    neutral default."""

    __slots__ = ("_concurrency", "_deadline", "_grid", "_rank", "_replication", "_requirements")

    def __init__(self, slots: Mapping[str, PolicySlot]) -> None:
        self._requirements = slots["JobRequirements"]
        self._rank = slots["Rank"]
        self._replication = slots["ReplicationRequirements"]
        self._concurrency = slots["Concurrency"]
        self._deadline = slots["Deadline"]
        self._grid = slots["GridPolicy"]

    def reads(self, slot: str) -> tuple[str, ...]:
        """Return the names that a slot still reads."""
        slots = (
            self._requirements,
            self._rank,
            self._replication,
            self._concurrency,
            self._deadline,
            self._grid,
        )
        return dict(zip(SLOTS, slots, strict=True))[slot].names

    def requirements(self, host: Ad, job: Ad = NO_AD, queue: Ad = NO_AD) -> bool:
        """Return True where the job may be assigned to the node: only true is accepted; without the
        slot, always."""
        return self._requirements.ask(host, job, queue, NO_AD, 1)  # type: ignore[no-any-return]

    def rank(self, host: Ad, job: Ad = NO_AD, queue: Ad = NO_AD) -> float:
        """Return the rank: higher goes first; 0 where the value is not a number."""
        return self._rank.ask(host, job, queue, NO_AD, 1)  # type: ignore[no-any-return]

    def concurrency(self, host: Ad, job: Ad = NO_AD, queue: Ad = NO_AD) -> int:
        """Return the maximum number of jobs that the node may hold at once, an integer not below 0;
        1 where the value is not a number."""
        return self._concurrency.ask(host, job, queue, NO_AD, 1)  # type: ignore[no-any-return]

    def deadline(
        self, host: Ad, job: Ad = NO_AD, queue: Ad = NO_AD, concurrency: float = 1
    ) -> float | None:
        """Return the seconds from assignment after which the node counts as failed; None where the
        value is not a number above 0.

        ``concurrency``: the Concurrency in force at the node, which the expression may read.
        """
        return self._deadline.ask(host, job, queue, NO_AD, concurrency)  # type: ignore[no-any-return]

    def replication(
        self, job: Ad, queue: Ad = NO_AD, host: Ad = NO_AD, concurrency: float = 1
    ) -> bool:
        """Return True where a further replica of a running job is requested; without the slot,
        never.

        ``host``: the node of the evaluated replica, if any; ``concurrency``: the value in force
        there.
        """
        return self._replication.ask(host, job, queue, NO_AD, concurrency)  # type: ignore[no-any-return]

    def grid(self, grid: Ad, queue: Ad = NO_AD) -> bool:
        """Return True where nodes of this grid may be used for the bag; without the slot,
        always."""
        return self._grid.ask(NO_AD, NO_AD, queue, grid, 1)  # type: ignore[no-any-return]

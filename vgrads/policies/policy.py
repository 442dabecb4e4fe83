"""A user's policy for a bag: up to six expressions that are evaluated whenever a host asks for
work.

The slots and their meaning are GridBot's (Silberstein and others, SC'09, section 4, DOI
10.1145/1654059.1654071), the language is ClassAd. A policy is read once and refused there or never.
While a bag runs, what is known of it (``Tail``) is put in first (:meth:`Policy.under`); what is
left of each slot knows which names it still reads, and remembers what it said for their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.policies.ads import Expression, present, text_of
from vgrads.policies.names import SLOTS, STATE, in_order, job_ad, look_up
from vgrads.policies.reading import Written, read_attributes_of, written_of
from vgrads.policies.simplify import names_in, simplified
from vgrads.policies.slots import COUNTS, Slot
from vgrads.policies.text import Node
from vgrads.policies.values import ERROR, UNDEFINED, Ad, Value

__all__ = [
    "ERROR",
    "SLOTS",
    "UNDEFINED",
    "Ad",
    "Policy",
    "Residual",
    "Value",
    "Verdict",
    "job_ad",
    "read_policy",
]

RESIDUALS = 64
"""So many states of a bag are remembered with what is left of its slots; then all are forgotten."""
NO_AD: Ad = {}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why: a slot, its expression as written, what it gave, and the value of every name that it
    reads."""

    slot: str
    expression: str
    value: Value
    values: tuple[tuple[str, Value], ...]

    @property
    def counts(self) -> Any:
        """What the dispatcher makes of it: truth or falsehood, or a number."""
        return COUNTS[self.slot](self.value)


def read_policy(given: str | Mapping[str, Any], where: str) -> Policy:
    """A policy out of attributes and their expressions, or out of one text: an ad in brackets or
    lines of ``A = …``.

    Attributes that are no slot are helpers, which slots may refer to. Raises InputError, which
    names the attribute, line and column; ``where`` says where all of it stands.
    """
    if not present():
        raise InputError(
            "policies need the package htcondor",
            where=where,
            fix="there are builds of it for Linux",
        )
    attributes = read_attributes_of(given, where)
    return Policy(written_of(attributes, where), where)


class Policy:
    """What a bag's slots say. Nothing of it changes but what it remembers; one thread at a time may
    ask it.

    ``attributes``: all expressions as they were written; ``doubts``: sentences about what is
    allowed and may not be meant.
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
        self._slots: dict[tuple[str, str], Slot] = {}
        self._whole: dict[str, Expression] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return read_policy, (dict(self.attributes), self._where)

    def __repr__(self) -> str:
        return f"Policy({dict(self.attributes)!r})"

    def has(self, slot: str) -> bool:
        """Whether the user wrote this slot."""
        return slot in self._trees

    def reads(self, slot: str) -> frozenset[str]:
        """The dotted names that decide a slot, through helpers; bare ones of job and queue with
        their ad before them."""
        return self._reads.get(slot, frozenset())

    def under(self, state: Mapping[str, Value]) -> Residual:
        """What is left of the slots once the bag's ``Tail``, ``JobsLeft`` and ``JobsDone`` stand
        firm."""
        values = tuple([state.get(name) for name in self._state])
        key = (values, tuple(map(type, values)))
        found = self._residuals.get(key)
        if found is None:
            if len(self._residuals) >= RESIDUALS:
                self._residuals.clear()
                self._slots = {key: slot for key, slot in self._slots.items() if not key[1]}
            known = dict(zip(self._state, values, strict=True))
            found = Residual({slot: self._slot(slot, known) for slot in SLOTS})
            self._residuals[key] = found
        return found

    def _slot(self, slot: str, known: Mapping[str, Any]) -> Slot:
        """What is left of one slot; the same where two states leave the same."""
        tree = self._trees.get(slot)
        if tree and not self._reads[slot].isdisjoint(known):
            tree = simplified(tree, known)
            key = slot, text_of(tree, {})
        else:
            key = slot, ""
        if key not in self._slots:
            self._slots[key] = Slot(slot, tree)
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
    ) -> Verdict:
        """Why a slot says what it says: evaluated as written, with nothing remembered."""
        if slot not in self._trees:
            return Verdict(slot, "", UNDEFINED, ())
        names = in_order(self._reads[slot])
        if slot not in self._whole:
            self._whole[slot] = Expression(self._trees[slot], names)
        ads = (host, job, queue, grid, concurrency)
        values = [state.get(n) if n in STATE else look_up(n, ads) for n in names]
        value = self._whole[slot].evaluate(values)
        shown = tuple(
            (n, UNDEFINED if v is None else v) for n, v in zip(names, values, strict=True)
        )
        return Verdict(slot, self.attributes[slot], value, shown)


class Residual:
    """What is left of a policy in one state of its bag. A slot that was not written says what harms
    nobody."""

    __slots__ = ("_concurrency", "_deadline", "_grid", "_rank", "_replication", "_requirements")

    def __init__(self, slots: Mapping[str, Slot]) -> None:
        self._requirements = slots["JobRequirements"]
        self._rank = slots["Rank"]
        self._replication = slots["ReplicationRequirements"]
        self._concurrency = slots["Concurrency"]
        self._deadline = slots["Deadline"]
        self._grid = slots["GridPolicy"]

    def reads(self, slot: str) -> tuple[str, ...]:
        """The names that a slot still reads."""
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
        """Whether the job may go to the host: only what is true is a yes; without the slot,
        always."""
        return self._requirements.ask(host, job, queue, NO_AD, 1)  # type: ignore[no-any-return]

    def rank(self, host: Ad, job: Ad = NO_AD, queue: Ad = NO_AD) -> float:
        """Higher goes first; 0 where there is no number."""
        return self._rank.ask(host, job, queue, NO_AD, 1)  # type: ignore[no-any-return]

    def concurrency(self, host: Ad, job: Ad = NO_AD, queue: Ad = NO_AD) -> int:
        """The most jobs that the host may hold at once, whole and not below 0; 1 where there is no
        number."""
        return self._concurrency.ask(host, job, queue, NO_AD, 1)  # type: ignore[no-any-return]

    def deadline(
        self, host: Ad, job: Ad = NO_AD, queue: Ad = NO_AD, concurrency: float = 1
    ) -> float | None:
        """Seconds from hand-out after which the host counts as failed; None where there is no
        number above 0.

        ``concurrency``: the Concurrency in force at the host, which the expression may read.
        """
        return self._deadline.ask(host, job, queue, NO_AD, concurrency)  # type: ignore[no-any-return]

    def replication(
        self, job: Ad, queue: Ad = NO_AD, host: Ad = NO_AD, concurrency: float = 1
    ) -> bool:
        """Whether a further copy of a running job is made; without the slot, never.

        ``host``: of the copy that is looked at, if the caller means one; ``concurrency``: what was
        in force there.
        """
        return self._replication.ask(host, job, queue, NO_AD, concurrency)  # type: ignore[no-any-return]

    def grid(self, grid: Ad, queue: Ad = NO_AD) -> bool:
        """Whether hosts of this grid are wanted for the bag; without the slot, always."""
        return self._grid.ask(NO_AD, NO_AD, queue, grid, 1)  # type: ignore[no-any-return]

"""How a dispatcher stands: the fold of its journal, in columns that :meth:`State.apply` changes in
place.

This departs from the immutable state of planned runs, for two million tasks (decision 0020); what
follows from it is kept: nothing else changes it, and a journal read again gives the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vgrads.bags.record import HostRecord, barred, failed, is_quick, succeeded
from vgrads.dispatch.core.bag_state import MOST_ATTEMPTS, BagState
from vgrads.dispatch.core.faults import reason_of
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import (
    COULD_NOT,
    Back,
    Copied,
    End,
    Ended,
    Given,
    Kept,
    Late,
    Record,
    Word,
    bag_of,
)
from vgrads.dispatch.core.state_check import check
from vgrads.dispatch.core.tasks import DONE, ENDED, FAILED, PENDING, Tasks
from vgrads.workflows.generated.lazy import lazy_of

MOST_LOSSES = 10
"""Hosts that may be lost over one task before it is given up: it may be what ends them."""
_UNKNOWN = HostRecord()
_KEEP = 1.0 - 1.0 / 400.0  # what an end leaves of those before it, of right and wrong ones
_FRESH = 0.05  # the weight of the newest run time in what is typical


@dataclass(slots=True)
class Owner:
    """Whose bags: processor seconds that they have had, divided by weight."""

    had: float = 0.0


@dataclass(frozen=True, slots=True)
class Effect:
    """What an end came to: ``counts``: it decided the task; ``again``: something waits now that did
    not; ``elsewhere``: the hosts that also have the task."""

    counts: bool
    again: bool = False
    elsewhere: Sequence[int] = ()


_DECIDED, _FREED = Effect(counts=True), Effect(counts=True, again=True)


@dataclass
class State:
    """Bags by number, hosts by number, owners by name, what is known of machines by site and
    machine."""

    bags: dict[int, BagState] = field(default_factory=dict)
    hosts: dict[int, Host] = field(default_factory=dict)
    by_id: dict[str, int] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)
    slots: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: dict[str, HostRecord] = field(default_factory=dict)
    now_s: float = 0.0

    def apply(self, record: Record) -> list[Effect]:
        """Take over what a record tells; for ends, what each came to.

        An exception fails the bag that the record is about, now and whenever the journal is read
        again.
        """
        try:
            return self._apply(record)
        except Exception as error:
            bag = self.bags.get(bag_of(record))
            if bag is None or bag.fault:
                raise
            self._word_failed(bag.number, self.now_s, reason_of(error))
            return [Effect(counts=False)] * len(record.ends if isinstance(record, Ended) else ())

    def _apply(self, record: Record) -> list[Effect]:
        if isinstance(record, Given):
            self._given(record)
        elif isinstance(record, Ended):
            return [self._ended(record.bag, end) for end in record.ends]
        elif isinstance(record, Back):
            self._back(self.hosts[record.host], record.bag, record.tasks)
        elif isinstance(record, Kept):
            self._kept(record)
        elif isinstance(record, Copied):
            self._copied(record)
        elif isinstance(record, Late):
            self._late(record)
        elif isinstance(record, Word):
            getattr(self, f"_word_{record.what}")(**record.fields)
        return []

    # tasks

    def _given(self, record: Given) -> None:
        host, bag = self.hosts[record.host], self.bags[record.bag]
        bag.tasks.give(record.tasks, record.host)
        if bag.first_s is None:
            bag.first_s = self.now_s
        attempts, held, number = bag.tasks.attempts, host.held, record.bag
        for task in record.tasks:
            held[number, task] = attempts[task]
        host.busy_procs += bag.procs * len(record.tasks)

    def _ended(self, number: int, end: End) -> Effect:
        bag, host = self.bags[number], self.hosts[end.host]
        tasks, task = bag.tasks, end.task
        self.now_s = max(self.now_s, end.at_s)
        had = host.held.get((number, task)) == end.attempt
        if had:
            self._release(host, bag, task)
        if tasks.status[task] in ENDED:
            return Effect(counts=False)
        if end.code == 0:
            return self._done(bag, host, end, had)
        if not had:
            return Effect(counts=False)  # this attempt was given up; others are under way, or to be
        self._fault(bag, host, end)
        if not tasks.take(task, host.number):
            return Effect(counts=False)  # others have it still: what they make of it decides
        if end.code == COULD_NOT:  # no such input, a full disk, the host goes: not the task's doing
            self._lose(bag, task, end.at_s, lost=True, rests=True)
            failed_now = tasks.status[task] == FAILED
            return Effect(counts=failed_now, again=not failed_now)
        if tasks.failures[task] <= bag.retries and tasks.losses.get(task, 0) < MOST_LOSSES:
            tasks.give_back(task, end.at_s)
            bag.tried_again += 1
            return Effect(counts=False, again=True)
        tasks.end(task, FAILED)
        self._close_if_over(bag, end.at_s)
        return Effect(counts=True)

    def _done(self, bag: BagState, host: Host, end: End, had: bool) -> Effect:
        tasks, effect = bag.tasks, _DECIDED
        if not had or end.task in tasks.copies:
            key = (bag.number, end.task)
            others = [n for n in tasks.hosts_of(end.task) if key in self.hosts[n].held]
            effect = Effect(counts=True, elsewhere=others)
        if tasks.end(end.task, DONE):
            effect = replace(effect, again=True) if effect.elsewhere else _FREED
        host.done += 1
        if host.machine:
            turnaround_s = end.waited_s + end.fetched_s + end.ran_s + end.sent_s
            known = self.records.get(host.machine, _UNKNOWN)
            self.records[host.machine] = succeeded(known, end.at_s, turnaround_s)
        bag.right = bag.right * _KEEP + 1.0
        bag.wrong *= _KEEP
        self._learn(bag, end)
        return effect

    def _fault(self, bag: BagState, host: Host, end: End) -> None:
        """An attempt went wrong: what that says of task, bag and host."""
        if end.code != COULD_NOT:
            host.failed += 1
            tries = bag.tasks.failures.get(end.task, 0) + 1
            bag.tasks.failures[end.task] = tries
            self._charge(bag, end.ran_s)
        known = self.records.get(host.machine, _UNKNOWN)
        if known.credible:
            bag.wrong = bag.wrong * _KEEP + 1.0
            bag.right *= _KEEP
            bag.tasks.blamed[end.task] = bag.tasks.blamed.get(end.task, 0) + 1
        if host.machine:
            blow = (bag.number, end.task) if is_quick(end.ran_s, bag.typical_s) else None
            self.records[host.machine] = failed(known, end.at_s, blow, end.ran_s)

    def _learn(self, bag: BagState, end: End) -> None:
        self._charge(bag, end.ran_s)
        bag.ran_s += end.ran_s
        weight = max(_FRESH, 1.0 / bag.tasks.counts[DONE])
        before = bag.typical_s if bag.typical_s is not None else end.ran_s
        bag.typical_s = before + weight * (end.ran_s - before)
        self._close_if_over(bag, end.at_s)

    def _charge(self, bag: BagState, ran_s: float) -> None:
        spent = ran_s * bag.procs / bag.weight
        bag.had += spent
        self.owners[bag.owner].had += spent

    def _close_if_over(self, bag: BagState, at_s: float) -> None:
        if bag.over and bag.ended_s is None:
            bag.ended_s = at_s

    def _release(self, host: Host, bag: BagState, task: int) -> None:
        del host.held[bag.number, task]
        host.busy_procs -= bag.procs
        host.recalled.discard((bag.number, task))
        if not host.held:
            host.idle_since_s = self.now_s

    def _back(self, host: Host, number: int, tasks: Iterable[int]) -> None:
        bag = self.bags[number]
        for task in tasks:
            if (number, task) in host.held:
                self._release(host, bag, task)
            if host.number in bag.tasks.hosts_of(task) and bag.tasks.take(task, host.number):
                if bag.tasks.attempts[task] > MOST_ATTEMPTS:
                    bag.tasks.end(task, FAILED)
                    self._close_if_over(bag, self.now_s)
                else:
                    bag.tasks.give_back(task)

    def _copied(self, record: Copied) -> None:
        host, bag = self.hosts[record.host], self.bags[record.bag]
        for task in record.tasks:
            bag.tasks.copy(task, host.number)
            host.held[record.bag, task] = bag.tasks.attempts[task]
            host.busy_procs += bag.procs
            bag.copied += 1

    def _late(self, record: Late) -> None:
        """Their time was over: the host counts as having failed, the task does not."""
        host = self.hosts[record.host]
        if host.machine:
            known = self.records.get(host.machine, _UNKNOWN)
            self.records[host.machine] = failed(known, self.now_s, None, 0.0)
        host.failed += len(record.tasks)
        self._back(host, record.bag, record.tasks)

    def _kept(self, record: Kept) -> None:
        host, bag = self.hosts[record.host], self.bags[record.bag]
        for task in record.tasks:
            attempt = bag.tasks.attempts[task]
            if bag.tasks.status[task] == PENDING and attempt:
                bag.tasks.give([task], host.number)
                host.held[record.bag, task] = bag.tasks.attempts[task] = attempt  # no new one
                host.busy_procs += bag.procs

    # what is rare

    def _word_bag(
        self, number: int, count: int, at_s: float, order: Any = None, **fields: Any
    ) -> None:
        tasks = Tasks(count, lazy_of(order) if order else None)
        bag = BagState(number=number, tasks=tasks, came_s=at_s, **_tupled(fields))
        self.now_s = max(self.now_s, at_s)
        active = [b for b in self.bags.values() if not b.over]
        owner = self.owners.setdefault(bag.owner, Owner())
        others = [self.owners[b.owner].had for b in active if b.owner != bag.owner]
        if not any(b.owner == bag.owner for b in active):  # nobody saves up by staying away
            owner.had = max(owner.had, min(others, default=0.0))
        bag.had = min((b.had for b in active if b.owner == bag.owner), default=0.0)
        bag.typical_s = bag.stated_s
        self.bags[number] = bag
        self._close_if_over(bag, at_s)

    def _word_had(self, number: int, at_s: float, runs: Sequence[Sequence[int]]) -> None:
        """Tasks are done whose results were there before. ``runs``: first and last of each run of
        them."""
        bag = self.bags[number]
        told = (t for first, last in runs for t in range(first, last + 1))
        found = [t for t in told if bag.tasks.status[t] not in ENDED]
        for task in found:
            for host in map(self.hosts.__getitem__, bag.tasks.hosts_of(task)):
                self._release(host, bag, task)
        bag.tasks.had(found)
        self._close_if_over(bag, at_s)

    def _word_grown(self, number: int, count: int) -> None:
        self.bags[number].tasks.grow(count)

    def _word_closed(self, number: int, at_s: float) -> None:
        self.bags[number].open = False
        self._close_if_over(self.bags[number], at_s)

    def _word_unwanted(self, number: int, at_s: float, tasks: list[int]) -> None:
        """Tasks that wait and are not wanted any more."""
        self.bags[number].tasks.drop_waiting(tasks)
        self._close_if_over(self.bags[number], at_s)

    def _word_cancelled(self, number: int, at_s: float, reason: str) -> None:
        self.bags[number].cancelled = reason or "cancelled"
        self._drop(number, at_s)

    def _word_failed(self, number: int, at_s: float, reason: str) -> None:
        """Serving a bag raised an exception: none of its tasks is given out any more."""
        self.bags[number].fault = reason
        self._drop(number, at_s)

    def _drop(self, number: int, at_s: float) -> None:
        """Drop what has not ended of a bag."""
        bag = self.bags[number]
        bag.open = False
        for host in (h for h in self.hosts.values() if h.held):
            for key in [k for k in host.held if k[0] == number]:
                self._release(host, bag, key[1])
        bag.tasks.drop()
        self._close_if_over(bag, at_s)

    def _word_joined(self, number: int, id: str, at_s: float, **fields: Any) -> None:
        self.now_s = max(self.now_s, at_s)
        known = self.hosts.get(number)
        if known is None:
            known = Host(
                number=number,
                id=id,
                idle_since_s=at_s,
                joined_s=at_s,
                slot="",
                node=0,
                procs=1,
                memory_mib=0.0,
                name="",
            )
            self.hosts[number], self.by_id[id] = known, number
        if known.life and known.life != fields["life"]:
            known.past_lives.add(known.life)
        for name, value in fields.items():
            setattr(known, name, value)
        known.here, known.leaving, known.joined_s = True, "", at_s
        if not known.held:
            known.idle_since_s = at_s

    def _word_left(self, number: int, at_s: float, lost: bool) -> None:
        """A host is gone; what it held waits again. ``lost``: without a word, so its tasks may be
        to blame."""
        host = self.hosts[number]
        self.now_s = max(self.now_s, at_s)
        for bag_number, task in list(host.held):
            bag = self.bags[bag_number]
            self._release(host, bag, task)
            if bag.tasks.take(task, number):
                self._lose(bag, task, at_s, lost)
        host.here = False
        host.lost += lost

    def _lose(self, bag: BagState, task: int, at_s: float, lost: bool, rests: bool = False) -> None:
        tasks = bag.tasks
        if lost:
            tasks.losses[task] = tasks.losses.get(task, 0) + 1
        if tasks.losses.get(task, 0) >= MOST_LOSSES or tasks.attempts[task] > MOST_ATTEMPTS:
            tasks.end(task, FAILED)
            self._close_if_over(bag, at_s)
        else:
            tasks.give_back(task, at_s if rests else None)

    def _word_slot(self, id: str, **fields: Any) -> None:
        """How a request for hosts stands."""
        self.slots.setdefault(id, {}).update(fields)

    def _word_tail(self, number: int) -> None:
        """A bag's last part has begun."""
        self.bags[number].tail = True

    def _word_barred(self, number: int, at_s: float) -> None:
        """A host gets nothing for a while. What it failed on is not to blame: those attempts
        count as if the host had been lost."""
        machine = self.hosts[number].machine
        self.now_s = max(self.now_s, at_s)
        for bag, task in self.records[machine].blows:
            tasks = self.bags[bag].tasks
            if tasks.failures.get(task) and tasks.status[task] not in ENDED:
                tasks.failures[task] -= 1
                tasks.losses[task] = tasks.losses.get(task, 0) + 1
        self.records[machine] = barred(self.records[machine], at_s)

    def check(self) -> None:
        """AssertionError where what is kept twice differs."""
        check(self)


def _tupled(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}

"""Which hosts get nothing, or one task to show what they can do: black holes, and hosts that are
new."""

from __future__ import annotations

from vgrads.bags.record import BARRED_AT, HostRecord, black_odds, honest_chance
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.events import AgentQuarantined
from vgrads.dispatch.core.hosts import Host

FIRST_TASKS = 3
"""What a host gets that has shown nothing yet: black holes are told after so many."""
SHOWS_S = 2.0
"""A host that has not failed by then gets the rest."""


class BlackHoles:
    """Keeps work from hosts that fail at whatever they are given."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._now_s = 0.0

    def most(self, host: Host, now_s: float) -> int:
        """The most tasks that a host may have now."""
        self._now_s = now_s
        record = self._board.record(host)
        if len(record.blows) > 2 and self.odds(host, record) > BARRED_AT:
            return self._bar(host, record, now_s)
        if record.done == 0.0 and not host.done and now_s - host.joined_s < SHOWS_S:
            self._board.look_again(host, host.joined_s + SHOWS_S)
            return FIRST_TASKS
        return 1 << 30

    def _bar(self, host: Host, record: HostRecord, now_s: float) -> int:
        if now_s < record.barred_until_s:
            self._board.look_again(host, record.barred_until_s)
            return 0
        if record.pauses and record.at_s <= record.barred_until_s:
            return 1  # its pause is over: one task shows
        if not self._spared(host):
            return 1 << 30
        self._board.note(AgentQuarantined(number=host.number, at_s=now_s))
        self._board.look_again(host, self._board.record(host).barred_until_s)
        return 0

    def _spared(self, host: Host) -> bool:
        """True where at least as many processors are left: not everything is a black hole."""
        state = self._board.state
        machines = {m for m, r in state.records.items() if r.barred_until_s > state.now_s} | {
            host.machine
        }
        barred = sum(h.procs for h in state.hosts.values() if h.here and h.machine in machines)
        return 2 * barred <= self._board.places

    def odds(self, host: Host, record: HostRecord) -> float:
        """Log odds that a host is a black hole (:mod:`vgrads.bags.record`)."""
        longer_s = 2 * record.longest_s
        survivors = {n: self._survivors(host, n, longer_s) for n in {n for n, _ in record.blows}}
        return black_odds([self._chance(record, n, task, survivors[n]) for n, task in record.blows])

    def _chance(self, record: HostRecord, number: int, task: int, survivors: int) -> float:
        bag = self._board.state.bags[number]
        own = sum(blow[0] == number for blow in record.blows) if record.done else 0
        elsewhere = bag.right + survivors
        others = bag.tasks.blamed.get(task, 0) - (1 if record.done else 0)
        return honest_chance(elsewhere, max(0.0, bag.wrong - min(2, own)), max(0, others))

    def _survivors(self, host: Host, number: int, longer_s: float) -> int:
        """Other hosts that have had tasks of the same bag for longer than they took to fail
        here."""
        now_s, state = self._now_s, self._board.state
        tasks = state.bags[number].tasks
        numbers = set(tasks.where.values()).union(*tasks.copies.values())
        return sum(
            other.machine != host.machine
            and now_s - other.given_s > longer_s
            and not self._board.record(other).blows
            for other in map(state.hosts.__getitem__, numbers)
            if other.here
        )

"""Which tasks of a bag an agent gets in this round, and which running ones it is to have too."""

from __future__ import annotations

from itertools import islice

from vgrads.bags.bundle import MOST, fair_part, wanted
from vgrads.bags.choice import WINDOW, local_first
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.choosing import Choosing, Offer
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.tasks import PENDING

_NO_MOST = 1 << 30
_ELSEWHERE_S = 10.0
"""So long a task that failed on a host is kept for others."""


class TaskChoice:
    """Tasks of the bag that is next for a host."""

    def __init__(self, board: Board, choosing: Choosing) -> None:
        self._board, self._choosing = board, choosing

    def waiting(self, host: Host, offer: Offer, at_s: float, most: int) -> list[int] | None:
        """The tasks of a bag that a host gets in this round: at most what fits, and its part of the
        last ones.

        None: it has as many as it should for now.
        """
        bag = offer.bag
        places = host.procs // bag.procs
        busy = -(-host.busy_procs // bag.procs)
        target = self._target(host, offer, places)
        if target <= busy:
            return None
        if not bag.tasks.counts[PENDING]:
            return []
        room = min(target - busy, self._in_time(host, bag, places, busy, at_s), most)
        if room <= 0:
            return []
        part = fair_part(bag.tasks.pending, places, self._board.places // bag.procs)
        count = min(room, part if busy + part > places else max(part, places - busy))
        return self._next(host, bag, max(1, count), at_s)

    def _target(self, host: Host, offer: Offer, places: int) -> int:
        """How many tasks of a bag a host should hold."""
        if host.gives_back:  # others wait for what it was to give back: not at once again
            return places
        if offer.concurrency is not None:
            return min(offer.concurrency, places + MOST)
        return wanted(places, offer.bag.typical_s, self._board.rules.in_hand_s)

    def replicas(self, host: Host, offer: Offer, at_s: float, most: int) -> list[int]:
        """Running tasks of a bag that this host is to have too; only what it can begin at once."""
        bag = offer.bag
        wanted_copies = self._board.copies.get(bag.number)
        if not wanted_copies:
            return []
        places = (host.procs - host.busy_procs) // bag.procs
        room = min(most, places, self._in_time(host, bag, host.procs // bag.procs, 0, at_s))
        if room <= 0 or bag.number in {key[0] for key in host.recalled}:
            return []
        found: list[int] = []
        for task in islice(list(wanted_copies), WINDOW):
            if len(found) >= room:
                break
            if (bag.number, task) in host.held or not bag.may_have_more(task):
                continue
            if self._choosing.may_copy(host, offer, task, at_s):
                del wanted_copies[task]
                found.append(task)
        return found

    def _in_time(self, host: Host, bag: BagState, places: int, busy: int, at_s: float) -> int:
        """How many more tasks can end before the host does, by what is known of their length."""
        if host.ends_s == float("inf"):
            return _NO_MOST
        expected_s = bag.stated_s or bag.typical_s or 0.0
        if expected_s <= 0:
            return _NO_MOST if host.ends_s > at_s else 0
        rounds = int(min(_NO_MOST, (host.ends_s - at_s) / expected_s))
        if any(number != bag.number for number, _ in host.held):
            # behind tasks of another size or length: only what begins at once
            rounds = min(rounds, 1)
        return rounds * places - busy

    def _next(self, host: Host, bag: BagState, count: int, at_s: float) -> list[int]:
        bag.tasks.wake(at_s - _ELSEWHERE_S)
        not_here = self._not_here(host, bag, at_s)
        needs = self._board.digests.get(bag.number)
        if not not_here and (needs is None or not host.cached):
            return bag.tasks.next(count)
        window = bag.tasks.next(max(WINDOW, count) + len(not_here))
        window = [task for task in window if task not in not_here]
        if needs is not None and host.cached:
            window = local_first(window, [needs(task) for task in window], host.cached)
        return window[:count]

    def _not_here(self, host: Host, bag: BagState, now_s: float) -> set[int]:
        """Tasks that another host is to try first: they have just failed here, or are for the sites
        where such go."""
        board = self._board
        if not (bag.tasks.again or bag.tasks.resting) or board.hosts < 2:
            return set()
        record, found = board.record(host), set[int]()
        if record.blows and now_s - record.at_s < _ELSEWHERE_S:
            found = {task for number, task in record.blows if number == bag.number}
            board.look_again(host, record.at_s + _ELSEWHERE_S)
        if (
            bag.failover
            and host.site not in bag.failover
            and board.has_host(bag.failover, bag.procs)
        ):
            failures = bag.tasks.failures
            found |= {task for task in islice(bag.tasks.again, WINDOW) if failures.get(task)}
            found |= bag.tasks.resting.keys()
        return found

"""What hosts are given: how much, of which bag, which of its tasks; and what they are asked to give
back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vgrads.dispatch.core.blackholes import BlackHoles
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.choosing import Choosing, Offer
from vgrads.dispatch.core.faults import BagFault, serving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import Copied, Given
from vgrads.dispatch.core.talk import Answer
from vgrads.dispatch.core.task_choice import TaskChoice

_UNFIT_S = 10.0
"""So long a host that nothing was for is asked about what has come since alone: time may change
what it is."""


class Giving:
    """Answers to hosts."""

    def __init__(self, board: Board, choosing: Choosing) -> None:
        self._board = board
        self.choosing = choosing
        self.blackholes = BlackHoles(board)
        self._tasks = TaskChoice(board, self.choosing)
        self._unfit: dict[int, float] = {}  # hosts that no bag with work was for, and since when

    def answer(self, host: Host, at_s: float) -> Answer:
        """What a host is told now; nothing where there is nothing for it, and then it waits for
        work."""
        found = Answer()
        if host.to_cancel:
            found.cancel, host.to_cancel = host.to_cancel, []
        if host.to_recall:
            found.recall, host.to_recall = host.to_recall, []
        found.drain = bool(host.leaving)
        while host.here and not host.leaving:
            try:
                self._fill(host, found, at_s)
                break
            except BagFault as fault:  # the others are served without it
                if not self._board.fail(fault, at_s):
                    raise
                found.give = [triple for triple in found.give if triple[0] != fault.bag]
        if found or not host.here:
            self._board.waiting.pop(host.number, None)
        else:
            self._board.waiting[host.number] = None
        return found

    def _fill(self, host: Host, found: Answer, at_s: float) -> None:
        most = self.blackholes.most(host, at_s) - len(host.held)
        self._unfit[host.number] = at_s
        for offer in self.choosing.offers(host, at_s):
            self._unfit.pop(host.number, None)
            if offer.concurrency is not None:  # the first one's rules; later ones may only lower it
                most = min(most, offer.concurrency - len(host.held))
            if most <= 0:
                return
            with serving(offer.bag.number):
                count = self._fill_from(host, offer, found, at_s, most)
            if count is None:
                return  # it is to have the next place: nothing is given ahead of it
            most -= count
            if most <= 0:
                return

    def _fill_from(
        self, host: Host, offer: Offer, found: Answer, at_s: float, most: int
    ) -> int | None:
        """Give tasks of one bag; how many, None where the bag is to have the host's next place."""
        tasks = self._tasks.waiting(host, offer, at_s, most)
        if tasks is None:
            return None
        if tasks:
            self._board.note(Given(host.number, offer.bag.number, tasks))
        elif tasks := self._tasks.replicas(host, offer, at_s, most):
            self._board.note(Copied(host.number, offer.bag.number, tasks))
        if tasks:
            host.given_s = at_s
            self._hand_out(host, offer, tasks, found, at_s)
        return len(tasks)

    def _hand_out(
        self, host: Host, offer: Offer, tasks: Sequence[int], found: Answer, at_s: float
    ) -> None:
        number = offer.bag.number
        given = [(number, task, host.held[number, task]) for task in tasks]
        found.give += given
        self.choosing.handed_out(host, offer, given, at_s)
        if number not in host.known_bags:
            host.known_bags.add(number)
            found.new_bags.append(number)

    # hosts that wait

    def due(self, at_s: float) -> list[tuple[Host, Answer]]:
        """Answers for hosts that wait, as far as there is something for them now."""
        board = self._board
        numbers = {n: None for n in board.urgent if n in board.waiting}
        board.urgent.clear()
        numbers.update({n: None for n in board.awake(at_s) if n in board.waiting})
        asked, arrived = set(numbers), set[int]()
        if board.fresh:
            board.fresh = False
            arrived, board.arrived = board.arrived, arrived
            # the latest first: those that are idle long may go
            numbers.update(dict.fromkeys(reversed(board.waiting)))
        found = []
        for number in numbers:
            host = board.state.hosts[number]
            told = bool(host.to_cancel or host.to_recall or host.leaving)
            if not told and not board.work:
                if number not in asked:
                    break  # those that follow wait for work alone
                continue
            if not told and number not in asked and self._is_unfit(number, arrived, at_s):
                continue
            answer = self.answer(host, at_s)
            if answer:
                found.append((host, answer))
        return found

    def _is_unfit(self, number: int, arrived: Collection[int], at_s: float) -> bool:
        """True where nothing was for a host a moment ago, and nothing that has come since is
        left."""
        if at_s - self._unfit.get(number, float("-inf")) >= _UNFIT_S:
            return False
        return not any(self._board.work_for(self._board.state.bags[bag]) for bag in arrived)

    def level(self) -> None:
        """Where hosts wait and nothing that waits is for them: what others hold and cannot have
        begun is recalled for them, as far as they may have it."""
        board, hosts = self._board, self._board.state.hosts
        free = [hosts[n] for n in board.waiting if not hosts[n].busy_procs]
        idle = sum(host.procs for host in free)
        if not idle or (board.ready and any(host.number not in self._unfit for host in free)):
            return
        wanted_there: dict[int, bool] = {}
        for _, number in sorted(self._overfull(), reverse=True):
            host = hosts[number]
            spare = []
            for key in [k for k in list(host.held)[host.procs :] if k not in host.recalled]:
                if key[0] not in wanted_there:
                    wanted_there[key[0]] = any(self.choosing.serves(h, key[0]) for h in free)
                if wanted_there[key[0]]:
                    spare.append(key)
            spare = spare[-idle:]
            if spare:
                host.recalled.update(spare)
                host.to_recall += [(*key, host.held[key]) for key in spare]
                board.urgent[number] = None
                idle -= len(spare)
            if idle <= 0:
                return

    def _overfull(self) -> set[tuple[int, int]]:
        """(tasks in hand, host) of those that have more than they can run."""
        hosts = self._board.state.hosts
        numbers = {number for bag in self._board.serving for number in bag.tasks.where.values()}
        held = ((hosts[number], number) for number in numbers)
        return {(len(host.held), number) for host, number in held if len(host.held) > host.procs}

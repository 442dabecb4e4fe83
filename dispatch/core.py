"""What a dispatcher decides: messages of hosts in, records for the journal and answers out.

No clock, no files, no sockets: who calls it writes the records before it sends the answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from bags.bag import Bag
from bags.bundle import fair_part, wanted
from bags.choice import POLICIES, WINDOW, BagView, local_first
from dispatch.hosts import Hello, Host, Key
from dispatch.records import Back, End, Ended, Given, Kept, Record, Word
from dispatch.state import BagState, Effect, State
from dispatch.talk import Answer, Message, Rules, Triple
from dispatch.tasks import ENDED, PENDING


class Core:
    """A dispatcher's decisions over its state. ``tell``: takes each record before anything follows from it.

    ``told``: hears of each end and what it came to, for whoever waits for results.
    """

    def __init__(
        self, state: State, rules: Rules, tell: Callable[[Record], None],
        told: Callable[[int, End, Effect], None] = lambda *_: None,
    ) -> None:  # fmt: skip
        self.state, self.rules, self._tell, self._told = state, rules, tell, told
        self._key = POLICIES[rules.policy]
        self.heard_s: OrderedDict[int, float] = OrderedDict()
        self.waiting: OrderedDict[int, None] = OrderedDict()  # hosts that hold the line for work
        self.bags: dict[int, Bag] = {}
        self.places = 0  # processors of the hosts that are here and stay
        self._staying: dict[int, int] = {}
        self.serving: list[BagState] = []
        self._urgent: dict[int, None] = {}  # hosts that are to be told something
        self._fresh = True  # tasks have come to wait since hosts were looked through
        self._digests: dict[int, Callable[[int], Sequence[str]]] = {}
        self._refresh()

    def note(self, record: Record) -> list[Effect]:
        self._tell(record)
        effects = self.state.apply(record)
        if not isinstance(record, Given | Kept):
            self._fresh = self._fresh or not effects or any(effect.again for effect in effects)
        return effects

    def _refresh(self) -> None:
        """Which bags are not over: after a change that is rare."""
        self.serving = [b for b in self.state.bags.values() if not b.over]

    def _count_in(self, host: Host) -> None:
        """Count a host's processors, or no more."""
        self.places -= self._staying.pop(host.number, 0)
        if host.here and not host.leaving:
            self._staying[host.number] = host.procs
            self.places += host.procs

    # bags

    def add(self, number: int, bag: Bag, at_s: float, open_: bool = False) -> None:
        """Take a bag on; ``open_``: more of its tasks may come."""
        self.note(
            Word("bag", {
                "number": number, "count": len(bag.commands), "at_s": at_s, "name": bag.name, "owner": bag.owner,
                "weight": bag.weight, "procs": bag.procs, "retries": bag.retries, "sites": list(bag.sites),
                "stated_s": bag.estimate_s, "open": open_,
            })
        )  # fmt: skip
        self.attach(number, bag)

    def attach(
        self, number: int, bag: Bag, digests: Callable[[int], Sequence[str]] | None = None
    ) -> None:
        """What the tasks of a bag run; ``digests``: of each one's inputs, where they are looked at."""
        self.bags[number] = bag
        if digests:
            self._digests[number] = digests
        self._refresh()

    def grow(self, number: int, count: int) -> None:
        """More tasks of an open bag; one that was closed or cancelled meanwhile stays as it is."""
        if count and self.state.bags[number].open:
            self.note(Word("grown", {"number": number, "count": count}))

    def close(self, number: int, at_s: float) -> None:
        """No more tasks come."""
        if self.state.bags[number].open:
            self.note(Word("closed", {"number": number, "at_s": at_s}))
            self._refresh()

    def cancel(self, number: int, at_s: float, reason: str) -> None:
        """Drop what has not ended; hosts are told."""
        bag = self.state.bags[number]
        for task, host in bag.tasks.where.items():
            self.state.hosts[host].to_cancel.append((number, task, bag.tasks.attempts[task]))
            self._urgent[host] = None
        if not bag.over:
            self.note(Word("cancelled", {"number": number, "at_s": at_s, "reason": reason}))
        self._refresh()

    # hosts

    def hear(self, message: Message, at_s: float, site: str = "") -> bool:
        """Take in what a host says; False where it must say hello first (it is not known here)."""
        host = self._known(message.host)
        if host is not None and host.life == message.life and message.seq <= host.seq:
            return False  # from a connection that is gone: what it says was true once
        if message.hello is not None:
            host = self._hello(host, message, message.hello, at_s, site)
        elif host is None or not host.here or host.life != message.life:
            return False
        self.heard_s[host.number] = at_s
        self.heard_s.move_to_end(host.number)
        host.seq = max(host.seq, message.seq)
        host.cached.update(message.cached)
        self._ends(message.ends)
        host.gives_back = bool(message.returned)
        self._returned(host, message.returned)
        if message.leaving and not host.leaving:
            host.leaving = message.leaving
            self._count_in(host)
        if host.leaving and not host.held:
            self.gone(host, at_s, lost=False)
        return True

    def _known(self, id: str) -> Host | None:
        number = self.state.by_id.get(id)
        return None if number is None else self.state.hosts[number]

    def is_past(self, message: Message) -> bool:
        """True for an agent in whose place another one has come: it is to stop."""
        host = self._known(message.host)
        return host is not None and message.life in host.past_lives

    def _hello(
        self, host: Host | None, message: Message, hello: Hello, at_s: float, site: str
    ) -> Host:
        if host is not None and host.life and host.life != message.life:
            host.past_lives.add(host.life)
        if host is None or not host.here or host.life != message.life:
            if (
                host is not None
                and host.here
                and host.held
                and host.life
                and host.life != message.life
            ):
                self.gone(host, at_s, lost=True)  # another process in its place: the first is dead
            number = host.number if host else len(self.state.hosts)
            ends_s = at_s + hello.left_s if hello.left_s is not None else float("inf")
            self.note(
                Word("joined", {
                    "number": number, "id": message.host, "at_s": at_s, "slot": hello.slot, "node": hello.node,
                    "procs": max(1, hello.procs), "memory_mib": hello.memory_mib, "name": hello.name, "site": site,
                    "ends_s": ends_s, "life": message.life,
                })
            )  # fmt: skip
            host = self.state.hosts[number]
            self._count_in(host)
        host.seq, host.cached = message.seq, set(hello.cached)
        host.known_bags, host.recalled = set(), set()
        host.to_cancel, host.to_recall = [], []
        self._reconcile(host, hello.held, {(b, e.task, e.attempt) for b, e in message.ends})
        return host

    def _reconcile(self, host: Host, held: Iterable[Triple], ended: set[Triple]) -> None:
        """The host is believed: what it has it keeps if it is still wanted, what it never got waits again."""
        said = {(bag, task): attempt for bag, task, attempt in held}
        missing: dict[int, list[int]] = {}
        for (bag, task), attempt in host.held.items():
            if said.get((bag, task)) != attempt and (bag, task, attempt) not in ended:
                missing.setdefault(bag, []).append(task)
        for bag, tasks in missing.items():
            self.note(Back(host.number, bag, tasks))
        for (bag, task), attempt in said.items():
            if host.held.get((bag, task)) == attempt:
                continue
            of = self._task(bag, task)
            if (
                of is not None
                and of.tasks.status[task] == PENDING
                and of.tasks.attempts[task] == attempt
            ):
                self.note(Kept(host.number, bag, [task]))
            else:
                host.to_cancel.append((bag, task, attempt))

    def _task(self, bag: int, task: int) -> BagState | None:
        of = self.state.bags.get(bag)
        return of if of is not None and 0 <= task < len(of.tasks) else None

    def _ends(self, ends: Sequence[tuple[int, End]]) -> None:
        by_bag: dict[int, list[End]] = {}
        done: set[Key] = set()
        for bag, end in ends:
            of = self._task(bag, end.task)
            if of is None or not 0 < end.attempt <= of.tasks.attempts[end.task]:
                continue  # a result for a task that nobody gave
            if (bag, end.task) in done or of.tasks.status[end.task] in ENDED:
                continue  # told before
            if end.code == 0:
                done.add((bag, end.task))
            by_bag.setdefault(bag, []).append(end)
        for bag, new in by_bag.items():
            for end, effect in zip(new, self.note(Ended(bag, new)), strict=True):
                self._told(bag, end, effect)
                if effect.elsewhere is not None:
                    other = self.state.hosts[effect.elsewhere]
                    attempt = other.held.get((bag, end.task))
                    if attempt is not None:
                        self.note(Back(other.number, bag, [end.task]))
                        other.to_cancel.append((bag, end.task, attempt))
                        self._urgent[other.number] = None

    def _returned(self, host: Host, returned: Sequence[Triple]) -> None:
        by_bag: dict[int, list[int]] = {}
        for bag, task, attempt in returned:
            if host.held.get((bag, task)) == attempt:
                by_bag.setdefault(bag, []).append(task)
        for bag, tasks in by_bag.items():
            self.note(Back(host.number, bag, tasks))

    def gone(self, host: Host, at_s: float, lost: bool) -> None:
        """A host is here no more."""
        self.note(Word("left", {"number": host.number, "at_s": at_s, "lost": lost}))
        self.heard_s.pop(host.number, None)
        self.waiting.pop(host.number, None)
        self._count_in(host)

    def lose_silent(self, at_s: float) -> list[Host]:
        """Hosts that were not heard of for too long."""
        lost = []
        while self.heard_s:
            number, heard_s = next(iter(self.heard_s.items()))
            if at_s - heard_s < self.rules.lost_s:
                break
            host = self.state.hosts[number]
            self.gone(host, at_s, lost=True)
            lost.append(host)
        return lost

    def awake_after_restart(self, at_s: float) -> None:
        """Hosts of a journal that was read again have until now to show that they are there."""
        for host in self.state.hosts.values():
            if host.here:
                self.heard_s[host.number] = at_s
                self._count_in(host)
        self._refresh()

    # work

    def answer(self, host: Host, at_s: float) -> Answer:
        """What a host is told now; nothing where there is nothing for it, and then it waits for work."""
        found = Answer()
        if host.to_cancel:
            found.cancel, host.to_cancel = host.to_cancel, []
        if host.to_recall:
            found.recall, host.to_recall = host.to_recall, []
        found.drain = bool(host.leaving)
        if host.here and not host.leaving:
            self._fill(host, found, at_s)
        if found or not host.here:
            self.waiting.pop(host.number, None)
        else:
            self.waiting[host.number] = None
        return found

    def _fill(self, host: Host, found: Answer, at_s: float) -> None:
        passed: set[int] = set()
        while True:
            bag = self._choose(host, passed)
            if bag is None:
                return
            tasks = self._tasks_for(host, bag, at_s)
            passed.add(bag.number)  # its part of the last tasks is a part, not one after the other
            if tasks is None:
                return  # it is to have the next place: nothing is given ahead of it
            if not tasks:
                continue
            self.note(Given(host.number, bag.number, tasks))
            attempts = bag.tasks.attempts
            found.give += [(bag.number, task, attempts[task]) for task in tasks]
            if bag.number not in host.known_bags:
                host.known_bags.add(bag.number)
                found.new_bags.append(bag.number)

    def _choose(self, host: Host, passed: set[int]) -> BagState | None:
        """The bag to be served next; None where none fits."""
        fit = [
            b for b in self.serving
            if b.tasks.counts[PENDING] and b.number not in passed and (not b.sites or host.site in b.sites)
        ]  # fmt: skip
        if len(fit) < 2:
            return fit[0] if fit else None
        views = self.state.views(fit, self.serving)
        return self.state.bags[min(views, key=self._key).number]

    def _tasks_for(self, host: Host, bag: BagState, at_s: float) -> list[int] | None:
        """The tasks of a bag that a host gets in this round: at most what fits, and its part of the last ones.

        None: it has as many as it should for now.
        """
        if bag.procs > host.procs:
            return []
        places = host.procs // bag.procs
        target = wanted(places, bag.typical_s, self.rules.in_hand_s)
        if host.gives_back:  # others wait for what it was to give back: not at once again
            target = places
        busy = -(-host.busy_procs // bag.procs)
        if target <= busy:
            return None
        room = min(target - busy, self._in_time(host, bag, places, busy, at_s))
        if room <= 0:
            return []
        part = fair_part(bag.tasks.pending, places, self.places // bag.procs)
        most = min(room, part if busy + part > places else max(part, places - busy))
        return self._next(host, bag, max(1, most))

    def _in_time(self, host: Host, bag: BagState, places: int, busy: int, at_s: float) -> int:
        """How many more tasks can end before the host does, by what is known of their length."""
        if host.ends_s == float("inf"):
            return 1 << 30
        expected_s = bag.stated_s or bag.typical_s or 0.0
        if expected_s <= 0:
            return 1 << 30 if host.ends_s > at_s else 0
        rounds = int((host.ends_s - at_s) / expected_s)
        if any(number != bag.number for number, _ in host.held):
            rounds = min(
                rounds, 1
            )  # behind tasks of another size or length: only what begins at once
        return rounds * places - busy

    def _next(self, host: Host, bag: BagState, count: int) -> list[int]:
        needs = self._digests.get(bag.number)
        if needs is None or not host.cached:
            return bag.tasks.next(count)
        window = bag.tasks.next(max(WINDOW, count))
        return local_first(window, [needs(task) for task in window], host.cached)[:count]

    def due(self, at_s: float) -> list[tuple[Host, Answer]]:
        """Answers for hosts that wait, as far as there is something for them now."""
        numbers = {n: None for n in self._urgent if n in self.waiting}
        self._urgent.clear()
        if self._fresh:
            self._fresh = False
            # the latest first: those that are idle long may go
            numbers.update(dict.fromkeys(reversed(self.waiting)))
        found = []
        for number in numbers:
            host = self.state.hosts[number]
            told = bool(host.to_cancel or host.to_recall or host.leaving)
            if not told and not any(b.tasks.counts[PENDING] for b in self.serving):
                continue
            answer = self.answer(host, at_s)
            if answer:
                found.append((host, answer))
        return found

    def level(self) -> None:
        """Where hosts wait and nothing is pending: what others hold and cannot have begun is recalled for them."""
        hosts = self.state.hosts
        idle = sum(hosts[n].procs for n in self.waiting if not hosts[n].busy_procs)
        if not idle or any(b.tasks.counts[PENDING] for b in self.serving):
            return
        for _, number in sorted(self._overfull(), reverse=True):
            host = hosts[number]
            spare = [k for k in list(host.held)[host.procs :] if k not in host.recalled][-idle:]
            if spare:
                host.recalled.update(spare)
                host.to_recall += [(*key, host.held[key]) for key in spare]
                self._urgent[number] = None
                idle -= len(spare)
            if idle <= 0:
                return

    def _overfull(self) -> set[tuple[int, int]]:
        """(tasks in hand, host) of those that have more than they can run."""
        numbers = {number for bag in self.serving for number in bag.tasks.where.values()}
        held = ((self.state.hosts[number], number) for number in numbers)
        return {(len(host.held), number) for host, number in held if len(host.held) > host.procs}

    def dismiss(self, host: Host, why: str) -> None:
        """A host is to leave when what it runs has ended."""
        if not host.leaving:
            host.leaving = why
            self._urgent[host.number] = None
            self._count_in(host)

    def order_of(self, bags: Iterable[BagView]) -> list[int]:
        """Bags as the policy orders them, for whoever asks why."""
        return [view.number for view in sorted(bags, key=self._key)]

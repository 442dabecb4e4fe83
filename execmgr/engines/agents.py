"""Tasks in slots elsewhere, run by the agents that bags use too (:mod:`vgrads.agent`).

Each slot starts an agent on every node, which connects to this manager over TLS with a key of its
own. Threads prepare orders and judge results; the port has a loop in a thread of its own
(:mod:`vgrads.execmgr.engines.agent_server`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vgrads.exchange.keys import derive_key
from vgrads.exchange.values import AttemptEnd, Triple
from vgrads.execmgr.engines.agent_server import AgentServer
from vgrads.execmgr.engines.completion_queue import Completions
from vgrads.execmgr.engines.folder import FolderEngine
from vgrads.execmgr.engines.slot_agents import SlotAgents
from vgrads.execmgr.engines.slot_order import SlotOrder
from vgrads.execmgr.tasks.agent_orders import AgentOrders
from vgrads.execmgr.tasks.agent_results import append_output, judge_attempt, store_output, sum_times
from vgrads.execmgr.tasks.folder import AGENTS, TaskFolder
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.process import AttemptVerdict
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError
from vgrads.planner.snapshot import ReplicaKey

_THREADS = 3  # they wait for disks
# messages accept no larger number (vgrads.exchange.messages)
_BITS = 31  # of each number in an agent's key of a task
_LEAVE_S, _ANSWER_S = 10.0, 1.0


def agent_key(order: TaskOrder) -> Triple:
    """Return the numbers by which agents know an attempt: the same for every manager of a run."""
    text = "\0".join(map(str, order.key))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    mask = (1 << _BITS) - 1
    return number >> _BITS & mask, number & mask, order.attempt + 1


@dataclass(eq=False, slots=True)
class _SentOrder:
    """An order, since when, and whether its end is to be reported."""

    order: TaskOrder
    since_s: float
    staged_s: float = 0.0
    needed: bool = True


class AgentEngine(FolderEngine):
    """Runs replicas on the agents of their slots.

    ``run``: prefix of the slots' names at their sites; ``folder`` is the same on every machine,
    except at the sites in ``apart``: there a task's files are sent. ``account``: of the tasks,
    where agents run as root. The port is opened when the first slot elsewhere needs it, at the
    number that an earlier manager of the run had.
    """

    def __init__(
        self,
        run: str,
        clock: Clock,
        folder: TaskFolder,
        news: Completions | None = None,
        apart: frozenset[str] = frozenset(),
        account: int = 0,
    ) -> None:
        super().__init__(clock, folder, news)
        self._run, self._home = run, folder.run_folder / AGENTS
        self._orders = AgentOrders(folder, apart, account)
        self._sent: dict[Triple, _SentOrder] = {}
        self._polled: list[Triple] = []  # returned by poll(), not yet in the journal
        self._ended: dict[ReplicaKey, Triple] = {}
        self._server: AgentServer | None = None
        self._pool = ThreadPoolExecutor(_THREADS, "orders")
        self._detached = False

    # slots

    def environment(self, host: str) -> dict[str, str]:
        """Return the environment of agents that reach this machine under ``host``."""
        server = self._open()
        # agents end with their slots
        return {**server.keys.contact(host, server.number), "VGRADS_AWAY_S": "1e9"}

    def key_for(self, slot: str, name: str) -> dict[str, str]:
        """Return the variable that holds the key of a slot, which has this name at its site."""
        server = self._open()
        server.call(lambda agents: agents.names.use(slot, name))
        return {"VGRADS_HOST_KEY": derive_key(server.keys.secret, name)}

    def reports(self, slot: str) -> bool:
        """True if an agent of a slot accepts tasks."""
        return self._server is not None and bool(self._server.agents.available(slot))

    def dismiss(self, slot: str) -> bool:
        """Tell the agents of a slot to end by themselves; False where none accepts tasks."""
        return self._server is not None and self._server.dismiss(slot)

    def _open(self) -> AgentServer:
        """Return the server, started now if it does not run."""
        if self._server is None:
            self._server = AgentServer(self._home, SlotAgents(self._run, self._clock, self))
        return self._server

    # orders

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            if not self._done_before(order):
                self._recorder.look(order)
                self._do(self._prepare, agent_key(order), self._add(order))

    def _add(self, order: TaskOrder) -> _SentOrder:
        self._open()
        sent = self._sent[agent_key(order)] = _SentOrder(order, time.monotonic())
        return sent

    def _do(
        self, work: Callable[[Triple, _SentOrder], None], key: Triple, sent: _SentOrder
    ) -> None:
        """Do some work for an order in a thread; an error is its end."""

        def guarded() -> None:
            try:
                work(key, sent)
            except OSError as error:
                self._end(key, sent, AttemptVerdict(str(error)))
            except Exception as error:
                self._end(key, sent, AttemptVerdict(f"{type(error).__name__}: {error}"))
                raise

        if not self._detached:
            self._pool.submit(guarded)

    def _prepare(self, key: Triple, sent: _SentOrder) -> None:
        if not sent.needed:
            return
        began_s = time.monotonic()
        order = self._orders.prepare(sent.order)
        sent.staged_s = time.monotonic() - began_s
        task = SlotOrder(key, sent.order.slot, sent.order.procs, order)
        # asked again in the loop: meanwhile it may have been cancelled
        self._open().call(lambda agents: agents.send(task) if sent.needed else None)

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """Take the orders over from an earlier manager: agents tell which of them they have.

        The port is opened at once if that manager had one: agents try to reach it.
        """
        for order in orders:
            if self._done_before(order):
                continue
            self._recorder.look(order)
            key, sent = agent_key(order), self._add(order)
            try:
                self._orders.serve(order)
            except OSError as error:
                self._end(key, sent, AttemptVerdict(str(error)))
                continue
            self._open().call(
                partial(SlotAgents.expect, key=key, slot=order.slot, procs=order.procs)
            )
        if orders or self._home.is_dir():
            self._open().call(SlotAgents.begin)

    def cancel(self, key: ReplicaKey) -> None:
        # a copy: threads remove orders at the same time
        for number, sent in list(self._sent.items()):
            if sent.order.key == key and sent.needed:
                sent.needed = False
                self._open().call(partial(SlotAgents.cancel, key=number))

    def forget(self, key: ReplicaKey) -> None:
        """Note that the end of a replica was polled."""
        if key in self._ended:
            self._polled.append(self._ended.pop(key))

    def stored(self) -> None:
        polled, self._polled = self._polled, []
        if polled and self._server is not None:
            self._server.call(lambda agents: agents.confirm(polled))

    def close(self) -> None:
        for sent in list(self._sent.values()):
            self.cancel(sent.order.key)
        if self._server is not None and not self._detached:
            self.stored()
            _await_agents(self._server.agents)
        self.detach()
        self._finish()

    def detach(self) -> None:
        self._detached = True
        # before the server, which these threads use
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._server is not None:
            self._server.close()

    # reports of agents (Listener), in the server's loop

    def on_introduced(self) -> None:
        self.news.put(None)  # its slot is ready

    def on_end(self, key: Triple, end: AttemptEnd, out: str, err: str) -> None:
        sent = self._sent.get(key)
        if sent is None or not sent.needed:
            # no event is journaled for it, so nothing else would let its agent forget it
            self._sent.pop(key, None)
            self._open().call(lambda agents: agents.confirm([key]))
            return
        since_s = time.monotonic() - sent.since_s

        def judge(key: Triple, sent: _SentOrder) -> None:
            order, apart = sent.order, self._orders.is_apart(sent.order)
            if apart:
                store_output(self._folder.place(order), out, err)
            verdict = judge_attempt(self._folder, order, end, err, apart)
            self._end(key, sent, replace(verdict, times=sum_times(end, since_s, sent.staged_s)))

        self._do(judge, key, sent)

    def _end(self, key: Triple, sent: _SentOrder, verdict: AttemptVerdict) -> None:
        if self._sent.get(key) is sent:
            del self._sent[key]
        if sent.needed and not self._detached:
            self._ended[sent.order.key] = key
            self._report(sent.order, verdict)

    def on_printed(self, key: Triple, out: str, err: str) -> None:
        sent = self._sent.get(key)
        if sent is not None and self._orders.is_apart(sent.order):
            with suppress(OSError):  # the end brings all of it again
                append_output(self._folder.place(sent.order), out, err)

    def on_lost(self, key: Triple, reason: str) -> None:
        sent = self._sent.get(key)
        if sent is not None:
            self._end(key, sent, AttemptVerdict(reason))

    def on_missing(self, key: Triple) -> None:
        sent = self._sent.get(key)
        if sent is not None:
            self._do(self._prepare, key, sent)

    def destination(self, key: Triple, name: str) -> Path:
        sent = self._sent[key]
        if name not in sent.order.outputs:
            raise InputError("is not a declared output", where=name)
        return self._folder.place(sent.order) / name

    def input(self, digest: str) -> Path | None:
        return self._orders.input(digest)


def _await_agents(agents: SlotAgents) -> None:
    """Wait until agents have ended what is cancelled, and have their answers, for some seconds."""
    # one without a connection could not answer in this time
    _await_end(lambda: any(a.assigned for a in agents.connected()), _LEAVE_S)
    _await_end(lambda: any(a.awaits_answer for a in agents.connected()), _ANSWER_S)


def _await_end(still: Callable[[], bool], patience_s: float) -> None:
    end_s = time.monotonic() + patience_s
    while still() and time.monotonic() < end_s:
        time.sleep(0.01)

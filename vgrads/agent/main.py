"""The agent on a node: requests tasks from the manager, runs them as processes, reports their
results.

Configured by its environment: ``VGRADS_CONTACT``, ``VGRADS_KEY_FD`` (a descriptor from which the
key is read once) or ``VGRADS_HOST_KEY`` (the key), ``VGRADS_CERT``,
``VGRADS_SLOT``, ``VGRADS_NODE``, ``VGRADS_PROCS``, ``VGRADS_NODES``, and optionally
``VGRADS_HOST_PROCS``, ``VGRADS_LEFT_S``, ``VGRADS_CACHE``, ``VGRADS_PROXY``, ``VGRADS_TURNS``; or
by a file of these, its first argument, when the agent is itself a task of a pool's agent that
serves one manager after another. ``VGRADS_AWAY_S``: after so long without the manager it leaves,
with success where it belongs to a pool. One process and one loop, with a guardian
(:mod:`vgrads.agent.scratch`); only connections and files have threads. Results are retransmitted
until the manager acknowledges them; while the manager is unreachable, the agent tries to reconnect
and tasks run on.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterable, Sequence

from .attempts import AgentTask, Key
from .bags import BagRegistry, Visible
from .events import Events
from .lifetime import InterruptionNotice, Lifetime
from .link import KeyRefused, ManagerAddress, contacts_of, hide_key
from .machine import NodeIdentity, as_a_task
from .marks import end_tasks
from .parent_job import ParentJob
from .processes import conceal
from .scratch import fork_agent, make_scratch, remove, sweep
from .session import IDLE, AgentLoad, Session
from .spawner import Spawner
from .store import FileCache
from .tasks import TaskQueue, printed_lines
from .transfers import Transfers

BAD_KEY, NO_MANAGER, MISTOLD, ALONE = 77, 75, 78, 1
"""Exit codes: the key is wrong or revoked; the manager was unreachable for too long; the
environment is incomplete; the guardian was killed, or the agent has a fault."""


class Agent:
    """The agent's loop."""

    def __init__(
        self, manager: ManagerAddress, identity: NodeIdentity, incarnation: str, scratch: Path
    ) -> None:
        self.identity, self._events, self._spawner = identity, Events(), Spawner()
        (scratch / "here").mkdir(mode=0o700)
        if os.geteuid() == 0:  # tasks of other accounts reach their own folders in it
            scratch.chmod(0o711)
        cache = Path(identity.cache or scratch / "cache")
        self._tasks = TaskQueue(
            identity.procs,
            str(scratch / "here"),
            str(cache),
            f"{identity.within}{identity.host}.{incarnation}",
            self._spawner,
            lambda: sweep(str(scratch.parent)),
        )
        visible = Visible(dict(os.environ), identity.own, identity.pass_env, identity.for_tasks())
        self._bags = BagRegistry(visible, str(scratch / "here"), str(cache))
        ring = self._events.ring
        self._store = FileCache(manager, cache, ring)
        self._unacknowledged: set[Key] = (
            set()
        )  # all tasks received, until their ends are acknowledged
        who = {"host": identity.host, "life": incarnation}
        self._session = Session(manager, who, identity.turns, ring, self._hello, self._beat)
        self._transfers = Transfers(self._store, scratch, self._tasks, self._session)
        notice = InterruptionNotice(os.environ, ring)
        self._lifetime = Lifetime(identity, self._session, notice)

    def run(self, guardian: int) -> int:
        """Run until the agent leaves; return its exit code. ``guardian``: readable when the
        guardian is gone."""
        self._events.add(guardian, "guardian")
        self._events.add(self._spawner.fileno(), "ends")
        self._events.add(self._tasks.calls.events.fileno(), "calls")
        try:
            while True:
                now_s = time.monotonic()
                if self._lifetime.is_over(now_s, self._holds()):
                    alone = self._lifetime.is_alone(now_s) and not self.identity.within
                    return NO_MANAGER if alone else 0
                self._events.follow(self._session.link)
                ready = self._events.wait(self._next_s(now_s))
                if "guardian" in ready:
                    return ALONE  # the starter assumes it dead: nothing of it may continue
                self._turn(ready)
        except KeyRefused:
            _report("the manager refuses this agent's key")
            return BAD_KEY
        finally:
            self._store.close()
            self._tasks.kill_all(2.0)
            self._events.close()

    def _next_s(self, now_s: float) -> float:
        """Return how long nothing needs to be done, in seconds."""
        at_s = (
            self._session.next_s(now_s),
            self._lifetime.next_s(self._holds()),
            now_s + self._tasks.next_look_s(now_s),
        )
        return max(0.0, min(at_s) - now_s)

    def _turn(self, ready: set[str]) -> None:
        """Handle the events that occurred; tasks first, since processors wait for them."""
        now_s = time.monotonic()
        calls = self._tasks.calls_over() if "calls" in ready else []
        over = self._tasks.reap(now_s) if "ends" in ready or self._spawner.look_s else []
        self._begin(now_s)
        for end in [*calls, *self._tasks.ends_of(over, now_s)]:
            if end.task.folder and end.code is not None:  # its outputs are sent first
                self._transfers.send(end)
            else:
                self._session.add("ended", end.to_wire())
        haste = self._lifetime.must_leave(now_s, self._events.signalled)
        if haste is not None:
            self._leave(*haste)
        self._transfers.look()
        self._session.look(now_s)
        if "link" in ready:
            for answer in self._session.receive():
                self._apply(answer, now_s)
        self._tasks.look(now_s)
        self._begin(now_s)
        if self._lifetime.is_idle(now_s, self._holds()):
            self._leave(IDLE)
        supply = len(self._tasks.waiting) / self._tasks.procs
        self._session.load = AgentLoad(self._holds(), supply)
        self._session.send()

    def _begin(self, now_s: float) -> None:
        tasks = self._tasks
        for end in tasks.begin(now_s) if tasks.waiting or tasks.starts.failed else ():
            self._session.add("ended", end.to_wire())

    def _take(self, values: list[Any], now_s: float) -> None:
        """Accept a task."""
        task = AgentTask(values, self._bags.of(values), now_s)
        if self._session.leaving:
            self._session.add("returned", list(task.key))
        elif task.has_files or task.bag.interpreter:
            self._transfers.fetch(task)
        else:
            self._tasks.waiting.append(task)

    def _holds(self) -> bool:
        tasks = self._tasks
        return bool(tasks.running or tasks.lingering or tasks.waiting or self._transfers.moving)

    def _give_back(self, keys: Iterable[Sequence[int]]) -> None:
        """Return those of these tasks that have not started to the manager."""
        needed_keys: set[Key] = {(key[0], key[1], key[2]) for key in keys}
        for key in [*self._transfers.take_back(needed_keys), *self._tasks.take_back(needed_keys)]:
            self._session.add("returned", list(key))

    def _leave(self, why: str, within_s: float = math.inf) -> None:
        """Accept no more tasks; after a stated time (seconds) also end running tasks."""
        self._session.leave(why)
        self._lifetime.end_within(within_s)
        self._give_back([*(task.key for task in self._tasks.waiting), *self._transfers.moving])
        if within_s < math.inf:
            for key in list(self._tasks.running):
                self._tasks.end(key, f"the agent is leaving: {why}")

    # -- messages to and from the manager

    def _beat(self) -> dict[str, Any]:
        now_s, running = time.monotonic(), self._tasks.running
        ages = [[*key, round(now_s - task.began_s, 3)] for key, task in running.items()]
        printed = printed_lines(running.values())
        return {"running": ages, **({"printing": printed} if printed else {})}

    def _hello(self) -> dict[str, Any]:
        left_s = self._lifetime.left_s(time.monotonic())
        return {
            **self.identity.to_hello(),
            "held": [
                *(task.key for task in self._tasks.waiting),
                *self._tasks.running,
                *self._tasks.lingering,
                *self._transfers.moving,
            ],
            "cached": self._store.cached(),
            "left_s": None if left_s is None else round(left_s, 3),
        }

    def _apply(self, answer: dict[str, Any], now_s: float) -> None:
        self._unacknowledged.difference_update(self._session.absorb(answer, now_s))
        if "idle_s" in answer:
            self._lifetime.may_idle(answer["idle_s"])
        for number, message in (answer.get("bags") or {}).items():
            self._bags.learn(int(number), message)
        for assigned in answer.get("give") or ():
            key = (assigned[0], assigned[1], assigned[2])
            if key not in self._unacknowledged:  # else the manager missed its report
                self._unacknowledged.add(key)
                self._take(assigned, now_s)
        self._give_back(answer.get("recall") or ())
        for key in answer.get("cancel") or ():
            self._give_back([key])
            self._tasks.end(tuple(key), "cancel")
        if answer.get("stop"):
            self._leave("stop", 0.0)
        elif answer.get("drain") and not self._session.leaving:
            self._leave("drained")


def _read_once(path: Path) -> dict[str, str]:
    """Return the settings of a pool's agent, and remove the file, which holds the key."""
    settings: dict[str, str] = json.loads(path.read_text())
    with suppress(OSError):
        path.unlink()
    return settings


def _report_unusable(error: Exception) -> int:
    _report(f"the environment of this agent is not usable: {error}")
    return MISTOLD


def _report(text: str) -> None:
    """Write a line on stderr where that is possible: on a full disk the agent still ends as it
    should."""
    with suppress(OSError, ValueError, AttributeError):
        print(f"vgrads: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Run the agent; exit with its code."""
    with suppress(OSError, ValueError):  # the descriptor of the agent's own file: not for tasks
        os.set_inheritable(int(os.environ.get("VGRADS_AGENT_FILE", "")), False)
    try:
        if sys.argv[1:]:
            os.environ.update(as_a_task(_read_once(Path(sys.argv[1])), os.environ))
        contacts_of(os.environ)
        hide_key(os.environ)
        identity = NodeIdentity.from_environment(os.environ)
    except (KeyError, ValueError, OSError) as error:
        sys.exit(_report_unusable(error))
    near = os.environ.get("VGRADS_SCRATCH") or None
    slot = ParentJob(os.environ.get("VGRADS_SCRIPT", ""))
    environment = dict(os.environ)
    for name in [word for word in os.environ if word.startswith("VGRADS_")]:
        del os.environ[name]
    # left by an agent that was killed here
    end_tasks(f"{identity.host}.")
    sweep(near)
    incarnation = os.urandom(8).hex()
    mark = f"{identity.host}.{incarnation}"
    scratch, lock = make_scratch(near, mark)
    guardian = fork_agent(mark, scratch, lock, slot)
    parent, code = os.getppid(), 1
    try:
        conceal()  # before the key is read, and never in the guardian, which others may look at
        manager = ManagerAddress.from_environment(environment)
        code = Agent(manager, identity, incarnation, scratch).run(guardian)
    except (KeyError, ValueError) as error:
        code = _report_unusable(error)
    except BaseException:
        _report(traceback.format_exc())
    # the guardian was killed, whether or not the system has given its child another parent yet
    if code == ALONE or os.getppid() != parent:
        remove(scratch, mark)
    os._exit(code)  # do not wait for threads that wait for the network


if __name__ == "__main__":
    main()

"""What runs on a host: asks the manager for tasks, runs them as processes, tells how they ended.

Told by its environment: ``VGRADS_CONTACT``, ``VGRADS_HOST_KEY``, ``VGRADS_CERT``, ``VGRADS_SLOT``,
``VGRADS_NODE``, ``VGRADS_PROCS``, ``VGRADS_NODES``, and where stated ``VGRADS_HOST_PROCS``,
``VGRADS_LEFT_S``, ``VGRADS_CACHE``, ``VGRADS_PROXY``, ``VGRADS_TURNS``; or by a file of these, its
first argument: so it is when the agent is itself a task, of a pool's host that works for one
manager after another. ``VGRADS_AWAY_S``: after so long without the manager it leaves, in peace
where it is a pool's. One process and one loop, beside a guardian (:mod:`vgrads.agent.scratch`);
only connections and files have threads. What has ended is told until the manager acknowledges it; a
manager that is away is looked for while tasks run on.

Shipped to hosts: the standard library only, Python 3.8 or newer.
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

from .bags import Bags, Visible
from .events import Events
from .lifetime import Lifetime
from .link import Manager, Refused
from .machine import Place, as_a_task
from .processes import kill_marked
from .scratch import fork_agent, make_scratch, sweep
from .session import Standing, Talk
from .spawner import Spawner
from .store import Store
from .tasks import Key, Task, Tasks
from .transfers import Transfers

BAD_KEY, NO_MANAGER, MISTOLD = 77, 75, 78
"""Exit codes: the key is wrong or revoked; the manager was away for too long; the environment does
not say enough."""


class Agent:
    """The loop."""

    def __init__(self, manager: Manager, place: Place, life: str, scratch: Path) -> None:
        self._place, self._events, self._spawner = place, Events(), Spawner()
        (scratch / "here").mkdir()
        self._tasks = Tasks(
            place.procs,
            str(scratch / "here"),
            f"{place.within}{place.host}.{life}",
            self._spawner,
            lambda: sweep(str(scratch.parent)),
        )
        visible = Visible(dict(os.environ), place.own, place.pass_env, place.for_tasks())
        self._bags = Bags(visible, str(scratch / "here"))
        ring = self._events.ring
        self._store = Store(manager, Path(place.cache or scratch / "cache"), ring)
        self._known: set[Key] = set()  # all that it was given, until the manager knows the end
        who = {"host": place.host, "life": life}
        self._talk = Talk(manager, who, place.turns, ring, self._hello, self._running)
        self._transfers = Transfers(self._store, scratch, self._tasks, self._talk)
        self._lifetime = Lifetime(place, self._talk)

    def run(self, guardian: int) -> int:
        """Until it leaves: its exit code. ``guardian``: readable when the guardian is gone."""
        self._events.add(guardian, "guardian")
        self._events.add(self._spawner.fileno(), "ends")
        try:
            while True:
                now_s = time.monotonic()
                if self._lifetime.is_over(now_s, self._holds()):
                    alone = self._lifetime.is_alone(now_s) and not self._place.within
                    return NO_MANAGER if alone else 0
                self._events.follow(self._talk.link)
                ready = self._events.wait(self._next_s(now_s))
                if "guardian" in ready:
                    return 1  # whoever started it takes it for dead: nothing of it may go on
                self._turn(ready)
        except Refused:
            print("vgrads: the manager refuses this host's key", file=sys.stderr, flush=True)
            return BAD_KEY
        finally:
            self._store.close()
            self._tasks.kill_all(2.0)
            self._events.close()

    def _next_s(self, now_s: float) -> float:
        """How long nothing needs to be done, in seconds."""
        at_s = (
            self._talk.next_s(now_s),
            self._lifetime.next_s(self._holds()),
            now_s + self._tasks.next_look_s(now_s),
        )
        return max(0.0, min(at_s) - now_s)

    def _turn(self, ready: set[str]) -> None:
        """Do what has come up; tasks come first, for processors wait for them."""
        now_s = time.monotonic()
        over = self._tasks.reap(now_s) if "ends" in ready or self._spawner.look_s else []
        self._begin(now_s)
        for task, ended in over:
            end = self._tasks.end_of(task, ended, now_s)
            if task.folder and end.code is not None:  # its outputs go first
                self._transfers.send(end)
            else:
                self._talk.add("ended", end.told())
        haste = self._lifetime.must_leave(now_s, self._events.signalled)
        if haste is not None:
            self._leave(*haste)
        self._transfers.look()
        self._talk.look(now_s)
        if "link" in ready:
            for answer in self._talk.hear():
                self._obey(answer, now_s)
        self._tasks.look(now_s)
        self._begin(now_s)
        if self._lifetime.is_idle(now_s, self._holds()):
            self._leave("idle")
        self._talk.standing = Standing(self._holds(), bool(self._tasks.waiting))
        self._talk.speak()

    def _begin(self, now_s: float) -> None:
        for end in self._tasks.begin(now_s) if self._tasks.waiting else ():
            self._talk.add("ended", end.told())

    def _take(self, given: list[Any], now_s: float) -> None:
        """A task has come."""
        task = Task(given, self._bags.of(given[0]), now_s)
        if self._talk.leaving:
            self._talk.add("returned", list(task.key))
        elif task.has_files:
            self._transfers.fetch(task)
        else:
            self._tasks.waiting.append(task)

    def _holds(self) -> bool:
        return bool(self._tasks.running or self._tasks.waiting or self._transfers.moving)

    def _give_back(self, keys: Iterable[Sequence[int]]) -> None:
        """Those of these that have not begun."""
        wanted: set[Key] = {(key[0], key[1], key[2]) for key in keys}
        for key in [*self._transfers.take_back(wanted), *self._tasks.take_back(wanted)]:
            self._talk.add("returned", list(key))

    def _leave(self, why: str, within_s: float = math.inf) -> None:
        """Take nothing more; within a stated time (seconds) end what runs, too."""
        self._talk.leave(why)
        self._lifetime.end_within(within_s)
        self._give_back([*(task.key for task in self._tasks.waiting), *self._transfers.moving])
        if within_s < math.inf:
            for key in list(self._tasks.running):
                self._tasks.end(key, f"the host leaves: {why}")

    # -- what is said and heard

    def _running(self) -> list[Any]:
        now_s = time.monotonic()
        return [[*key, round(now_s - task.began_s, 3)] for key, task in self._tasks.running.items()]

    def _hello(self) -> dict[str, Any]:
        left_s = self._lifetime.left_s(time.monotonic())
        return {
            **self._place.told_of(),
            "held": [
                *(task.key for task in self._tasks.waiting),
                *self._tasks.running,
                *self._transfers.moving,
            ],
            "cached": self._store.cached(),
            "left_s": None if left_s is None else round(left_s, 3),
        }

    def _obey(self, answer: dict[str, Any], now_s: float) -> None:
        self._known.difference_update(self._talk.absorb(answer, now_s))
        if "idle_s" in answer:
            self._lifetime.may_idle(answer["idle_s"])
        for number, told in (answer.get("bags") or {}).items():
            self._bags.learn(int(number), told)
        for given in answer.get("give") or ():
            key = (given[0], given[1], given[2])
            if key not in self._known:  # else the manager missed what it was told of it
                self._known.add(key)
                self._take(given, now_s)
        self._give_back(answer.get("recall") or ())
        for key in answer.get("cancel") or ():
            self._give_back([key])
            self._tasks.end(tuple(key), "cancel")
        if answer.get("stop"):
            self._leave("stop", 0.0)
        elif answer.get("drain") and not self._talk.leaving:
            self._leave("drained")


def main() -> None:
    """Be the agent; exits with its code."""
    with suppress(OSError):  # all of it has been read
        os.unlink(os.environ.get("VGRADS_AGENT_FILE", ""))  # noqa: PTH108
    try:
        if sys.argv[1:]:
            os.environ.update(as_a_task(json.loads(Path(sys.argv[1]).read_text()), os.environ))
        manager, place = Manager.told(os.environ), Place.told(os.environ)
    except (KeyError, ValueError, OSError) as error:
        print(
            f"vgrads: the environment of this agent does not do: {error}",
            file=sys.stderr,
            flush=True,
        )
        sys.exit(MISTOLD)
    near = os.environ.get("VGRADS_SCRATCH") or None
    for name in [one for one in os.environ if one.startswith("VGRADS_")]:
        del os.environ[name]
    kill_marked({f"{place.host}.".encode()}, whole=False)  # of an agent that was killed here
    sweep(near)
    life = os.urandom(8).hex()
    mark = f"{place.host}.{life}"
    scratch = make_scratch(near, mark)
    guardian = fork_agent(mark, scratch)
    code = 1
    try:
        code = Agent(manager, place, life, scratch).run(guardian)
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)  # threads that still wait for the network are not waited for


if __name__ == "__main__":
    main()

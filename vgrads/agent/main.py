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
import selectors
import shutil
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from .link import Link, Manager, Refused, ring_of
from .machine import Place, as_a_task
from .scratch import fork_agent, make_scratch, sweep
from .session import Standing, Talk
from .spawner import Spawner
from .store import Hopeless, Store, is_digest
from .tasks import End, Key, Task, Tasks, Visible, kill_marked

BAD_KEY, NO_MANAGER, MISTOLD = 77, 75, 78
"""Exit codes: the key is wrong or revoked; the manager was away for too long; the environment does
not say enough."""
_FAREWELL_S = 5.0
_STRANGER_S, _REFUSED_S = 10.0, 2.0


class Agent:
    """The loop."""

    def __init__(self, manager: Manager, place: Place, life: str, scratch: Path) -> None:
        self._place, self._scratch = place, scratch
        self._bell, ringer = os.pipe()
        for one in (self._bell, ringer):
            os.set_blocking(one, False)
        self._ring = ring_of(ringer)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self._spawner = Spawner()
        (scratch / "here").mkdir()
        self._tasks = Tasks(
            place.procs,
            str(scratch / "here"),
            f"{place.within}{place.host}.{life}",
            Visible(dict(os.environ), place.own, place.pass_env, place.for_tasks()),
            self._spawner,
            lambda: sweep(str(scratch.parent)),
        )
        self._store = Store(manager, Path(place.cache or scratch / "cache"), self._ring)
        self._lacking: dict[str, list[Task]] = {}  # digest → tasks that wait for it
        self._moving: dict[Key, Task] = {}  # tasks that wait for inputs or send outputs
        self._known: set[Key] = set()  # all that it was given, until the manager knows the end
        who = {"host": place.host, "life": life}
        self._talk = Talk(manager, who, place.turns, self._ring, self._hello, self._running)
        self._born_s = self._busy_s = time.monotonic()
        self._idle_s = self._leave_by_s = math.inf
        self._signalled = 0

    def run(self, guardian: int) -> int:
        """Until it leaves: its exit code. ``guardian``: readable when the guardian is gone."""
        selector = selectors.DefaultSelector()
        selector.register(guardian, selectors.EVENT_READ, "guardian")
        selector.register(self._bell, selectors.EVENT_READ, "bell")
        selector.register(self._spawner.fileno(), selectors.EVENT_READ, "ends")
        watched: tuple[Link | None, bool] = (None, False)
        try:
            while True:
                now_s = time.monotonic()
                if self._over(now_s):
                    return NO_MANAGER if self._is_alone(now_s) and not self._place.within else 0
                link = self._talk.link
                wanted = (link, link is not None and link.blocked)
                if wanted != watched:
                    self._watch_link(selector, watched, wanted)
                    watched = wanted
                ready = {key.data for key, _ in selector.select(self._next_s(now_s))}
                if "guardian" in ready:
                    return 1  # whoever started it takes it for dead: nothing of it may go on
                self._turn(ready)
        except Refused:
            print("vgrads: the manager refuses this host's key", file=sys.stderr, flush=True)
            return BAD_KEY
        finally:
            self._store.close()
            self._tasks.kill_all(2.0)
            selector.close()

    def _watch_link(self, selector: Any, before: tuple[Any, bool], now: tuple[Any, bool]) -> None:
        if before[0] is not None and before[0] is not now[0]:
            for key in [one for one in selector.get_map().values() if one.data == "link"]:
                with suppress(OSError, ValueError, KeyError):
                    selector.unregister(key.fileobj)
            before[0].close()
        if now[0] is None:
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if now[1] else 0)
        known = any(one.data == "link" for one in selector.get_map().values())
        (selector.modify if known else selector.register)(now[0], events, "link")

    def _turn(self, ready: set[str]) -> None:
        """Do what has come up; tasks come first, for processors wait for them."""
        now_s = time.monotonic()
        over = self._tasks.reap(now_s) if "ends" in ready or self._spawner.look_s else []
        self._begin(now_s)
        for task, ended in over:
            self._after(self._tasks.end_of(task, ended, now_s))
        if "bell" in ready:
            with suppress(BlockingIOError):
                os.read(self._bell, 65536)
        if self._signalled and self._leave_by_s == math.inf:  # also one that leaves in its time
            self._leave(f"signal {self._signalled}", _FAREWELL_S)
        if self._place.left_s is not None and not self._talk.leaving:
            left_s = self._born_s + self._place.left_s - now_s
            if left_s <= min(_FAREWELL_S, self._place.left_s / 10):
                self._leave("the slot ends", max(left_s, 0.1))
        self._look_at_files()
        self._talk.look(now_s)
        if "link" in ready:
            for answer in self._talk.hear():
                self._obey(answer, now_s)
        self._tasks.look(now_s)
        self._begin(now_s)
        if self._holds():
            self._busy_s = now_s
        elif now_s - self._busy_s >= self._idle_s and not self._talk.leaving:
            self._leave("idle")
        self._talk.standing = Standing(self._holds(), bool(self._tasks.waiting))
        self._talk.speak()

    # -- tasks

    def _begin(self, now_s: float) -> None:
        for end in self._tasks.begin(now_s) if self._tasks.waiting else ():
            self._tell(end, 0.0)

    def _take(self, given: list[Any], now_s: float) -> None:
        """A task has come."""
        key: Key = (given[0], given[1], given[2])
        task = Task(given, self._tasks.bag(key[0]), now_s)
        if self._talk.leaving:
            self._talk.add("returned", list(key))
        elif not task.has_files:
            self._tasks.waiting.append(task)
        else:
            wrong = [name for name, digest in task.inputs.items() if not is_digest(digest)]
            if wrong:
                why = f"the input '{wrong[0]}' cannot be read at the dispatcher"
                self._tell(End(task, None, 0.0, 0.0, 0.0, "", why), 0.0)
                return
            self._moving[key] = task
            task.missing = {one for one in task.inputs.values() if not self._store.has(one)}
            for digest in task.missing:
                if digest not in self._lacking:
                    self._store.fetch(digest)
                self._lacking.setdefault(digest, []).append(task)
            if not task.missing:
                self._make_ready(task)

    def _make_ready(self, task: Task) -> None:
        """All its inputs are here."""
        del self._moving[task.key]
        folder = self._scratch / "{}.{}.{}".format(*task.key)
        task.ready_s = (
            time.monotonic()
        )  # waiting for a connection or its turn is no time of the link
        task.fetched_s = max(0.0, task.ready_s - task.coming_s)
        try:
            self._store.place(folder, task.inputs, task.outputs)
        except (OSError, Hopeless) as error:
            shutil.rmtree(folder, ignore_errors=True)
            self._tell(End(task, None, 0.0, 0.0, 0.0, "", str(error)), 0.0)
            return
        task.folder = str(folder)
        self._tasks.waiting.append(task)

    def _look_at_files(self) -> None:
        while self._store.fetched:
            digest, wrong, began_s = self._store.fetched.popleft()
            if not wrong:
                self._talk.add("cached", digest)
            for task in self._lacking.pop(digest, []):
                task.missing.discard(digest)
                if self._moving.get(task.key) is not task:  # given back meanwhile
                    continue
                if wrong:
                    del self._moving[task.key]
                    self._tell(End(task, None, 0.0, 0.0, 0.0, "", wrong), 0.0)
                    continue
                task.coming_s = min(task.coming_s, max(began_s, task.came_s))
                if not task.missing:
                    self._make_ready(task)
        while self._store.sent:
            end, sent_s, wrong_ones = self._store.sent.popleft()
            del self._moving[end.task.key]
            if wrong_ones:
                err = "\n".join(filter(None, [end.err.rstrip(), *wrong_ones]))
                end = end._replace(err=err, code=-1000 if end.code == 0 else end.code)
            self._tell(end, sent_s)

    def _after(self, end: End) -> None:
        """A process has ended: its outputs go first."""
        if end.task.folder and end.code is not None:
            self._moving[end.task.key] = end.task
            self._store.send(end, end.task.key, Path(end.task.folder), end.task.outputs)
        else:
            self._tell(end, 0.0)

    def _tell(self, end: End, sent_s: float) -> None:
        task = end.task
        waited_s = max(0.0, (task.began_s or task.ready_s) - task.came_s - task.fetched_s)
        times = [round(one, 4) for one in (waited_s, task.fetched_s, end.ran_s, sent_s)]
        self._talk.add(
            "ended",
            [
                *task.key,
                end.code,
                times,
                round(end.cpu_s, 4),
                round(end.peak_mib, 1),
                end.out,
                end.err,
            ],
        )

    def _holds(self) -> bool:
        return bool(self._tasks.running or self._tasks.waiting or self._moving)

    def _give_back(self, keys: Any) -> None:
        """Those of these that have not begun."""
        wanted = {tuple(key) for key in keys}
        lacking = [key for key, task in self._moving.items() if key in wanted and not task.began_s]
        for key in lacking:
            del self._moving[key]
        for task in self._tasks.waiting:
            if task.key in wanted and task.folder:
                shutil.rmtree(task.folder, ignore_errors=True)
        for key in [*lacking, *self._tasks.take_back(wanted)]:
            self._talk.add("returned", list(key))

    def _leave(self, why: str, within_s: float = math.inf) -> None:
        """Take nothing more; within a stated time (seconds) end what runs, too."""
        self._talk.leave(why)
        self._leave_by_s = time.monotonic() + within_s
        self._give_back([task.key for task in self._tasks.waiting] + list(self._moving))
        if within_s < math.inf:
            for key in list(self._tasks.running):
                self._tasks.end(key, f"the host leaves: {why}")

    # -- what is said and heard

    def _running(self) -> list[Any]:
        now_s = time.monotonic()
        return [[*key, round(now_s - task.began_s, 3)] for key, task in self._tasks.running.items()]

    def _hello(self) -> dict[str, Any]:
        left_s = self._place.left_s
        held = (
            [task.key for task in self._tasks.waiting]
            + list(self._tasks.running)
            + list(self._moving)
        )
        memory_mib = 0
        with suppress(OSError, ValueError):
            memory_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        return {
            "slot": self._place.slot,
            "node": self._place.node,
            "procs": self._place.procs,
            "memory_mib": memory_mib,
            "name": self._place.name,
            "machine": self._place.machine,
            "attributes": self._place.attributes,
            "held": held,
            "cached": self._store.cached(),
            "left_s": None
            if left_s is None
            else round(self._born_s + left_s - time.monotonic(), 3),
        }

    def _obey(self, answer: dict[str, Any], now_s: float) -> None:
        self._known.difference_update(self._talk.absorb(answer, now_s))
        if "idle_s" in answer:
            self._idle_s = math.inf if answer["idle_s"] is None else answer["idle_s"]
        for number, told in (answer.get("bags") or {}).items():
            self._tasks.learn_bag(int(number), told)
        for given in answer.get("give") or ():
            if (
                tuple(given[:3]) not in self._known
            ):  # else the manager missed what it was told of it
                self._known.add((given[0], given[1], given[2]))
                self._take(given, now_s)
        self._give_back(answer.get("recall") or ())
        for key in answer.get("cancel") or ():
            self._give_back([key])
            self._tasks.end(tuple(key), "cancel")
        if answer.get("stop"):
            self._leave("stop", 0.0)
        elif answer.get("drain") and not self._talk.leaving:
            self._leave("drained")

    # -- the end

    def _over(self, now_s: float) -> bool:
        """True where there is nothing left to do here."""
        if now_s >= self._leave_by_s:
            return True
        if self._holds():
            return False
        if self._talk.leaving and self._talk.has_taken_leave:
            return True
        return self._is_alone(now_s)

    @property
    def _patience_s(self) -> float:
        """How long a manager may be away. A pool's host does not wait long for one that it has
        never met: that one may have ended while the host was on its way."""
        if not self._place.within or not self._talk.is_new:
            return self._place.away_s
        return min(self._place.away_s, _REFUSED_S if self._talk.is_refused else _STRANGER_S)

    def _is_alone(self, now_s: float) -> bool:
        return self._talk.away_s(now_s) >= self._patience_s

    def _next_s(self, now_s: float) -> float:
        """How long nothing needs to be done, in seconds."""
        at_s = [self._talk.next_s(now_s), self._leave_by_s, now_s + self._tasks.next_look_s(now_s)]
        if self._talk.link is None and not self._holds():
            at_s.append(self._talk.heard_s + self._patience_s)
        if not self._holds() and not self._talk.leaving:
            at_s.append(self._busy_s + self._idle_s)
        if self._place.left_s is not None and not self._talk.leaving:
            at_s.append(
                self._born_s + self._place.left_s - min(_FAREWELL_S, self._place.left_s / 10)
            )
        return max(0.0, min(at_s) - now_s)

    def _on_signal(self, number: int, _: object) -> None:
        self._signalled = number


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

"""Many hosts in one process that speak as the agent does: its own talk, connections and pauses.

``python benchmarks/dispatch/talking_hosts.py FOLDER HOSTS SECONDS`` with a dispatcher's folder;
tasks run nothing and take this long (0: no time at all). A line of JSON each second: hosts that are
connected, ends that were acknowledged, those that were acknowledged twice, hosts that would have
given up.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import time
from pathlib import Path
from typing import Any

from vgrads.agent.link import Manager, ring_of
from vgrads.agent.machine import GIVE_UP_S
from vgrads.agent.session import Standing, Talk
from vgrads.dispatch.server.keys import key_of
from vgrads.dispatch.storage.kept import keys_of

_LOOK_S = 0.05


class Host:
    """One host of one processor."""

    def __init__(self, number: int, manager: Manager, seconds: float, ring: Any) -> None:
        self.number, self.seconds = number, seconds
        self.held: dict[tuple[int, int, int], float] = {}  # task → when it ends
        self.known: set[tuple[int, int, int]] = set()  # given, and its end not acknowledged
        who = {"host": f"h{number}", "life": "1"}
        self.talk = Talk(manager, who, False, ring, self.hello, list)
        self.watched: Any = None

    def hello(self) -> dict[str, Any]:
        """Who it is."""
        return {
            "slot": f"s{self.number}",
            "procs": 1,
            "name": f"h{self.number}",
            "held": list(self.held),
        }

    def turn(self, now_s: float, hear: bool) -> list[Any]:
        """Do what is due; the tasks whose ends were acknowledged."""
        self.talk.look(now_s)
        known: list[Any] = []
        for answer in self.talk.hear() if hear else ():
            known += self.talk.absorb(answer, now_s)
            self.known.difference_update(known)
            for bag, task, attempt, *_ in answer.get("give", ()):
                if (bag, task, attempt) not in self.known:
                    self.known.add((bag, task, attempt))
                    self.held[bag, task, attempt] = now_s + self.seconds * (len(self.held) + 1)
            for key in map(tuple, answer.get("recall") or ()):
                if self.held.pop(key, None) is not None:
                    self.talk.add("returned", list(key))
        for key in [key for key, end_s in self.held.items() if end_s <= now_s]:
            del self.held[key]
            self.talk.add("ended", [*key, 0, [0, 0, self.seconds, 0], 0, 0, "", ""])
        self.talk.standing = Standing(bool(self.held), False)
        self.talk.speak()
        return known


class Hosts:
    """All of them, in one loop."""

    def __init__(self, folder: Path, count: int, seconds: float) -> None:
        keys = keys_of(folder)
        contact = f"tls://127.0.0.1:{(folder / 'port').read_text()}"
        self.bell, ringer = os.pipe()
        os.set_blocking(self.bell, False)
        os.set_blocking(ringer, False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.bell, selectors.EVENT_READ, None)
        self.hosts = []
        for n in range(count):
            key = key_of(keys.secret, f"s{n}")
            manager = Manager([contact], key, keys.certificate, "", False)
            self.hosts.append(Host(n, manager, seconds, ring_of(ringer)))
        self.acknowledged: dict[Any, int] = {}
        self.twice = self.ended = 0

    def work(self) -> None:
        """Until it is killed."""
        told_s = looked_s = 0.0
        while True:
            ready = {key.data for key, _ in self.selector.select(_LOOK_S)}
            if None in ready:
                os.read(self.bell, 65536)
            now_s = time.monotonic()
            everyone = now_s - looked_s >= _LOOK_S
            looked_s = now_s if everyone else looked_s
            for host in self.hosts if everyone or None in ready else ready:
                self.turn(host, now_s, host in ready)
            if now_s - told_s >= 1.0:
                told_s = now_s
                self.tell()

    def turn(self, host: Host, now_s: float, hear: bool) -> None:
        """One host."""
        for key in host.turn(now_s, hear):
            self.acknowledged[key] = self.acknowledged.get(key, 0) + 1
            self.twice += self.acknowledged[key] > 1
        self.ended += host.talk.away_s(now_s) >= GIVE_UP_S and not host.held
        link = host.talk.link
        if link is not host.watched:
            if host.watched is not None:
                self.selector.unregister(host.watched)
                host.watched.close()
            if link is not None:
                self.selector.register(link, selectors.EVENT_READ, host)
            host.watched = link

    def tell(self) -> None:
        """How it stands."""
        told = {
            "connected": sum(host.talk.link is not None for host in self.hosts),
            "ended": self.ended,
            "acknowledged": len(self.acknowledged),
            "twice": self.twice,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    Hosts(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).work()

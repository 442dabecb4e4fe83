"""Many hosts in one process that speak as the agent does: its own talk, connections and pauses.

``python benchmarks/dispatch/protocol_agents.py FOLDER HOSTS SECONDS`` with a dispatcher's folder;
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

from vgrads.agent.link import ManagerAddress, ring_of
from vgrads.agent.machine import GIVE_UP_S
from vgrads.agent.session import AgentLoad, Session
from vgrads.exchange.keys import derive_key, open_keys

_LOOK_S = 0.05


class Host:
    """One host of one processor."""

    def __init__(self, number: int, manager: ManagerAddress, seconds: float, ring: Any) -> None:
        self.number, self.seconds = number, seconds
        self.assigned: dict[tuple[int, int, int], float] = {}  # task → when it ends
        self.unacknowledged: set[tuple[int, int, int]] = (
            set()
        )  # given, and its end not acknowledged
        who = {"host": f"h{number}", "life": "1"}
        self.session = Session(manager, who, False, ring, self.hello, list)
        self.watched: Any = None

    def hello(self) -> dict[str, Any]:
        """Who it is."""
        return {
            "slot": f"s{self.number}",
            "procs": 1,
            "name": f"h{self.number}",
            "held": list(self.assigned),
        }

    def turn(self, now_s: float, receive: bool) -> list[Any]:
        """Do what is due; the tasks whose ends were acknowledged."""
        self.session.look(now_s)
        existing: list[Any] = []
        for answer in self.session.receive() if receive else ():
            existing += self.session.absorb(answer, now_s)
            self.unacknowledged.difference_update(existing)
            for bag, task, attempt, *_ in answer.get("give", ()):
                if (bag, task, attempt) not in self.unacknowledged:
                    self.unacknowledged.add((bag, task, attempt))
                    self.assigned[bag, task, attempt] = now_s + self.seconds * (
                        len(self.assigned) + 1
                    )
            for key in map(tuple, answer.get("recall") or ()):
                if self.assigned.pop(key, None) is not None:
                    self.session.add("returned", list(key))
        for key in [key for key, end_s in self.assigned.items() if end_s <= now_s]:
            del self.assigned[key]
            self.session.add("ended", [*key, 0, [0, 0, self.seconds, 0], 0, 0, "", ""])
        self.session.load = AgentLoad(bool(self.assigned), False)
        self.session.send()
        return existing


class Hosts:
    """All of them, in one loop."""

    def __init__(self, folder: Path, count: int, seconds: float) -> None:
        keys = open_keys(folder)
        contact = f"tls://127.0.0.1:{(folder / 'port').read_text()}"
        self.wakeup_pipe, wakeup_writer = os.pipe()
        os.set_blocking(self.wakeup_pipe, False)
        os.set_blocking(wakeup_writer, False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.wakeup_pipe, selectors.EVENT_READ, None)
        self.agents = []
        for n in range(count):
            key = derive_key(keys.secret, f"s{n}")
            manager = ManagerAddress([contact], key, keys.certificate, "", False)
            self.agents.append(Host(n, manager, seconds, ring_of(wakeup_writer)))
        self.acknowledged: dict[Any, int] = {}
        self.twice = self.ended = 0

    def work(self) -> None:
        """Until it is killed."""
        reported_s = looked_s = 0.0
        while True:
            ready = {key.data for key, _ in self.selector.select(_LOOK_S)}
            if None in ready:
                os.read(self.wakeup_pipe, 65536)
            now_s = time.monotonic()
            everyone = now_s - looked_s >= _LOOK_S
            looked_s = now_s if everyone else looked_s
            for agent in self.agents if everyone or None in ready else ready:
                self.turn(agent, now_s, agent in ready)
            if now_s - reported_s >= 1.0:
                reported_s = now_s
                self.report()

    def turn(self, agent: Host, now_s: float, receive: bool) -> None:
        """One host."""
        for key in agent.turn(now_s, receive):
            self.acknowledged[key] = self.acknowledged.get(key, 0) + 1
            self.twice += self.acknowledged[key] > 1
        self.ended += agent.session.away_s(now_s) >= GIVE_UP_S and not agent.assigned
        link = agent.session.link
        if link is not agent.watched:
            if agent.watched is not None:
                self.selector.unregister(agent.watched)
                agent.watched.close()
            if link is not None:
                self.selector.register(link, selectors.EVENT_READ, agent)
            agent.watched = link

    def report(self) -> None:
        """How it stands."""
        payload = {
            "connected": sum(agent.session.link is not None for agent in self.agents),
            "ended": self.ended,
            "acknowledged": len(self.acknowledged),
            "twice": self.twice,
        }
        print(json.dumps(payload), flush=True)


if __name__ == "__main__":
    Hosts(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).work()

"""An agent's loop that applies many answers of a broken manager; for a process of its own.

Prints how many answers were accepted; every exception but ValueError ends it, with a traceback.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from tests.security.mutation import mutated
from tests.security.recorded_messages import ANSWER
from vgrads.agent.answers import parse_answer
from vgrads.agent.link import ManagerAddress
from vgrads.agent.machine import NodeIdentity
from vgrads.agent.main import Agent

NOWHERE = ManagerAddress(["tcp://127.0.0.1:1"], "k", "", "", False)
MOST_APPLIED = 300  # by one agent, which begins processes


def agent_in(folder: Path) -> Agent:
    folder.mkdir()
    identity = NodeIdentity.from_environment({"VGRADS_SLOT": "h0", "VGRADS_PROCS": "2"})
    return Agent(NOWHERE, identity, folder.name, folder)


def main(folder: Path, count: int) -> None:
    draw, accepted, applied = random.Random("driver"), 0, MOST_APPLIED
    agent = None
    for number in range(count):
        text = mutated(draw, ANSWER)
        try:
            answer = parse_answer(text.encode("utf-8", "surrogatepass"))
        except ValueError:
            continue
        accepted += 1
        if agent is None or applied >= MOST_APPLIED or agent._session.leaving:
            if agent is not None:
                agent._store.close()
                agent._tasks.kill_all(5.0)
            agent, applied = agent_in(folder / str(number)), 0
            agent._session._try_s = float("inf")  # there is no manager
        applied += 1
        agent._apply(answer, time.monotonic())
        for _ in range(2):
            agent._turn({"ends"})
            agent._next_s(time.monotonic())
        json.dumps([agent._hello(), agent._beat(), agent._session._news.report(number)]).encode()
    agent._tasks.kill_all(5.0)
    print(accepted, "accepted")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    import os

    os._exit(0)  # threads wait for a network that is not there

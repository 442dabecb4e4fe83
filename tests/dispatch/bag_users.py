"""What users wish of a dispatcher, drawn from one seed: bags that come, grow, close and are
cancelled, and how their tasks run."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from vgrads.bags.bag import BagSpec, Listed
from vgrads.exchange.values import COULD_NOT
from vgrads.policies.policy import read_policy
from vgrads.workflows.generated.wavefront import Wavefront

_POLICIES = [
    read_policy(choices, "policy")
    for choices in (
        {"ReplicationRequirements": "NumberOfReplicas < 3"},
        {"ReplicationRequirements": "NumberOfReplicas < 2", "Concurrency": "1", "Deadline": "6"},
        {
            # below 0.9 a bag whose tasks fail often would wait for ever for a better host
            "JobRequirements": "Host.ErrorRate < 0.99 || !Tail",
            "Rank": "Host.JobsToday",
            "Deadline": "Concurrency * 6",
        },
        {
            "JobRequirements": "!member(Host.Name, Job.Hosts)",
            "ReplicationRequirements": "true",
            "Rank": "-JobsLeft",
        },
    )
]


class Users:
    """All users of a world."""

    def __init__(self, seed, draw, timed, lazy):
        """``timed``: what tasks take is known; ``lazy``: the part of bags whose tasks become ready
        as others end."""
        self._seed, self._draw, self._timed, self._lazy = seed, draw, timed, lazy
        self.bags, self.expected, self.control_requests = {}, {}, []
        self._reported = {}

    def act(self, core, now):
        """What they wish by now is done, or done again where it was lost."""
        while self.control_requests and self.control_requests[0][0] <= now:
            self._wish(*self.control_requests.pop(0)[1:])
        for number, bag in self.bags.items():
            if number not in core.state.bags:
                core.add(number, bag, now, open_=self._reported[number]["open"] is not None)
            state = core.state.bags[number]
            if self._reported[number]["cancel"] and not state.cancelled:
                core.cancel(number, now, "no more wanted")
            if self._reported[number]["retries"] > state.retried:
                core.retry(number, None, now, state.retried)
            core.add_tasks(number, self.expected[number] - len(state.tasks))
            if self._reported[number]["open"] is False:
                core.close(number, now)

    def _wish(self, what, number, value):
        if what == "bag":
            self.bags[number], self.expected[number] = value[0], len(value[0].commands)
            self._reported[number] = {"open": value[1], "cancel": False, "retries": 0}
            self._reported[number]["dropped"] = False
        elif what == "grow" and not self._reported[number]["dropped"]:
            self.expected[number] += value
            self.bags[number].commands.lines.extend(["true"] * value)
        elif what == "close":
            self._reported[number]["open"] = False
        elif what == "cancel":
            self._reported[number]["cancel"] = self._reported[number]["dropped"] = True
        elif what == "retry":
            self._reported[number]["cancel"] = False
            self._reported[number]["retries"] += 1

    def make_wishes(self):
        """Draw what they will wish, and when."""
        draw = self._draw
        for number in range(draw.randint(1, 3)):
            came_s = draw.uniform(0.0, 6.0)
            opened = draw.random() < 0.3
            estimate_s = draw.choice((0.3, 1.0, 3.0)) if self._timed else None
            bag = BagSpec(
                name=f"b{number}",
                commands=Listed(["true"] * draw.choice((1, 5, 20, 40))),
                owner=draw.choice("ab"),
                weight=draw.choice((1.0, 3.0)),
                procs=draw.choice((1, 1, 1, 2, 3)),
                retries=draw.choice((0, 2)),
                estimate_s=estimate_s,
                sites=() if draw.random() < 0.8 else ("s0",),
            )
            self.control_requests.append((came_s, "bag", number, (bag, True if opened else None)))
            if opened:
                for _ in range(draw.randint(0, 3)):
                    at_s = came_s + draw.uniform(0.0, 8.0)
                    self.control_requests.append((at_s, "grow", number, draw.randint(0, 15)))
                self.control_requests.append((came_s + 8.0, "close", number, None))
            if draw.random() < 0.15:
                self.control_requests.append(
                    (came_s + draw.uniform(0.0, 9.0), "cancel", number, None)
                )
        self._give_policies(random.Random(self._seed + 0.5))
        self._give_orders(random.Random(self._seed + 0.25))
        self._retry(random.Random(self._seed + 0.75))
        self.control_requests.sort(key=lambda wish: (wish[0], wish[2]))
        self._failing = draw.choice((0.0, 0.1, 0.3))
        self._hopeless, self._killing = draw.choice((0.0, 0.05)), draw.choice((0.0, 0.0, 0.03))

    def _give_policies(self, draw):
        """Some bags have a policy, or copies of what is late, or a site for what has failed."""
        for n, (at_s, what, number, more) in enumerate(self.control_requests):
            if what == "bag":
                learns = draw.random() < 0.15
                policy = None if learns or draw.random() < 0.6 else draw.choice(_POLICIES)
                bag = replace(
                    more[0],
                    learns=learns,
                    policy=policy,
                    tail_below=draw.choice((None, 3, 100)),
                    tail_latched=draw.random() < 0.5,
                    failover=draw.choice(((), (), more[0].sites or ("s1",))),
                )
                self.control_requests[n] = (at_s, what, number, (bag, more[1]))

    def _give_orders(self, draw):
        """Some bags become ready as they go."""
        for n, (at_s, what, number, more) in enumerate(self.control_requests):
            if what == "bag" and more[1] is None and draw.random() < self._lazy:
                order = Wavefront(draw.randint(1, 6), draw.randint(1, 6))
                bag = replace(more[0], order=order, commands=Listed(["true"] * order.size))
                self.control_requests[n] = (at_s, what, number, (bag, None))

    def _retry(self, draw):
        """Some bags are retried, also while they run, and more than once."""
        for at_s, what, number, _ in list(self.control_requests):
            if what == "bag":
                for _ in range(draw.choice((0, 0, 1, 2))):
                    wish = (at_s + draw.uniform(1.0, 25.0), "retry", number, None)
                    self.control_requests.append(wish)

    def was_cancelled(self, number):
        """Whether a bag was ever cancelled: some of its tasks may never have been added."""
        return self._reported[number]["dropped"]

    def outcome(self, bag, task, attempt):
        """(run time in seconds, exit code, whether its host dies of it)."""
        of_task = random.Random((self._seed * 64 + bag) * 4096 + task)
        hopeless, kills = of_task.random() < self._hopeless, of_task.random() < self._killing
        draw = random.Random(((self._seed * 64 + bag) * 4096 + task) * 65536 + attempt)
        run_s = math.exp(draw.uniform(math.log(0.01), math.log(4.0)))
        code = 1 if hopeless or draw.random() < self._failing else 0
        if draw.random() < self._failing / 3:
            code = COULD_NOT
        return self.bags[bag].estimate_s or run_s, code, kills

"""The managers of :mod:`vgrads.workloads.simulate` and ECT written plainly, with lists that are
searched anew each time."""

from __future__ import annotations

import math


class Manager:
    """Plays a workload; slow, and short enough to be read."""

    def __init__(self, bags, system, selection, scheduling):
        self.bags, self.selection, self.scheduling = bags, selection, scheduling
        self.free, self.speed = system.procs.tolist(), system.speed.tolist()
        self.measured = [0] * len(self.free)
        self.rank = scheduling.rank(bags.runtime_s).tolist()
        self.runtime = bags.runtime_s.tolist()
        self.owner = bags.user[bags.bag_of].tolist()
        count = len(self.runtime)
        self.began, self.ended = [math.nan] * count, [math.nan] * count
        self.where, self.winning = [-1] * count, [math.nan] * count
        self.replicas = [[] for _ in range(count)]  # (start, cluster, fresh)
        self.running = []  # (end, task, number)
        self.waiting = []  # (bag, tasks) in order of arrival
        self.eligible, self.ring = [], []
        self.used = [0.0] * (int(bags.user.max()) + 1)
        self.turn, self.last, self.extra = -1, -1, 0

    def simulate(self):
        coming = [(float(t), b) for b, t in enumerate(self.bags.submit_s)]
        while coming or self.running:
            now = min([e for e, *_ in coming[:1]] + [e for e, *_ in self.running])
            while coming and coming[0][0] <= now:
                self.arrive(coming.pop(0)[1])
            while self.running and min(self.running)[0] <= now:
                self.end(min(self.running), now)
            while sum(self.free):
                task = self.next_task(now)
                if task is None:
                    break
                self.start(task, now)
        return self

    def arrive(self, bag):
        tasks = list(range(int(self.bags.first[bag]), int(self.bags.first[bag + 1])))
        if self.selection == "S-T":
            self.eligible += tasks
        else:
            self.waiting.append((bag, tasks))

    def end(self, event, now):
        self.running.remove(event)
        _, task, number = event
        if not math.isnan(self.ended[task]):
            return
        self.ended[task] = now
        self.winning[task], self.where[task], _ = self.replicas[task][number]
        for k, (start, cluster, fresh) in enumerate(self.replicas[task]):
            self.free[cluster] += 1
            self.measured[cluster] += k == number or not fresh
            self.used[self.owner[task]] += now - start

    def consumed(self, user, now):
        runs = sum(
            now - start
            for task, replicas in enumerate(self.replicas)
            if self.owner[task] == user and math.isnan(self.ended[task])
            for start, *_ in replicas
        )
        return self.used[user] + runs

    def refill(self, now):
        users = sorted({int(self.bags.user[bag]) for bag, _ in self.waiting})
        if not users:
            return
        if self.selection == "S-BoT":
            self.eligible += self.waiting.pop(0)[1]
            return
        if self.selection == "S-U-Prio":
            user = users[0]
        elif self.selection in ("S-U-T", "S-U-BoT"):
            user = min(users, key=lambda u: (round(self.consumed(u, now), 6), u))
        else:
            user = next((u for u in users if u > self.turn), users[0])
            self.turn = user
        mine = [entry for entry in self.waiting if self.bags.user[entry[0]] == user]
        chosen = mine if self.selection in ("S-U-Prio", "S-U-T", "S-U-GRR") else mine[:1]
        for entry in chosen:
            if self.selection == "S-U-RR":
                self.eligible.append(entry[1].pop(0))
            else:
                self.eligible += entry[1]
                entry[1].clear()
        self.waiting = [entry for entry in self.waiting if entry[1]]

    def next_task(self, now):
        if not self.eligible:
            self.refill(now)
        if self.eligible:
            task = min(self.eligible, key=lambda t: (self.rank[t], t))
            self.eligible.remove(task)
            self.began[task] = now
            return task
        while self.ring:
            task = self.ring.pop(0)
            if (
                math.isnan(self.ended[task])
                and len(self.replicas[task]) <= self.scheduling.replicas
            ):
                self.extra += 1
                return task
        return None

    def cluster(self):
        able = [c for c, free in enumerate(self.free) if free]
        place = self.scheduling.place
        if place == 0:
            return max(able, key=lambda c: (self.speed[c], -c))
        if place == 2:
            existing = [c for c, count in enumerate(self.measured) if count > 0]
            return max(existing, key=lambda c: (self.speed[c], -c)) if existing else able[0]
        self.last = next((c for c in able if c > self.last), able[0])
        return self.last

    def start(self, task, now):
        c = self.cluster()
        fresh = self.measured[c] == 0
        self.measured[c] -= not fresh
        self.free[c] -= 1
        number = len(self.replicas[task])
        self.replicas[task].append((now, c, fresh))
        self.running.append((now + self.runtime[task] / self.speed[c], task, number))
        if number < self.scheduling.replicas:
            self.ring.append(task)


def earliest_completion(bags, system):
    """ECT that knows run times: (began, where) of every task, by a chart of all processors."""
    idle = [[0.0] * int(procs) for procs in system.procs]
    began, where = [], []
    for bag, now in enumerate(bags.submit_s.tolist()):
        for task in range(int(bags.first[bag]), int(bags.first[bag + 1])):
            lasts = [float(bags.runtime_s[task]) / speed for speed in system.speed.tolist()]
            starts = [max(now, min(row)) for row in idle]
            c = min(range(len(idle)), key=lambda k: (starts[k] + lasts[k], k))
            idle[c][idle[c].index(min(idle[c]))] = starts[c] + lasts[c]
            began.append(starts[c])
            where.append(c)
    return began, where

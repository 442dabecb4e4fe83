"""The files of interpreters at an agent: calls wait for them where they are missing."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace

from vgrads.agent.attempts import AgentTask
from vgrads.agent.settings import BagSettings, Environment
from vgrads.agent.transfers import Transfers

PROGRAM, SETUP = "a" * 64, "b" * 64


class Cache:
    """The cache of an agent, whose files the test puts and removes."""

    def __init__(self):
        self.files, self.requested = set(), []
        self.fetched, self.sent = deque(), deque()

    def has(self, digest):
        return digest in self.files

    def fetch(self, digest):
        self.requested.append(digest)

    def arrive(self, digest):
        self.files.add(digest)
        self.fetched.append((digest, "", 0.0))


def test_the_files_of_interpreters_are_looked_at_once_a_second():
    cache, queue = Cache(), SimpleNamespace(waiting=[])
    session = SimpleNamespace(add=lambda *_: None)
    transfers = Transfers(cache, Path("unused"), queue, session)
    environment = Environment("python", PROGRAM, SETUP, 0, {}, "key")
    bag = BagSettings(1, 0.0, 0.0, 4096, {}, interpreter=environment)

    def call(number, at_s):
        transfers.fetch(AgentTask([0, number, 1, "f()\tcall\t"], bag, at_s))
        return [task.key[1] for task in queue.waiting]

    assert call(0, 100.0) == []
    assert sorted(cache.requested) == [PROGRAM, SETUP]
    cache.arrive(PROGRAM)
    transfers.look()
    assert queue.waiting == []
    cache.arrive(SETUP)
    transfers.look()
    assert call(1, 100.5) == [0, 1]
    cache.files.remove(SETUP)  # by someone who cleans up the node
    assert call(2, 101.4) == [0, 1, 2]
    assert call(3, 101.6) == [0, 1, 2]
    assert cache.requested[2:] == [SETUP]
    cache.arrive(SETUP)
    transfers.look()
    assert call(4, 101.7) == [0, 1, 2, 3, 4]

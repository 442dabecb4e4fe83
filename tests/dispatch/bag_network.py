"""Connections between hosts and a dispatcher, in virtual time: they are slow, break, and deliver
twice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Line:
    """A connection: what goes in comes out in that order, until it breaks."""

    agent: object
    dispatcher: object
    broken: bool = False
    late: bool = False
    up_s: float = 0.0
    down_s: float = 0.0
    long_poll_pending: int | None = None
    long_poll_until_s: float = 0.0
    host: int | None = None


class Silence:
    """A connection over which nothing goes."""

    def __init__(self):
        self.dispatcher, self.broken, self.late = "nobody", True, False
        self.up_s = self.down_s = 0.0


class Network:
    """What brings messages and answers."""

    def __init__(self, world, breaks, doubles):
        """``breaks``, ``doubles``: how likely a message breaks its connection, or comes twice."""
        self._world, self._breaks, self._doubles = world, breaks, doubles

    def up(self, line, message):
        """A message to the dispatcher."""
        world, draw = self._world, self._world.draw
        line.up_s = max(line.up_s, world.now + draw.uniform(0.001, 0.05))
        wait_s = line.up_s - world.now
        world.after(wait_s, lambda: self._arrive(line, message, True))
        if draw.random() < self._doubles:
            world.after(wait_s + draw.uniform(0.0, 0.5), lambda: self._arrive(line, message, True))
        if not world.calm and not line.broken and draw.random() < self._breaks:
            world.after(draw.uniform(0.0, 0.1), lambda: self._break(line))

    def _break(self, line):
        if not line.broken and line.agent.line is line:
            line.agent.hang_up(late=self._world.draw.random() < 0.6)

    def _arrive(self, line, message, first):
        if line.broken and not line.late:
            return
        if line.broken and first:
            late_s = self._world.draw.uniform(0.0, 3.0)
            self._world.after(late_s, lambda: self._arrive(line, message, False))
            return
        dispatcher = self._world.dispatcher
        if dispatcher is line.dispatcher and dispatcher is not None:
            dispatcher.on_request(line, message)

    def down(self, line, seq, answer):
        """An answer to a message."""
        world = self._world
        line.down_s = max(line.down_s, world.now + world.draw.uniform(0.001, 0.05))
        world.after(line.down_s - world.now, lambda: line.agent.receive(line, seq, answer))

    def cut(self, line):
        """The dispatcher hears that a connection is gone."""
        dispatcher = self._world.dispatcher
        if dispatcher is line.dispatcher and dispatcher is not None:
            dispatcher.hung_up(line)

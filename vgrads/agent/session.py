"""The protocol between an agent and its manager: news is retransmitted until acknowledged, over any
connection.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import deque
from typing import Any, Callable, Mapping, NamedTuple

from .answers import parse_answer
from .link import Connecting, KeyRefused, ManagerAddress, ManagerConnection
from .outbox import Outbox

IDLE = "idle"
"""Why an agent leaves that has had no task for too long."""
_COALESCE_S = 0.002  # ends within this time share a message if tasks wait
_SUPPLY, _COALESCE_LONG_S = 4, 0.02  # a longer time while this many tasks wait per processor
_ASK_AGAIN_S = 0.005  # ends within this time of an answer replace a request
_WAIT_S, _TURN_WAIT_S, _IDLE_TURN_S = 30.0, 1.0, 10.0
_MOST_UNDER_WAY = 8  # requests; a long poll, and results since then
_STALE_S, _MOST_STALE_S = 10.0, 30.0  # an answer that is later than this is not expected
_SLACK = 3.0  # times the lateness of the latest answer
_FIRST_PAUSE_S, _SHORT_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0, 58.0
_LONG_AWAY_S = 120.0
_GROWTH, _JITTER = 1.5, 0.04
_TURNS_S = 600.0  # duration of turns after a path was seen to cut streams
_CUTS_S = 60.0


class AgentLoad(NamedTuple):
    """The agent's load, as far as it determines when to send."""

    busy: bool
    """The agent holds tasks."""
    supply: float
    """Tasks that wait here, per processor."""


class Pauses:
    """Pauses between connection attempts: about half of the time that the manager has been away, so
    that agents reconnect soon after a short absence; a quarter of a minute at most during the first
    two minutes, so that a faulty network delays agents no longer; then nearly one minute each. By
    then agents are spread over the minute, stay so, and reconnect evenly. (If each pause were drawn
    from the whole minute, twice as many would reconnect at first.)"""

    def __init__(self) -> None:
        self._most_s, self._spread, self._sum_s = _FIRST_PAUSE_S, False, 0.0
        self._random = random.Random()

    def next_s(self, least_s: float = 0.0) -> float:
        """Return the next pause, in seconds. ``least_s``: lower limit of the upper end of the range
        it is drawn from."""
        pause_s = self._draw_s(max(self._most_s, least_s))
        self._sum_s += pause_s
        return pause_s

    def _draw_s(self, most_s: float) -> float:
        limit_s = _SHORT_PAUSE_S if self._sum_s < _LONG_AWAY_S else _LONGEST_PAUSE_S
        self._most_s = min(_GROWTH * most_s, limit_s)
        if most_s <= _FIRST_PAUSE_S or (most_s >= _LONGEST_PAUSE_S and not self._spread):
            self._spread = most_s >= _LONGEST_PAUSE_S
            return self._random.uniform(0.0, most_s)
        return self._random.uniform((1.0 - _JITTER if self._spread else 0.5) * most_s, most_s)

    def over(self) -> None:
        """Reset: the manager has answered."""
        self._most_s, self._spread, self._sum_s = _FIRST_PAUSE_S, False, 0.0


class Turns:
    """Whether requests take turns with answers, as over a path that cuts streams."""

    def __init__(self, always: bool) -> None:
        self._until_s = math.inf if always else 0.0
        self._cuts: deque[float] = deque(maxlen=2)

    def are_on(self, now_s: float) -> bool:
        """Return True where a request waits for the answer to the one before it."""
        return now_s < self._until_s

    def cut(self, now_s: float) -> None:
        """Record that a connection that had worked was cut."""
        self._cuts.append(now_s)
        if len(self._cuts) == 2 and self._cuts[1] - self._cuts[0] < _CUTS_S:
            self._until_s = max(self._until_s, now_s + _TURNS_S)

    def hold_s(self, now_s: float, busy: bool) -> float:
        """Return how long the manager may hold back an answer."""
        if not self.are_on(now_s):
            return _WAIT_S
        return _TURN_WAIT_S if busy else _IDLE_TURN_S


class Session:
    """The messages of one incarnation of an agent, numbered consecutively across its
    connections."""

    def __init__(
        self,
        manager: ManagerAddress,
        who: Mapping[str, str],
        turns: bool,
        ring: Callable[[], None],
        hello: Callable[[], dict[str, Any]],
        beat: Callable[[], dict[str, Any]],
    ) -> None:
        """``who``: the start of every message; ``hello``, ``beat``: contents of the first message
        and of heartbeats."""
        self._manager, self._connecting = manager, Connecting(manager, ring)
        self._who, self._hello, self._beat = who, hello, beat
        self.link: ManagerConnection | None = None
        self.load = AgentLoad(False, 0.0)
        self.leaving = ""
        self.is_refused = False  # no process listens at the manager's address
        self._news = Outbox()
        self._seq = self._left_in = 0
        now_s = time.monotonic()
        self.last_contact_s = self._heartbeat_at_s = self._born_s = now_s
        self._try_s = self._again_s = self._news_s = 0.0
        self._pauses, self._stale_s = Pauses(), _STALE_S
        self._turns = Turns(turns)
        self._heartbeat_s = 10.0
        self._greeted = False

    def add(self, kind: str, item: object) -> None:
        """Add news of kind ended, returned or cached."""
        self._news.add(kind, item)
        self._news_s = self._news_s or time.monotonic()

    def leave(self, why: str) -> None:
        """Announce that the agent leaves, after all tasks that it returns have been reported."""
        self.leaving, self._left_in = why, 0
        self._news_s = self._news_s or time.monotonic()

    @property
    def has_left(self) -> bool:
        """Return True when the manager has acknowledged the agent's leaving and all its news."""
        return self._left_in < 0 and self._news.all_acknowledged

    @property
    def has_nothing_to_report(self) -> bool:
        """Return True where the manager is away and has acknowledged all news."""
        return self.link is None and self._news.all_acknowledged

    @property
    def is_new(self) -> bool:
        """Return True while the manager has never answered."""
        return self.last_contact_s == self._born_s

    def away_s(self, now_s: float) -> float:
        """Return how long the manager has been away, in seconds."""
        return now_s - self.last_contact_s if self.link is None else 0.0

    def send(self) -> None:
        """Send what is due."""
        while self.link is not None and self._send_at_s(now_s := time.monotonic()) <= now_s:
            try:
                # the first answer of a connection shows at once whether it works
                wait_s = self._turns.hold_s(now_s, self.load.busy) if self._greeted else 0.0
                self.link.ask(self._message(now_s, wait_s), now_s, wait_s)
            except OSError:
                self._lose()

    def _send_at_s(self, now_s: float) -> float:
        """Return when the next message is due."""
        if self.link is None:
            return math.inf
        under_way = len(self.link.pending)
        if under_way >= (1 if self._turns.are_on(now_s) else _MOST_UNDER_WAY) or self.link.blocked:
            return math.inf
        if not self._greeted:
            return now_s
        if self._news_s:
            return self._news_s + self._coalesce_s() if self.load.supply else now_s
        due_s = max(self._heartbeat_at_s, self._again_s)
        if not under_way:
            due_s = min(
                due_s,
                max(self.last_contact_s + (_ASK_AGAIN_S if self.load.busy else 0.0), self._again_s),
            )
        return due_s

    def _coalesce_s(self) -> float:
        """Return how long news waits for more: a message costs as much as the start of a task."""
        return _COALESCE_LONG_S if self.load.supply >= _SUPPLY else _COALESCE_S

    def _message(self, now_s: float, wait_s: float) -> bytes:
        self._seq += 1
        message: dict[str, Any] = {
            **self._who,
            "seq": self._seq,
            "wait_s": wait_s,
        }
        if not self._greeted:
            self._greeted = True
            message["hello"] = self._hello()
        if now_s >= self._heartbeat_at_s:
            self._heartbeat_at_s = now_s + self._heartbeat_s
            message.update(self._beat())
        message.update(self._news.report(self._seq))
        more = self._news.is_new
        self._news_s = now_s if more else 0.0
        if self.leaving:  # also with news pending: else more tasks would be assigned
            message["leaving"] = self.leaving
            self._left_in = self._left_in or (0 if more else self._seq)
        return json.dumps(message, separators=(",", ":")).encode()

    def receive(self) -> list[dict[str, Any]]:
        """Return the received answers that have content. Raise Refused where the key is not
        accepted."""
        if self.link is None:
            return []
        messages: list[dict[str, Any]] = []
        try:
            late_s = self.link.late_s(time.monotonic())
            answers = self.link.read()
            if answers:
                self._stale_s = min(_MOST_STALE_S, max(_STALE_S, _SLACK * late_s))
            self.link.write()
            for status, body in answers:
                if status == 403:
                    raise KeyRefused
                if status not in (200, 204):
                    self._refit(status)
                    break
                if status == 200:
                    messages.append(parse_answer(body))
                self.last_contact_s = time.monotonic()
                self._pauses.over()
        except (OSError, ValueError):  # also an answer that is not the manager's
            self._lose()
        return messages

    def _refit(self, status: int) -> None:
        """Handle a manager that does not accept this message now, or not at this size (413); or a
        proxy that answers in its place."""
        if status == 413:
            self._news.shrink()
        self._lose(cut=False, pause_s=2.0)

    def absorb(self, answer: dict[str, Any], now_s: float) -> list[Any]:
        """Process the protocol fields of an answer; return the tasks whose ends are
        acknowledged."""
        seq = answer.get("seq", 0)
        acknowledged = self._news.acknowledge(seq)
        if 0 < self._left_in <= seq:
            self._left_in = -1
        if answer.get("hello"):  # unknown session: a new connection starts with hello
            self._lose(cut=False)
        self._heartbeat_s = answer.get("beat_s") or self._heartbeat_s
        self._heartbeat_at_s = min(self._heartbeat_at_s, now_s + self._heartbeat_s)
        self._again_s = now_s + (answer.get("again_s") or 0.0)
        return acknowledged

    def look(self, now_s: float) -> None:
        """Ensure that there is a connection, and that it is alive."""
        while self._connecting.connected:
            socket = self._connecting.connected.popleft()
            self.is_refused = isinstance(socket, ConnectionRefusedError)
            if isinstance(socket, OSError):
                self._try_s = now_s + self._pauses.next_s()
            else:
                self.link, self._greeted = ManagerConnection(socket, self._manager), False
        if self.link is not None:
            if self.link.late_s(now_s) > self._stale_s:
                # the manager may be slow instead: then the next connection waits longer
                self._stale_s = min(2.0 * self._stale_s, _MOST_STALE_S)
                self._lose()
        elif not self._connecting.under_way(now_s) and now_s >= self._try_s:
            self._connecting.begin(now_s)

    def _lose(self, cut: bool = True, pause_s: float = 0.0) -> None:
        """Handle a lost connection: unacknowledged news is sent again on the next one."""
        now_s = time.monotonic()
        if self.link is None:
            return
        if cut and self.link.answered:
            self._turns.cut(now_s)
        self.link = None
        if self.leaving == IDLE:  # not acknowledged: there may be work by the next connection
            self.leaving = ""
        self._try_s = now_s + self._pauses.next_s(pause_s)
        self._news.resend()
        self._left_in = 0
        self._news_s = now_s if self.leaving or self._news.is_new else 0.0

    def next_s(self, now_s: float) -> float:
        """Return when it needs to send or to connect again, by the monotonic clock in seconds."""
        if self.link is None:
            return max(self._connecting.ends_s, self._try_s)
        late_s = self.link.late_s(now_s)
        return min(self._send_at_s(now_s), now_s + max(0.0, self._stale_s - late_s) + _ASK_AGAIN_S)

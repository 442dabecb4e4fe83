"""What a host and its manager say to each other: news are told until they are acknowledged, over
whatever connection.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import deque
from typing import Any, Callable, Mapping, NamedTuple

from .link import Connecting, Link, Manager, Refused
from .news import News

_COALESCE_S = 0.002  # ends within this time share a message, while there is more to begin
_ASK_AGAIN_S = 0.005  # what ends within this time after an answer takes the place of a question
_WAIT_S, _TURN_WAIT_S = 30.0, 1.0
_MOST_UNDER_WAY = 8  # requests; more than one is a parked one and what has ended since
_STALE_S = 30.0  # an answer that is so late will not come
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 58.0
_GROWTH, _JITTER = 1.5, 0.04
_TURNS_S = 600.0  # how long requests take turns after a way was seen to cut streams
_CUTS_S = 60.0


class Standing(NamedTuple):
    """How the host stands, as far as it matters for when to speak."""

    busy: bool
    """It holds tasks."""
    supplied: bool
    """Tasks wait here for a processor."""


class Pauses:
    """How long to wait before trying to connect again: about half as long as the manager has been
    away, so that hosts are soon back after a short absence; from a minute on nearly a minute each
    time. By then hosts are spread over the minute and stay so, and come back evenly. (Were each
    pause drawn from the whole minute anew, twice as many would come at first.)
    """

    def __init__(self) -> None:
        self._most_s, self._spread = _FIRST_PAUSE_S, False

    def next_s(self, least_s: float = 0.0) -> float:
        """The next pause, in seconds. ``least_s``: it is drawn from up to no less than this."""
        most_s = max(self._most_s, least_s)
        self._most_s = min(_GROWTH * most_s, _LONGEST_PAUSE_S)
        if most_s <= _FIRST_PAUSE_S or (most_s >= _LONGEST_PAUSE_S and not self._spread):
            self._spread = most_s >= _LONGEST_PAUSE_S
            return random.uniform(0.0, most_s)
        return random.uniform((1.0 - _JITTER if self._spread else 0.5) * most_s, most_s)

    def over(self) -> None:
        """The manager has answered."""
        self._most_s, self._spread = _FIRST_PAUSE_S, False


class Talk:
    """Messages of one life of an agent, numbered through, over one connection after the other."""

    def __init__(
        self,
        manager: Manager,
        who: Mapping[str, str],
        turns: bool,
        ring: Callable[[], None],
        hello: Callable[[], dict[str, Any]],
        running: Callable[[], list[Any]],
    ) -> None:
        """``who``: what every message begins with; ``hello``, ``running``: what is told first, and
        in beats."""
        self._manager, self._connecting = manager, Connecting(manager, ring)
        self._who, self._hello, self._running = who, hello, running
        self.link: Link | None = None
        self.standing = Standing(False, False)
        self.leaving = ""
        self.is_refused = False  # where the manager listened nobody does
        self._news = News()
        self._seq = self._left_in = 0
        now_s = time.monotonic()
        self.heard_s = self._beat_at_s = self._born_s = now_s
        self._try_s = self._again_s = self._news_s = 0.0
        self._pauses = Pauses()
        self._cuts: deque[float] = deque(maxlen=2)
        self._turns_until_s = math.inf if turns else 0.0
        self._beat_s = 10.0
        self._greeted = False

    def add(self, kind: str, one: object) -> None:
        """News: of kind ended, returned or cached."""
        self._news.add(kind, one)
        self._news_s = self._news_s or time.monotonic()

    def leave(self, why: str) -> None:
        """Tell that the host leaves, when all that it gives back has been told."""
        self.leaving, self._left_in = why, 0
        self._news_s = self._news_s or time.monotonic()

    @property
    def has_taken_leave(self) -> bool:
        """True when the manager knows that the host leaves, and all that it had to tell."""
        return self._left_in < 0 and self._news.is_all_known

    @property
    def is_new(self) -> bool:
        """True while the manager has never answered."""
        return self.heard_s == self._born_s

    def away_s(self, now_s: float) -> float:
        """How long the manager has been away, in seconds."""
        return now_s - self.heard_s if self.link is None else 0.0

    def speak(self) -> None:
        """Send what is due."""
        while self.link is not None and self._speak_s(now_s := time.monotonic()) <= now_s:
            try:
                self.link.ask(self._message(now_s), now_s)
            except OSError:
                self._lose()

    def _turning(self, now_s: float) -> bool:
        return now_s < self._turns_until_s

    def _speak_s(self, now_s: float) -> float:
        """When the next message is due."""
        if self.link is None:
            return math.inf
        under_way = len(self.link.asked)
        if under_way >= (1 if self._turning(now_s) else _MOST_UNDER_WAY) or self.link.blocked:
            return math.inf
        if not self._greeted:
            return now_s
        if self._news_s:
            return self._news_s + _COALESCE_S if self.standing.supplied else now_s
        due_s = max(self._beat_at_s, self._again_s)
        if not under_way:
            due_s = min(
                due_s,
                max(self.heard_s + (_ASK_AGAIN_S if self.standing.busy else 0.0), self._again_s),
            )
        return due_s

    def _message(self, now_s: float) -> bytes:
        self._seq += 1
        wait_s = _TURN_WAIT_S if self._turning(now_s) and self.standing.busy else _WAIT_S
        message: dict[str, Any] = {
            **self._who,
            "seq": self._seq,
            "wait_s": wait_s,
        }
        if not self._greeted:
            self._greeted = True
            message["hello"] = self._hello()
        if now_s >= self._beat_at_s:
            self._beat_at_s = now_s + self._beat_s
            message["running"] = self._running()
        message.update(self._news.tell(self._seq))
        more = self._news.is_new
        self._news_s = now_s if more else 0.0
        if self.leaving:  # also with news to come: else it would be given more meanwhile
            message["leaving"] = self.leaving
            self._left_in = self._left_in or (0 if more else self._seq)
        return json.dumps(message, separators=(",", ":")).encode()

    def hear(self) -> list[dict[str, Any]]:
        """The answers that have come and say something; Refused where the key does not do."""
        if self.link is None:
            return []
        said: list[dict[str, Any]] = []
        try:
            answers = self.link.read()
            self.link.write()
            for status, body in answers:
                if status == 403:
                    raise Refused
                if status not in (200, 204):
                    self._refit(status)
                    break
                self.heard_s = time.monotonic()
                self._pauses.over()
                if status == 200:
                    said.append(json.loads(body))
        except (OSError, ValueError):
            self._lose()
        return said

    def _refit(self, status: int) -> None:
        """The manager does not take this message now, or not at this size (413)."""
        if status == 413:
            self._news.shrink()
        self._lose(cut=False, pause_s=2.0)

    def absorb(self, answer: dict[str, Any], now_s: float) -> list[Any]:
        """What an answer says of the exchange itself; the tasks whose ends the manager knows
        now."""
        seq = answer.get("seq", 0)
        known = self._news.acknowledge(seq)
        if 0 < self._left_in <= seq:
            self._left_in = -1
        if answer.get(
            "hello"
        ):  # the manager does not know who this is: it is told on a new connection
            self._lose(cut=False)
        self._beat_s = answer.get("beat_s") or self._beat_s
        self._beat_at_s = min(self._beat_at_s, now_s + self._beat_s)
        self._again_s = now_s + (answer.get("again_s") or 0.0)
        return known

    def look(self, now_s: float) -> None:
        """See to it that there is a connection, and that it is alive."""
        while self._connecting.made:
            made = self._connecting.made.popleft()
            self.is_refused = isinstance(made, ConnectionRefusedError)
            if isinstance(made, OSError):
                self._try_s = now_s + self._pauses.next_s()
            else:
                self.link, self._greeted = Link(made, self._manager), False
        if self.link is not None:
            asked = self.link.asked
            parked_s = _WAIT_S if len(asked) == 1 else 0.0
            if asked and now_s > asked[min(1, len(asked) - 1)] + parked_s + _STALE_S:
                self._lose()
        elif not self._connecting.under_way and now_s >= self._try_s:
            self._connecting.begin()

    def _lose(self, cut: bool = True, pause_s: float = 0.0) -> None:
        """The connection is gone: what was not acknowledged is told again on the next one."""
        now_s = time.monotonic()
        if self.link is None:
            return
        if cut and self.link.answered:
            self._cuts.append(now_s)
            if len(self._cuts) == 2 and self._cuts[1] - self._cuts[0] < _CUTS_S:
                self._turns_until_s = max(self._turns_until_s, now_s + _TURNS_S)
        self.link = None
        self._try_s = now_s + self._pauses.next_s(pause_s)
        self._news.tell_again()
        self._left_in = 0
        self._news_s = now_s if self.leaving or self._news.is_new else 0.0

    def next_s(self, now_s: float) -> float:
        """When it wants to speak or to connect again, by the monotonic clock in seconds."""
        if self.link is None:
            return math.inf if self._connecting.under_way else self._try_s
        return self._speak_s(now_s)

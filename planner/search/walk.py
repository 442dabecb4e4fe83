"""One walk from a plan to better ones: random changes, accepted if they seem better, or hardly
worse while much effort is left (threshold accepting: Dueck, Scheuer, J. Comput. Phys. 90(1) 1990,
doi:10.1016/0021-9991(90)90201-B).

A change is raced (Maron, Moore, NIPS 6, 1993): first in few of the scenarios in which the plan
fails, because only there can it gain, then in few of those in which it succeeds, then in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vgrads.kernel.arrays import Ints
from vgrads.planner.effort import Effort
from vgrads.planner.search.moves import Moves, Weighted
from vgrads.planner.search.versions import PlacedOrders, Simulator, Version

_FAILING, _SUCCEEDING = 32, 64  # scenarios of the first looks
_PROGRESS = 0.02  # weight of the workflows done on average, against the promise
_PER_DRAW = 100  # effort of a change that does not apply
_WARM = 0.015  # of the value that a change may lose at first
_MONEY = 0.6  # share of the effort for less money, before fewer hours
_TAKEN = 0.3  # of the workflows in slots: first attempt to do without
_SAVING = 1e-4  # share of the cost that is worth a change


@dataclass
class Walk:
    """``required``: the promise from which on only cost counts; ``patience``: changes without gain
    after which it ends."""

    simulator: Simulator
    moves: Moves
    required: float
    patience: int = 400

    def climb(self, start: Version, effort: Effort) -> list[Version]:
        """Make a plan more probable until it reaches the required promise; return ever better
        versions, the start first."""
        now, versions, whole = start, [start], max(effort.left, 1.0)
        failed = 0
        while now.promise < self.required and effort.left > 0 and failed < self.patience:
            # no loss is accepted in the last fifth of the effort
            tolerance = _WARM * max(0.0, effort.left / whole - 0.2) ** 2
            tried = self._changed(now, self.moves.more, effort, tolerance)
            failed += 1
            if tried is None:
                continue
            now = tried
            if self._value(now) > self._value(versions[-1]) + 1e-9:
                versions.append(now)
                failed = 0
        return versions

    def wander(self, start: Version, count: int) -> Version:
        """Return a plan after so many random changes."""
        now = start.candidate
        for _ in range(count):
            orders = self.moves.draw(now, self.moves.more)
            now = (self.simulator.candidate(orders) if orders is not None else None) or now
        return self.simulator.version(now, len(start.outcome.done)) or start

    def cheapen(self, start: Version, effort: Effort) -> list[Version]:
        """Make a plan cheaper that reaches the required promise, first in money, then in
        processor-hours: slots without cost may be what makes paid ones superfluous. Return ever
        cheaper versions, the start first."""
        versions = [start]
        self.moves.share = _TAKEN
        for money in (True, False) if start.usd > 0 else (False,):
            part = effort.part(_MONEY if money else 1.0)
            failed = 0
            while part.left > 0 and failed < self.patience:
                tried = self._changed(versions[-1], self.moves.less, part, float(money))
                failed += 1
                self.moves.share *= 0.9
                if tried is not None:
                    versions.append(tried)
                    failed, self.moves.share = 0, min(_TAKEN, 2.0 * self.moves.share)
            effort.take_back(part)
        return versions

    def _value(self, version: Version) -> float:
        return version.promise + _PROGRESS * version.progress

    def _changed(
        self, now: Version, moves: Weighted, effort: Effort, tolerance: float
    ) -> Version | None:
        """Draw a change; return its version if it is accepted."""
        self.simulator.effort = effort
        orders = self.moves.draw(now.candidate, moves)
        if orders is None:
            effort.spend(_PER_DRAW)
            return None
        candidate = self.simulator.candidate(orders)
        if candidate is None:
            return None
        if now.promise < self.required:
            return self._more_probable(now, candidate, tolerance)
        return self._cheaper(now, candidate, tolerance > 0)

    def _more_probable(
        self, now: Version, candidate: PlacedOrders, tolerance: float
    ) -> Version | None:
        needed = self.simulator.needed
        enough = self.simulator.enough(now)
        failing, succeeding = np.flatnonzero(~enough)[:_FAILING], np.flatnonzero(enough)
        succeeding = succeeding[:_SUCCEEDING]
        first = self.simulator.simulate(candidate, failing)
        if first is None:
            return None
        share = 1.0 - now.promise
        gain = share * self._mean_value(first.done, failing, now)
        if gain + tolerance <= 0.0:
            return None
        if len(succeeding):
            then = self.simulator.simulate(candidate, succeeding)
            if then is None:
                return None
            lost = (then.done < needed).mean()
            # the error of so few scenarios is not zero, even if nothing is lost in them
            doubt = np.sqrt((lost + 0.02) / len(succeeding)) * now.promise
            if gain - now.promise * lost + tolerance + doubt <= 0.0:
                return None
        version = self.simulator.version(candidate, len(now.outcome.done))
        if version is None or self._value(version) <= self._value(now) - tolerance:
            return None
        return version

    def _mean_value(self, done: Ints, rows: Ints, now: Version) -> float:
        """Return the gain of value in scenarios in which the plan fails, on average."""
        needed = self.simulator.needed
        before = np.minimum(now.outcome.done[rows], needed) / needed
        after = np.minimum(done, needed) / needed
        return float((done >= needed).mean() + _PROGRESS * (after - before).mean())

    def _cheaper(self, now: Version, candidate: PlacedOrders, money: bool) -> Version | None:
        """``money``: fewer hours alone are no gain."""
        enough = np.flatnonzero(self.simulator.enough(now))[:_SUCCEEDING]
        first = self.simulator.simulate(candidate, enough)
        if first is None:
            return None
        lost = float((first.done < self.simulator.needed).mean())
        # two standard errors, which are not zero even if nothing is lost in these scenarios
        doubt = 2.0 * np.sqrt(max(lost, 0.01) / len(enough))
        if now.promise * (1.0 - lost) + doubt < self.required:
            return None
        usd = float((first.usd - now.outcome.usd[enough]).mean())
        hours = float((first.hours - now.outcome.hours[enough]).mean())
        if usd > 0.01 or (usd > -0.005 and (money or hours >= 0)):
            return None
        version = self.simulator.version(candidate, len(now.outcome.done))
        if version is None or version.promise < self.required:
            return None
        less = version.usd < now.usd - 0.005 if money else _costs_less(version, now)
        return version if less else None


def _costs_less(version: Version, other: Version) -> bool:
    """True if a version costs less money, on average and then at most, or the same and fewer
    hours."""
    for mine, its in ((version.usd, other.usd), (version.most_usd, other.most_usd)):
        if abs(mine - its) > 0.005:
            return mine < its
    return version.hours < other.hours * (1.0 - _SAVING) - 1e-6

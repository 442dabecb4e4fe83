"""How much a regular expression may cost: counted before it is ever matched.

A matcher that tries again and again needs time that grows with each place where it has a choice: a
repetition without bound may end anywhere, a search may begin anywhere. Choices are multiplied here
over the longest text that a pattern meets; repetitions of what repeats or chooses itself, and
references back, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

LONGEST_PATTERN = 200
QUANTIFIERS = "*+?{"
STEP_NS = 12.0
"""What one step of the matcher is reckoned at, in ns; 0.7 to 12 were measured."""
BRACKET = 1.5
"""So many steps more are reckoned within each bracket."""


class PatternError(ValueError):
    """A pattern that is not taken, and why."""


@dataclass
class _Group:
    """A bracket of a pattern, or all of it: the choices in it so far."""

    bounded: float = 1.0
    unbounded: int = 0
    branches: int = 1
    last: _Group | None = None  # what a quantifier would repeat, where it is a group

    @property
    def plain(self) -> bool:
        return self.bounded == 1 and not self.unbounded and self.branches == 1


def pattern_cost_ns(pattern: str, longest: int) -> float:
    """The time in ns that a search in a text of so many characters takes at worst."""
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"a pattern has at most {LONGEST_PATTERN} characters")
    whole = _read(pattern)
    anchored = whole.branches == 1 and pattern.startswith(("^", ".*"))
    free = whole.unbounded + (0 if anchored else 1)
    ways = prod((longest + i) / i for i in range(1, free + 1)) * whole.bounded * whole.branches
    return (ways + len(pattern) + longest) * STEP_NS


def _read(pattern: str) -> _Group:
    groups, at = [_Group()], 0
    single = False  # whether a character or class stands before, which may be repeated
    while at < len(pattern):
        c, group = pattern[at], groups[-1]
        if c in QUANTIFIERS:
            at, low, high = _quantifier(pattern, at)
            _repeat(group, low, high, single)
            single, group.last = False, None
            continue
        group.last = None
        at, single = _one(pattern, at, groups), c not in "^|("
    if len(groups) > 1:
        raise PatternError("a ) is missing in the pattern")
    return groups[0]


def _one(pattern: str, at: int, groups: list[_Group]) -> int:
    """Reads what is no quantifier: a character, a class, a bracket, a bar. Gives where it ends."""
    c, at = pattern[at], at + 1
    if c == "\\":
        if pattern[at : at + 1].isalnum() and pattern[at] not in "dDwWsSbntr":
            raise PatternError(f"\\{pattern[at]} in a pattern is not taken: no references back")
        return at + 1
    if c == "[":
        return _class_end(pattern, at)
    if c == "(":
        if pattern.startswith("?", at) and not pattern.startswith("?:", at):
            raise PatternError("(? in a pattern is not taken, but for (?:")
        at += 2 * pattern.startswith("?:", at)
        groups.append(_Group())
    elif c == "|":
        groups[-1].branches += 1
    elif c == ")":
        _close(groups)
    return at


def _close(groups: list[_Group]) -> None:
    """A bracket ends: its choices are those of what is around it."""
    if len(groups) == 1:
        raise PatternError("a ( is missing in the pattern")
    inner = groups.pop()
    outer = groups[-1]
    outer.bounded *= inner.bounded * inner.branches * BRACKET
    outer.unbounded += inner.unbounded
    outer.last = inner


def _repeat(group: _Group, low: int, high: int | None, single: bool) -> None:
    if not single:
        raise PatternError("a quantifier of nothing, or of a quantifier, is not taken in a pattern")
    if group.last is not None and not group.last.plain and (low, high) != (0, 1):
        raise PatternError("no repetition of what repeats or chooses itself (nested quantifiers)")
    if high is None:
        group.unbounded += 1
    elif high > 100:
        raise PatternError("a counted repetition goes up to 100")
    else:
        group.bounded *= high - low + 1


def _quantifier(pattern: str, at: int) -> tuple[int, int, int | None]:
    """Where it ends, and the least and the most of it; a ? or + after it only says which way is
    tried first."""
    c = pattern[at]
    low, high = {"*": (0, None), "+": (1, None), "?": (0, 1), "{": (0, None)}[c]
    end = at + 1
    if c == "{":
        end = pattern.find("}", at) + 1
        first, comma, last = pattern[at + 1 : end - 1].partition(",")
        if not end or not first.isdigit() or (last and not last.isdigit()):
            raise PatternError(
                "{ in a pattern is written {2}, {2,} or {2,5}, or as a character \\{"
            )
        low = int(first)
        high = (int(last) if last else None) if comma else low
        if low > 100:
            raise PatternError("a counted repetition goes up to 100")
    return end + (pattern[end : end + 1] in ("?", "+") and end < len(pattern)), low, high


def _class_end(pattern: str, at: int) -> int:
    """Behind the ] of a class that began before ``at``."""
    at += pattern.startswith("^", at)
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        if pattern.startswith("[:", at):
            at = max(pattern.find(":]", at) + 1, at)
        at += 2 if pattern[at] == "\\" else 1
    if at >= len(pattern):
        raise PatternError("a ] is missing in the pattern")
    return at + 1

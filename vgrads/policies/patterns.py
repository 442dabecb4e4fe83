"""Cost of a regular expression: computed before it is matched.

A backtracking matcher needs time that grows with each choice: an unbounded repetition may end
anywhere, a search may start anywhere. Choices are multiplied here over the longest text that a
pattern meets; repetitions of parts that contain repetitions or choices, and back-references, are
rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

LONGEST_PATTERN = 200
QUANTIFIERS = "*+?{"
STEP_NS = 12.0
"""Assumed time of one step of the matcher, in ns; 0.7 to 12 were measured."""
BRACKET = 1.5
"""Factor of the number of steps within each bracket."""


class PatternError(ValueError):
    """A rejected pattern, with the reason."""


@dataclass
class _PatternGroup:
    """A bracket of a pattern, or the whole pattern: its choices so far."""

    bounded: float = 1.0
    unbounded: int = 0
    branches: int = 1
    last: _PatternGroup | None = None  # operand of a quantifier, where it is a group

    @property
    def plain(self) -> bool:
        return self.bounded == 1 and not self.unbounded and self.branches == 1


def pattern_cost_ns(pattern: str, longest: int) -> float:
    """Return the worst-case time in ns of a search in a text of this many characters."""
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"a pattern has at most {LONGEST_PATTERN} characters")
    whole = _read(pattern)
    # without an anchor the search begins anew at each character of the text
    anchored = whole.branches == 1 and pattern.startswith(("^", ".*"))
    free = whole.unbounded + (0 if anchored else 1)
    # the ways to choose the ends of all free parts in the text: C(longest + free, free)
    ways = prod((longest + i) / i for i in range(1, free + 1)) * whole.bounded * whole.branches
    return (ways + len(pattern) + longest) * STEP_NS


def _read(pattern: str) -> _PatternGroup:
    groups, at = [_PatternGroup()], 0
    single = False  # True after a character or class, which may be repeated
    while at < len(pattern):
        c, group = pattern[at], groups[-1]
        if c in QUANTIFIERS:
            at, low, high = _parse_quantifier(pattern, at)
            _repeat_group(group, low, high, single)
            single, group.last = False, None
            continue
        group.last = None
        at, single = _parse_atom(pattern, at, groups), c not in "^|("
    if len(groups) > 1:
        raise PatternError("a ) is missing in the pattern")
    return groups[0]


def _parse_atom(pattern: str, at: int, groups: list[_PatternGroup]) -> int:
    """Parse anything but a quantifier: a character, a class, a bracket, a bar. Return its end."""
    c, at = pattern[at], at + 1
    if c == "\\":
        if pattern[at : at + 1].isalnum() and pattern[at] not in "dDwWsSbntr":
            raise PatternError(f"\\{pattern[at]} in a pattern is not supported: no back references")
        return at + 1
    if c == "[":
        return _find_class_end(pattern, at)
    if c == "(":
        if pattern.startswith("?", at) and not pattern.startswith("?:", at):
            raise PatternError("(? in a pattern is not supported, except (?:")
        at += 2 * pattern.startswith("?:", at)
        groups.append(_PatternGroup())
    elif c == "|":
        groups[-1].branches += 1
    elif c == ")":
        _close(groups)
    return at


def _close(groups: list[_PatternGroup]) -> None:
    """Close a bracket: add its choices to those of its parent."""
    if len(groups) == 1:
        raise PatternError("a ( is missing in the pattern")
    inner = groups.pop()
    outer = groups[-1]
    outer.bounded *= inner.bounded * inner.branches * BRACKET
    outer.unbounded += inner.unbounded
    outer.last = inner


def _repeat_group(group: _PatternGroup, low: int, high: int | None, single: bool) -> None:
    if not single:
        raise PatternError(
            "a quantifier of nothing, or of a quantifier, is not supported in a pattern"
        )
    # a bracket that may be absent does not repeat
    if group.last is not None and not group.last.plain and (low, high) != (0, 1):
        raise PatternError("a repetition or an alternative cannot be repeated (nested quantifiers)")
    if high is None:
        group.unbounded += 1
    elif high > 100:
        raise PatternError("a counted repetition must be at most 100")
    else:
        group.bounded *= high - low + 1


def _parse_quantifier(pattern: str, at: int) -> tuple[int, int, int | None]:
    """Parse a quantifier; return its end, its minimum and its maximum. A ? or + after it only
    selects which way is tried first."""
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
            raise PatternError("a counted repetition must be at most 100")
    return end + (pattern[end : end + 1] in ("?", "+") and end < len(pattern)), low, high


def _find_class_end(pattern: str, at: int) -> int:
    """Return the position after the ] of a class that started before ``at``."""
    at += pattern.startswith("^", at)
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        if pattern.startswith("[:", at):
            at = max(pattern.find(":]", at) + 1, at)
        at += 2 if pattern[at] == "\\" else 1
    if at >= len(pattern):
        raise PatternError("a ] is missing in the pattern")
    return at + 1

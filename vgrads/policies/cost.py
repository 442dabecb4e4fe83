"""Functions allowed in a dispatch policy, and the worst-case time of an expression: computed, never
measured.

A list of what is allowed, not of what is forbidden: functions without clock, chance, files or
evaluation of texts. The time is an upper estimate from the parts of an expression and the longest
values that an ad may hold (:data:`vgrads.policies.ads.LONGEST`, :data:`vgrads.policies.ads.MOST`),
so that the same policy is accepted or rejected on every machine.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from vgrads.kernel.units import format_count
from vgrads.policies.evaluation import LONGEST, MOST
from vgrads.policies.functions import FUNCTIONS_OF
from vgrads.policies.patterns import PatternError, pattern_cost_ns
from vgrads.policies.text import BRACKETS, DEEPEST, ExpressionSource, Node, in_a_row

LIMIT_NS = 2_000_000.0
"""Maximum computed time of an expression, 2 ms: the limit is 5 ms, and machines are busy."""
MOST_PARTS = 4_000
"""Maximum number of parts of an expression, including its references."""

NAME_NS = 30_000.0
"""Time to insert the longest list that a name may refer to."""

REGEXPS = ("regexp", "regexpmember")
LISTS = ("member", "identicalmember", "anycompare", "allcompare", "sum", "avg", "min", "max")
WHOLE = {*LISTS, "strcat", "string", "toupper", "tolower"}
"""Functions that process a list with all its texts."""
FUNCTIONS = {
    "ifthenelse": (3, 3),  # evaluated as a condition
    **{name: (least, most) for name, (least, most, _) in FUNCTIONS_OF.items()},
}
"""Functions by their lower-case names, with the number of their arguments."""
SHOWN = (
    "regexp",
    "regexpMember",
    "member",
    "identicalMember",
    "anyCompare",
    "allCompare",
    "sum",
    "avg",
    "min",
    "max",
    "size",
    "isUndefined",
    "isError",
    "isString",
    "isInteger",
    "isReal",
    "isBoolean",
    "isList",
    "int",
    "real",
    "string",
    "bool",
    "floor",
    "ceiling",
    "round",
    "pow",
    "quantize",
    "ifThenElse",
    "strcat",
    "substr",
    "strcmp",
    "stricmp",
    "toUpper",
    "toLower",
    "versioncmp",
    "versionGT",
    "versionGE",
    "versionLT",
    "versionLE",
    "versionEQ",
)
"""The same in the manual's spelling."""
IMPURE = (
    "random",
    "time",
    "formattime",
    "absTime",
    "relTime",
    "currenttime",
    "daytime",
    "interval",
    "eval",
    "unparse",
)


@dataclass(frozen=True, slots=True)
class Weight:
    """Worst case: time in ns, characters of a resulting text, members of a list, parts, levels,
    brackets, and the names that are read."""

    ns: float
    chars: float
    members: int
    parts: int
    depth: int
    brackets: int
    names: frozenset[str] = frozenset()

    @property
    def worst_ns(self) -> float:
        """Return the time including one insertion of the value of each name."""
        return self.ns + NAME_NS * len(self.names)


@dataclass(frozen=True)
class Scales:
    """Computes the weight of the expressions of one policy; ``helper`` returns the expression of a
    name that the user defined."""

    source: ExpressionSource
    name: str
    helper: Callable[[Node], Weight | None]

    def checked(self, node: Node) -> Weight:
        """Return the weight of an expression, or its error."""
        weight = self.weigh(node)
        if weight.worst_ns > LIMIT_NS or weight.parts > MOST_PARTS:
            text = (
                f"it may take {weight.worst_ns / 1e6:.1f} ms, has "
                f"{format_count(weight.parts, 'part')}, reads "
                f"{format_count(len(weight.names), 'name')}"
            )
            raise self.source.wrong(
                f"the expression is too expensive: {text}",
                node.at,
                name=self.name,
                fix=(
                    f"at most {LIMIT_NS / 1e6:g} ms with the longest values, and {MOST_PARTS} parts"
                ),
            )
        return weight

    def weigh(self, node: Node) -> Weight:
        if node.kind == "value":
            return Weight(50.0, len(str(node.value)), 1, 1, 1, 1)
        if node.kind == "name":
            # of a value that comes from a job or node, only the largest size is known
            return self.helper(node) or Weight(
                1_000.0, LONGEST, MOST, 1, 1, 0, frozenset([node.word.lower()])
            )
        parts = [self.weigh(part) for part in node.parts]
        depth = 1 + max((p.depth for p in parts), default=0)
        row = len(parts) == 2 and in_a_row(node)
        brackets = max([p.brackets + (i > 0 or not row) for i, p in enumerate(parts)], default=1)
        if depth > DEEPEST or brackets > BRACKETS:
            raise self.source.wrong(
                (
                    f"the expression is too deep: more than {DEEPEST} levels, or {BRACKETS} "
                    "with brackets"
                ),
                node.at,
                name=self.name,
                fix="use member(x, {…}) instead of a long row of comparisons",
            )
        ns = 200.0 + sum(p.ns for p in parts)
        chars = max((p.chars for p in parts), default=0.0)
        members = max((p.members for p in parts), default=1)
        count = 1 + sum(p.parts for p in parts)
        if node.kind == "list":
            members = max(members, len(parts))
        elif node.kind == "call":
            ns += self._call_ns(node, parts)
            if node.word.lower() in ("strcat", "string"):
                chars, members = sum(p.chars * p.members + 32 for p in parts), 1
        # the other operators compute a number or a truth value
        elif node.word not in ("?", "?:", "[]"):
            chars, members = 32.0, 1
        return Weight(
            ns,
            chars,
            members,
            count,
            depth,
            brackets,
            frozenset[str]().union(*[p.names for p in parts]),
        )

    def _call_ns(self, node: Node, parts: list[Weight]) -> float:
        word = node.word.lower()
        if word not in FUNCTIONS:
            self._unknown(node)
        least, most = FUNCTIONS[word]
        if not least <= len(parts) <= most:
            arity = str(least) if least == most else f"{least} to {most}"
            raise self.source.wrong(
                f"{node.word} takes {arity} arguments, not {len(parts)}", node.at, name=self.name
            )
        ns = 500.0 + 5 * sum(p.chars * (p.members if word in WHOLE else 1) for p in parts)
        if word in LISTS:
            ns += 200.0 * parts[-1].members + 200.0 * parts[0].members
            self._compared(node)
        if word in REGEXPS:
            times = parts[1].members if word == "regexpmember" else 1
            ns += times * (2_000.0 + self._pattern_ns(node, int(parts[1].chars)))
        return ns

    def _compared(self, node: Node) -> None:
        sign = node.parts[0]
        if node.word.lower() in ("anycompare", "allcompare") and not isinstance(sign.value, str):
            raise self.source.wrong(
                f'the first argument of {node.word} is the operator: {node.word}(">", list, value)',
                sign.at,
                name=self.name,
            )

    def _pattern_ns(self, node: Node, longest: int) -> float:
        pattern, *options = node.parts[0], *node.parts[2:]
        # how long a pattern may take is computed here, before there are values
        if not isinstance(pattern.value, str):
            raise self.source.wrong(
                f"the first argument of {node.word} must be its pattern as a string literal",
                pattern.at,
                name=self.name,
                fix=f'{node.word}("^node[0-9]+", Host.Name)',
            )
        for option in options:
            if not isinstance(option.value, str) or set(option.value.lower()) - set("i"):
                raise self.source.wrong(
                    f'the options of {node.word} must be "i" or absent', option.at, name=self.name
                )
        try:
            ns = pattern_cost_ns(pattern.value, longest)
        except PatternError as error:
            raise self.source.wrong(str(error), pattern.at, name=self.name) from None
        if ns > LIMIT_NS:
            raise self.source.wrong(
                f"the pattern is too expensive: it may take {ns / 1e6:.1f} ms",
                pattern.at,
                name=self.name,
                fix="start it with ^, or limit its repetitions, e.g. {1,9}",
            )
        return ns

    def _unknown(self, node: Node) -> None:
        if node.word.lower() in [w.lower() for w in IMPURE]:
            what = f"{node.word}() is not supported: a policy may depend only on its inputs"
            raise self.source.wrong(what, node.at, name=self.name)
        near = difflib.get_close_matches(node.word, SHOWN, 1)
        raise self.source.wrong(
            f"a policy cannot call a function {node.word}",
            node.at,
            name=self.name,
            fix=f"did you mean {near[0]}?" if near else f"there are {', '.join(SHOWN)}",
        )

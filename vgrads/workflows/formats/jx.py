"""Expressions of JX, the extension of JSON in which Makeflows are written.

JX adds to JSON: comments, variables, operators, indices, list comprehensions and functions
(https://cctools.readthedocs.io/en/latest/jx/). Its syntax is part of Python's, so Python's parser
reads it; the tree is evaluated here, by the operations of JX only. The one exception, lists with
several comprehensions, is rewritten as Python writes it.
"""

from __future__ import annotations

import ast
import math
import operator
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vgrads.kernel.errors import InputError

JxValue = Any
"""A number, text, truth value, list or object, or None."""
Names = Mapping[str, JxValue]
MOST_STEPS = 5_000_000
"""Parts evaluated at most: a document of a few lines can describe any number of rules."""
_CONSTANTS = {"true": True, "false": False, "null": None}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LONG_NUMBER = re.compile(r"\d{4}|\*")
_TEMPLATE = re.compile(r"\{(\w+)\}")


def parse_jx(text: str, where: str) -> ast.expr:
    """Return the tree of a document; InputError names the wrong line."""
    try:
        return ast.parse(_rewrite_comprehensions(text.strip()), filename=where, mode="eval").body
    except SyntaxError as error:
        place = f"{where}: line {error.lineno}"
        raise InputError(f"is not valid JX: {error.msg}", where=place) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"is not valid JX: {error}", where=where) from None


_PART = re.compile(r'"(?:\\.|[^"\\])*"|#[^\n]*|\bfor\b|[\[\](){},]')


def _rewrite_comprehensions(text: str) -> str:
    """Write ``[a for x in y, b]`` as ``[*[a for x in y], b]``."""
    marks: list[tuple[int, str]] = []
    nested: list[list[Any]] = []  # bracket, begin of its current item, whether that has a loop
    for part in _PART.finditer(text):
        sign = part[0]
        if sign in "[({":
            nested.append([sign, part.end(), False])
        elif sign == "for" and nested:
            nested[-1][2] = True
        elif sign in "])}," and nested:
            bracket, begin, loops = nested[-1]
            if loops and bracket == "[":
                marks += [(begin, "*["), (part.start(), "]")]
            nested[-1][1:] = [part.end(), False]
            if sign != ",":
                nested.pop()
    pieces, last = [], 0
    for at, mark in sorted(marks, key=lambda m: m[0]):
        pieces += [text[last:at], mark]
        last = at
    return "".join((*pieces, text[last:]))


def entry_of(tree: ast.expr, name: str) -> ast.expr | None:
    """Return the tree of one entry of an object; None if there is none."""
    if not isinstance(tree, ast.Dict):
        return None
    pairs = zip(tree.keys, tree.values, strict=True)
    return next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == name), None)


@dataclass(slots=True)
class JxEvaluator:
    """Evaluates the trees of one document."""

    where: str
    steps: int = 0

    def value(self, tree: ast.expr, names: Names) -> JxValue:
        """Return the value of a tree; InputError names the wrong line."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise self._error(tree, f"describes more than {MOST_STEPS:,} values")
        read = getattr(self, f"_{type(tree).__name__.lower()}", None)
        if read is None:
            raise self._error(tree, "is not an expression of JX")
        try:
            return read(tree, names)
        except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise self._error(tree, f"cannot be evaluated: {error}") from None

    def defined(self, tree: ast.expr, names: Names) -> dict[str, Any]:
        """Return ``names`` with those that an object defines, each by those before it."""
        if not isinstance(tree, ast.Dict):
            raise self._error(tree, "must be an object")
        result = dict(names)
        for key, value in zip(tree.keys, tree.values, strict=True):
            if isinstance(key, ast.Constant):
                result[str(key.value)] = self.value(value, result)
        return result

    def _error(self, tree: ast.expr, what: str) -> InputError:
        return InputError(what, where=f"{self.where}: line {tree.lineno}")

    def _constant(self, tree: ast.Constant, _: Names) -> JxValue:
        if not isinstance(tree.value, str | int | float | bool):
            raise self._error(tree, "is not a value of JX")
        return tree.value

    def _name(self, tree: ast.Name, names: Names) -> JxValue:
        if tree.id in names:
            return names[tree.id]
        if tree.id in _CONSTANTS:
            return _CONSTANTS[tree.id]
        raise self._error(tree, f"'{tree.id}' is not defined")

    def _dict(self, tree: ast.Dict, names: Names) -> dict[str, Any]:
        pairs = zip(tree.keys, tree.values, strict=True)
        return {
            str(self.value(key, names)): self.value(value, names)
            for key, value in pairs
            # no key: ** of Python, which JX does not have
            if key is not None
        }

    def _list(self, tree: ast.List, names: Names) -> list[Any]:
        result: list[Any] = []
        for item in tree.elts:
            if isinstance(item, ast.Starred):
                result += self.value(item.value, names)
            else:
                result.append(self.value(item, names))
        return result

    def _listcomp(self, tree: ast.ListComp, names: Names) -> list[Any]:
        return [self.value(tree.elt, inner) for inner in self._scopes(tree, 0, names)]

    def _scopes(self, tree: ast.ListComp, level: int, names: Names) -> Iterator[Names]:
        """Return the names in each turn of a comprehension."""
        if level == len(tree.generators):
            yield names
            return
        loop = tree.generators[level]
        if not isinstance(loop.target, ast.Name):
            raise self._error(tree, "the variable of a comprehension must be a name")
        for item in self.value(loop.iter, names):
            self.steps += 1
            inner = {**names, loop.target.id: item}
            if all(self.value(test, inner) for test in loop.ifs):
                yield from self._scopes(tree, level + 1, inner)

    def _binop(self, tree: ast.BinOp, names: Names) -> JxValue:
        left, right = self.value(tree.left, names), self.value(tree.right, names)
        if isinstance(tree.op, ast.Add):
            if isinstance(left, str) != isinstance(right, str):
                left, right = _convert_to_text(left), _convert_to_text(right)
            if not isinstance(left, int | float) and len(left) + len(right) > MOST_STEPS:
                raise ValueError("is too long")
            return left + right
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise TypeError("this operator is for numbers")
        if isinstance(tree.op, ast.Div):
            whole = isinstance(left, int) and isinstance(right, int)
            # whole numbers are divided as in C: towards zero
            return int(left / right) if whole else left / right
        return _ARITHMETIC[type(tree.op)](left, right)

    def _unaryop(self, tree: ast.UnaryOp, names: Names) -> JxValue:
        value = self.value(tree.operand, names)
        if isinstance(tree.op, ast.Not):
            return not value
        return -value if isinstance(tree.op, ast.USub) else +value

    def _boolop(self, tree: ast.BoolOp, names: Names) -> bool:
        values = (bool(self.value(item, names)) for item in tree.values)
        return all(values) if isinstance(tree.op, ast.And) else any(values)

    def _compare(self, tree: ast.Compare, names: Names) -> bool:
        left, right = self.value(tree.left, names), self.value(tree.comparators[0], names)
        return _COMPARISONS[type(tree.ops[0])](left, right)

    def _subscript(self, tree: ast.Subscript, names: Names) -> JxValue:
        value = self.value(tree.value, names)
        if isinstance(tree.slice, ast.Slice):
            ends = (tree.slice.lower, tree.slice.upper)
            return value[slice(*(None if end is None else self.value(end, names) for end in ends))]
        return value[self.value(tree.slice, names)]

    def _call(self, tree: ast.Call, names: Names) -> JxValue:
        name = tree.func.id if isinstance(tree.func, ast.Name) else ""
        arguments = [self.value(item, names) for item in tree.args]
        if name == "template":
            scope = {**names, **(arguments[1] if len(arguments) > 1 else {})}
            return _TEMPLATE.sub(lambda match: str(scope[match[1]]), arguments[0])
        # before the list is made, which could fill the memory
        if name == "range" and len(range(*arguments)) > MOST_STEPS:
            raise self._error(tree, f"describes more than {MOST_STEPS:,} values")
        if name not in _FUNCTIONS:
            raise self._error(tree, f"'{name}' is not a function of JX that is supported")
        return _FUNCTIONS[name](*arguments)


def _convert_to_text(value: JxValue) -> str:
    """Return a value that is added to a text, as JX prints it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | dict):
        raise TypeError("a list or an object cannot be added to text")
    return f"{value:.16g}" if isinstance(value, float) else str(value)


def _format_values(pattern: str, values: tuple[object, ...]) -> str:
    # a width of many digits would make a text that fills the memory
    if _LONG_NUMBER.search(pattern):
        raise ValueError("a width has more than three digits")
    return pattern % values


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "basename": lambda path, suffix="": posixpath.basename(path).removesuffix(suffix),
    "ceil": math.ceil,
    "dirname": lambda path: posixpath.dirname(path) or ".",
    "floor": math.floor,
    "format": lambda pattern, *values: _format_values(pattern, values),
    "items": lambda value: [[key, item] for key, item in value.items()],
    "join": lambda items, separator=" ": separator.join(items),
    "keys": list,
    "len": len,
    "length": len,
    "range": lambda *ends: list(range(*ends)),
    "values": lambda value: list(value.values()),
}

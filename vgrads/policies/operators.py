"""Operators of the ClassAd language on values: see :mod:`vgrads.policies.evaluation`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from vgrads.policies.values import ERROR, UNDEFINED, Operand

_HALF, _WHOLE = 2**63, 2**64
Operator = Callable[[Operand, Operand], Operand]


def wrap(number: int) -> int:
    """Return an integer as 64 bits hold it."""
    return number if -_HALF <= number < _HALF else (number + _HALF) % _WHOLE - _HALF


def as_int(number: int) -> int:
    """Return a number as C's int holds it, which lists and texts are indexed with."""
    return (number + 2**31) % 2**32 - 2**31


def truncated(number: float) -> int:
    """Return a real as an integer: without its fraction; the least integer where it is too
    large, as the processor does it."""
    if not math.isfinite(number) or not -_HALF <= (whole := int(number)) < _HALF:
        return -_HALF
    return whole


def is_true(value: Operand) -> Operand:
    """Return a value as a condition: True, False, undefined or an error."""
    kind = type(value)
    if kind is bool or value is UNDEFINED:
        return value
    return value != 0 if kind in (int, float) else ERROR


def unknown(*values: Operand) -> Operand:
    """Return what values lead to of which one is undefined or an error; None for others."""
    if ERROR in values:
        return ERROR
    return UNDEFINED if UNDEFINED in values else None


def _make_arithmetic(of_integers: Callable[[int, int], Operand], of_reals: Operator) -> Operator:
    def apply(left: Operand, right: Operand) -> Operand:
        kinds = type(left), type(right)
        if kinds == (int, int):
            return of_integers(left, right)
        if (nothing := unknown(left, right)) is not None:
            return nothing
        if str in kinds or tuple in kinds:
            return ERROR
        if float in kinds:
            result = of_reals(float(left), float(right))
            return ERROR if result == math.inf else result
        return of_integers(int(left), int(right))

    return apply


def _quotient(left: int, right: int) -> Operand:
    if right == 0:
        return ERROR
    # towards zero as in C, where Python rounds down
    whole = abs(left) // abs(right)
    # -2⁶³ ÷ -1 does not fit into 64 bits
    return min(whole, _HALF - 1) if (left < 0) == (right < 0) else -whole


def _real_quotient(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left * right)


def _compute_remainder(left: int, right: int) -> Operand:
    if right == 0:
        return ERROR
    # with the sign of the dividend as in C, where Python takes that of the divisor
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _make_bit_operator(apply: Callable[[int, int], int]) -> Operator:
    def bits(left: Operand, right: Operand) -> Operand:
        if type(left) is int and type(right) is int:
            return wrap(apply(left, right))
        nothing = unknown(left, right)
        return ERROR if nothing is None else nothing

    return bits


def _make_comparison(compare: Operator) -> Operator:
    def apply(left: Operand, right: Operand) -> Operand:
        if (nothing := unknown(left, right)) is not None:
            return nothing
        if type(left) is str and type(right) is str:
            return compare(fold(left), fold(right))
        if type(left) in (str, tuple) or type(right) in (str, tuple):
            return ERROR
        if type(left) is float or type(right) is float:
            return compare(float(left), float(right))
        return compare(left, right)

    return apply


def fold(text: str) -> bytes:
    """Return a text as comparisons without regard to case see it: only ASCII has cases."""
    return text.encode().lower()


def identical(left: Operand, right: Operand) -> Operand:
    """``=?=``: the same kind and value; never undefined. Lists are not compared."""
    if type(left) is not type(right):
        return False
    return ERROR if type(left) is tuple else left == right


def _not_identical(left: Operand, right: Operand) -> Operand:
    same = identical(left, right)
    return same if same is ERROR else not same


def _shift_with_sign(number: int, count: int) -> int:
    """``>>``: a negative number is shifted by one as often as ``count`` says."""
    return number >> (count & 63) if number >= 0 else number >> min(max(count, 0), 63)


def _shift_without_sign(number: int, count: int) -> int:
    """``>>>``: of a negative number first by one, so that its sign is gone, then by the others."""
    if number >= 0:
        return number >> (count & 63)
    return ((number >> 1) & (_HALF - 1)) >> ((count - 1) & 63)


BINARY: Mapping[str, Operator] = {
    "+": _make_arithmetic(lambda a, b: wrap(a + b), operator.add),
    "-": _make_arithmetic(lambda a, b: wrap(a - b), operator.sub),
    "*": _make_arithmetic(lambda a, b: wrap(a * b), operator.mul),
    "/": _make_arithmetic(_quotient, _real_quotient),
    "%": _make_arithmetic(_compute_remainder, lambda *_: ERROR),
    "&": _make_bit_operator(operator.and_),
    "|": _make_bit_operator(operator.or_),
    "^": _make_bit_operator(operator.xor),
    "<<": _make_bit_operator(lambda a, b: a << (b & 63)),
    ">>": _make_bit_operator(_shift_with_sign),
    ">>>": _make_bit_operator(_shift_without_sign),
    "==": _make_comparison(operator.eq),
    "!=": _make_comparison(operator.ne),
    "<": _make_comparison(operator.lt),
    "<=": _make_comparison(operator.le),
    ">": _make_comparison(operator.gt),
    ">=": _make_comparison(operator.ge),
    "=?=": identical,
    "is": identical,
    "=!=": _not_identical,
    "isnt": _not_identical,
}


def _not(value: Operand) -> Operand:
    truth = is_true(value)
    return not truth if type(truth) is bool else truth


def _make_number_operator(
    of_integer: Callable[[int], int], of_real: Callable[[float], Operand]
) -> Operand:
    def apply(value: Operand) -> Operand:
        if type(value) is int:
            return wrap(of_integer(value))
        if type(value) is float:
            return of_real(value)
        return UNDEFINED if value is UNDEFINED else ERROR

    return apply


UNARY: Mapping[str, Callable[[Operand], Operand]] = {
    "!": _not,
    "-": _make_number_operator(operator.neg, operator.neg),
    "+": _make_number_operator(operator.pos, operator.pos),
    "~": _make_number_operator(operator.invert, lambda _: ERROR),
}


def subscript(items: Operand, index: Operand) -> Operand:
    """``list[index]``."""
    if (nothing := unknown(items, index)) is not None:
        return nothing
    fits = type(items) is tuple and type(index) is int and 0 <= as_int(index) < len(items)
    return items[as_int(index)] if fits else ERROR

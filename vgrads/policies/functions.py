"""Functions of the ClassAd language on values: see :mod:`vgrads.policies.evaluation`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from vgrads.policies.operators import (
    BINARY,
    as_int,
    fold,
    identical,
    is_true,
    truncated,
    unknown,
    wrap,
)
from vgrads.policies.values import ERROR, UNDEFINED, Operand

_QUOTED = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\b": "\\b",
    "\f": "\\f",
}
_NUMBER = re.compile(
    r"\s*([+-]?)(0x[0-9a-f]+|inf(?:inity)?|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)",
    re.IGNORECASE | re.ASCII,
)
_COMPARED = ("<", "<=", "==", "!=", ">=", ">", "is", "isnt")
_CLASSES = {
    "[:alpha:]": "A-Za-z",
    "[:digit:]": "0-9",
    "[:alnum:]": "A-Za-z0-9",
    "[:upper:]": "A-Z",
    "[:lower:]": "a-z",
    "[:space:]": r"\s",
    "[:punct:]": r"!-/:-@\[-`{-~",
    "[:xdigit:]": "0-9A-Fa-f",
    "[:word:]": r"\w",
    "[:blank:]": r" \t",
}
Function = Callable[..., Operand]


def literal_text(value: Operand) -> str:
    """Return a value as an expression of the language."""
    if type(value) is str:
        return f'"{"".join(_QUOTED.get(c, c) for c in value)}"'
    return _convert_to_text(value)


def _convert_to_text(value: Operand) -> str:
    """Return a value as text: a text itself, others as they are written."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return _format_real(value)
    if kind is tuple:
        return f"{{ {','.join(map(literal_text, value))} }}"
    return str(value.value) if value in (UNDEFINED, ERROR) else str(value)


def _format_real(value: float) -> str:
    if not math.isfinite(value):
        return f'real("{"NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"}")'
    if value == 0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    return f"{value:.15E}"


def _convert_to_number(value: Operand) -> float | int | None:
    """Return a value as a number: of a text its beginning, as the C library reads it; None where
    there is none."""
    kind = type(value)
    if kind is bool:
        return int(value)
    if kind in (int, float):
        return value  # type: ignore[no-any-return]
    match = _NUMBER.match(value) if kind is str else None
    if match is None:
        return None
    sign, digits = match[1], match[2].lower()
    number = float(int(digits, 16)) if digits.startswith("0x") else float(digits)
    return -number if sign == "-" else number


def _pass_nothing(function: Function) -> Function:
    """Return a function of which an undefined argument is undefined, and an error one."""

    def apply(value: Operand) -> Operand:
        return value if value is UNDEFINED or value is ERROR else function(value)

    return apply


def _size(value: Operand) -> Operand:
    # in bytes, as ClassAds count
    return len(value.encode()) if type(value) is str else _measure_length(value)


def _measure_length(value: Operand) -> Operand:
    return len(value) if type(value) is tuple else ERROR


def _is(kind: type) -> Function:
    # exactly this type: a truth value is an int in Python
    return lambda value: type(value) is kind


def _convert_to_int(value: Operand) -> Operand:
    number = _convert_to_number(value)
    return ERROR if number is None else number if type(number) is int else truncated(number)


def _convert_to_real(value: Operand) -> Operand:
    number = _convert_to_number(value)
    return ERROR if number is None else float(number)


def _convert_to_bool(value: Operand) -> Operand:
    if type(value) is str:
        return {"true": True, "false": False}.get(value.lower(), UNDEFINED)
    return is_true(value)


def _make_rounding(rounding: Callable[[float], Operand]) -> Function:
    def apply(value: Operand) -> Operand:
        number = _convert_to_number(value)
        if number is None:
            return ERROR
        if type(number) is int:
            return number
        return truncated(rounding(number)) if math.isfinite(number) else truncated(number)

    return apply


def _raise_integer(base: Operand, exponent: Operand) -> Operand:
    left, right = _convert_to_number(base), _convert_to_number(exponent)
    if left is None or right is None:
        return ERROR
    result = _raise_to_power(float(left), float(right))
    both = type(base) is int and type(exponent) is int
    return truncated(result + 0.5) if both and right >= 0 else result


def _raise_to_power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:  # a negative number to a fraction, or 0 to a negative number
        return math.inf if base == 0 else math.nan


def _quantize(value: Operand, step: Operand) -> Operand:
    number = _convert_to_number(value)
    if number is None:
        return ERROR
    if type(step) is tuple:
        if not step:
            return value
        for item in step:
            least = _convert_to_number(item)
            if least is None:
                return ERROR
            if least >= number:
                return item
        step = step[-1]
    base = _convert_to_number(step)
    if base is None:
        return ERROR
    if base == 0:
        return value
    if type(value) is int and type(step) is int:
        # whole numbers wrap at 64 bits, as in C
        return BINARY["*"](BINARY["/"](wrap(value + step - 1), step), step)
    parts = number / base
    return math.copysign(float(math.ceil(parts)), parts) * float(base)


def _make_number_function(combine: Callable[[list[Operand]], Operand]) -> Function:
    """Return a function of a list of numbers, of which undefined ones are left out."""

    def apply(items: Operand) -> Operand:
        if type(items) is not tuple:
            return ERROR
        numbers = [item for item in items if item is not UNDEFINED]
        if any(type(item) not in (int, float, bool) for item in numbers):
            return ERROR
        return combine(numbers)

    return _pass_nothing(apply)


def _sum(numbers: list[Operand]) -> Operand:
    if not numbers:
        return 0
    result = numbers[0]
    for number in numbers[1:]:
        result = BINARY["+"](result, number)
    return result


def _compute_average(numbers: list[Operand]) -> Operand:
    return float(_sum(numbers)) / len(numbers) if numbers else 0


def _make_extreme(choose: Callable[[list[Operand]], Operand]) -> Callable[[list[Operand]], Operand]:
    def combine(numbers: list[Operand]) -> Operand:
        if len(numbers) < 2:
            return numbers[0] if numbers else UNDEFINED
        is_real = any(type(number) is float for number in numbers)
        return float(choose(numbers)) if is_real else int(choose(numbers))

    return combine


def _make_membership(is_same: Function) -> Function:
    def apply(value: Operand, items: Operand) -> Operand:
        if type(items) is not tuple:
            return UNDEFINED if items is UNDEFINED else ERROR
        if type(value) is tuple:
            return ERROR
        return any(is_same(item, value) is True for item in items)

    return apply


def _member(value: Operand, items: Operand) -> Operand:
    if value is UNDEFINED or items is UNDEFINED:
        return UNDEFINED
    return ERROR if value is ERROR else _make_membership(BINARY["=="])(value, items)


def _make_comparison(decides: bool) -> Function:
    """Return anyCompare (one that is true decides) or allCompare (one that is not)."""

    def apply(sign: Operand, items: Operand, target: Operand) -> Operand:
        if sign is UNDEFINED:
            return UNDEFINED
        if sign not in _COMPARED:
            return ERROR
        if type(items) is not tuple:
            return UNDEFINED if items is UNDEFINED else ERROR
        for item in items:
            result = BINARY[sign](item, target)
            if result is ERROR:
                return ERROR
            if (result is True) is decides:
                return decides
        return not decides

    return apply


def _strcat(*values: Operand) -> Operand:
    for value in values:
        if value is UNDEFINED or value is ERROR:
            return value
    return "".join(map(_convert_to_text, values))


def _substr(text: Operand, first: Operand, count: Operand = None) -> Operand:
    arguments = (text, first) if count is None else (text, first, count)
    if UNDEFINED in arguments:
        return UNDEFINED
    if type(text) is not str or any(type(number) is not int for number in arguments[1:]):
        return ERROR
    whole = text.encode()
    size = len(whole)
    first = as_int(first)
    begin = max(0, size + first) if first < 0 else min(first, size)
    length = size if count is None else as_int(count)
    end = size + length if length < 0 else begin + length
    try:
        return whole[begin : max(begin, min(end, size))].decode()
    # cut within a character of several bytes
    except UnicodeDecodeError:
        return ERROR


def _make_text_function(compare: Callable[[str, str], Operand]) -> Function:
    def apply(left: Operand, right: Operand) -> Operand:
        if left is UNDEFINED or right is UNDEFINED:
            return UNDEFINED
        if left is ERROR or right is ERROR:
            return ERROR
        return compare(_convert_to_text(left), _convert_to_text(right))

    return apply


def _order(left: bytes, right: bytes) -> int:
    return (left > right) - (left < right)


_SHAPES = "x10"  # another character, a digit, a zero
_STATES = {  # of a common beginning, by its last character: how the next one continues it
    "N": {"x": "N", "1": "I", "0": "Z"},
    "I": {"x": "N", "1": "I", "0": "I"},
    "F": {"x": "N", "1": "F", "0": "F"},
    "Z": {"x": "N", "1": "F", "0": "Z"},
}


def _check_shape(character: int) -> str:
    return "0" if character == 48 else "1" if 49 <= character <= 57 else "x"


def version_order(left: str, right: str) -> int:
    """Compare texts with numbers in them as the C library's strverscmp does: numbers by their
    value, those with leading zeros as fractions. Return the difference of the characters at the
    first place that differs, or that of the lengths where these decide."""
    a, b = left.encode() + b"\0", right.encode() + b"\0"
    state, at = "N", 0
    while a[at] == b[at]:
        if a[at] == 0:
            return 0
        state = _STATES[state][_check_shape(a[at])]
        at += 1
    kinds, difference = _check_shape(a[at]) + _check_shape(b[at]), a[at] - b[at]
    begins = state == "N" and "x" not in kinds
    if state == "Z" or (begins and "0" in kinds):
        zeros = _count_zeros(b, at) - _count_zeros(a, at)
        if zeros or state == "Z":
            return zeros or difference
    if state == "I" or begins:
        return _count_digits(a, at) - _count_digits(b, at) or difference
    return difference


def _count_digits(text: bytes, at: int) -> int:
    """Return how many digits follow."""
    count = 0
    while 48 <= text[at + count] <= 57:
        count += 1
    return count


def _count_zeros(text: bytes, at: int) -> int:
    """Return how many zeros follow, with the digit after them."""
    count = 0
    while text[at + count] == 48:
        count += 1
    return count + (48 <= text[at + count] <= 57)


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str, options: str) -> re.Pattern[bytes] | None:
    """Compile a pattern, as it works on bytes; None where it is none."""
    # expressions of Python have no POSIX classes
    for name, members in _CLASSES.items():
        pattern = pattern.replace(name, members)
    flags = re.NOFLAG
    for letter, flag in (("i", re.I), ("m", re.M), ("s", re.S), ("x", re.X)):
        if letter in options:
            flags |= flag
    try:
        return re.compile(pattern.encode(), flags)
    except re.error:
        return None


def _regexp(pattern: Operand, text: Operand, options: Operand = "") -> Operand:
    if (nothing := unknown(pattern, text, options)) is not None:
        return nothing
    if type(pattern) is not str or type(text) is not str or type(options) is not str:
        return ERROR
    compiled = _compile_pattern(pattern, options)
    return ERROR if compiled is None else compiled.search(text.encode()) is not None


def _regexp_member(pattern: Operand, items: Operand, options: Operand = "") -> Operand:
    if (nothing := unknown(pattern, items, options)) is not None:
        return nothing
    if type(pattern) is not str or type(items) is not tuple or type(options) is not str:
        return ERROR
    compiled, missing = _compile_pattern(pattern, options), False
    for item in items:
        if item is UNDEFINED:
            missing = True
        elif type(item) is not str:
            return ERROR
        elif compiled is not None and compiled.search(item.encode()):
            return True
    return UNDEFINED if missing else False


def _fold_ascii(change: Callable[[bytes], bytes]) -> Function:
    return _pass_nothing(lambda value: change(_convert_to_text(value).encode()).decode())


FUNCTIONS_OF: Mapping[str, tuple[int, int, Function]] = {
    "regexp": (2, 3, _regexp),
    "regexpmember": (2, 3, _regexp_member),
    "member": (2, 2, _member),
    "identicalmember": (2, 2, _make_membership(identical)),
    "anycompare": (3, 3, _make_comparison(True)),
    "allcompare": (3, 3, _make_comparison(False)),
    "sum": (1, 1, _make_number_function(_sum)),
    "avg": (1, 1, _make_number_function(_compute_average)),
    "min": (1, 1, _make_number_function(_make_extreme(min))),
    "max": (1, 1, _make_number_function(_make_extreme(max))),
    "size": (1, 1, _pass_nothing(_size)),
    "isundefined": (1, 1, lambda value: value is UNDEFINED),
    "iserror": (1, 1, lambda value: value is ERROR),
    "isstring": (1, 1, _is(str)),
    "isinteger": (1, 1, _is(int)),
    "isreal": (1, 1, _is(float)),
    "isboolean": (1, 1, _is(bool)),
    "islist": (1, 1, _is(tuple)),
    "int": (1, 1, _pass_nothing(_convert_to_int)),
    "real": (1, 1, _pass_nothing(_convert_to_real)),
    "string": (1, 1, _pass_nothing(_convert_to_text)),
    "bool": (1, 1, _pass_nothing(_convert_to_bool)),
    "floor": (1, 1, _make_rounding(math.floor)),
    "ceiling": (1, 1, _make_rounding(math.ceil)),
    "round": (1, 1, _make_rounding(round)),
    "pow": (2, 2, _raise_integer),
    "quantize": (2, 2, _quantize),
    "strcat": (1, 20, _strcat),
    "substr": (2, 3, _substr),
    "strcmp": (2, 2, _make_text_function(lambda a, b: _order(a.encode(), b.encode()))),
    "stricmp": (2, 2, _make_text_function(lambda a, b: _order(fold(a), fold(b)))),
    "toupper": (1, 1, _fold_ascii(bytes.upper)),
    "tolower": (1, 1, _fold_ascii(bytes.lower)),
    "versioncmp": (2, 2, _make_text_function(version_order)),
    "versiongt": (2, 2, _make_text_function(lambda a, b: version_order(a, b) > 0)),
    "versionge": (2, 2, _make_text_function(lambda a, b: version_order(a, b) >= 0)),
    "versionlt": (2, 2, _make_text_function(lambda a, b: version_order(a, b) < 0)),
    "versionle": (2, 2, _make_text_function(lambda a, b: version_order(a, b) <= 0)),
    "versioneq": (2, 2, _make_text_function(lambda a, b: version_order(a, b) == 0)),
}
"""Functions by their names in lower case, with the number of their arguments."""

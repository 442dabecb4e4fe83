"""Messages that are almost right: recorded ones, changed at random; and values of no sensible
kind."""

from __future__ import annotations

import json
import os
import random
from copy import deepcopy

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("VGRADS_FUZZ", "1000"))
"""Examples of each kind of message, by each of the two ways."""
_RAW = {
    "@1e400": "1e400",
    "@-1e400": "-1e400",
    "@long": "9" * 5000,
    "@middle": "[" * 400 + "]" * 400,
    "@deep": "[" * 3000 + "]" * 3000,
}
JUNK = [
    *(None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, 2**70, -(2**70), 10**300),
    *(0.5, -0.0, 5e-324, 1e308, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "x",
        "0",
        "-1",
        "nan",
        "1e9",
        "\0",
        "a\0b",
        "\ud800",
        "\udcff",
        "é\u202e",
        "../x",
        "/etc/x",
    ),
    *("x" * 2000, "{x}", "%s", "'", '"', "\n", "@1e400", "@-1e400", "@long", "@middle", "@deep"),
    *([], {}, [[]], [None], [1, 2, 3], [0, 0, 1], {"": None}, {"a": 1}, [[0, 0, 1]] * 3),
]
quick = settings(
    max_examples=max(1, EXAMPLES // 6),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
"""For tests by Hypothesis: fewer, since each takes longer."""

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=[]), max_size=20)
    | st.sampled_from(JUNK).map(deepcopy),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["seq", "hello", "a"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
"""JSON values of any type and range."""


def text_of(value: object) -> str:
    """JSON, with numbers and depths that Python would not write."""
    text = json.dumps(value)
    for name, raw in _RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text


def like(good: dict[str, object]) -> st.SearchStrategy[str]:
    """Texts of documents that have the fields of a good one, some with other values."""
    fields = {name: st.just(value) | values for name, value in good.items()}
    return st.fixed_dictionaries({}, optional=fields).map(text_of)


def mutated(draw: random.Random, good: object) -> str:
    """A changed copy of a valid message, as text."""
    message = deepcopy(good)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        _change(draw, message)
    text = text_of(message)
    if draw.random() < 0.05 and isinstance(message, dict) and message:  # a key twice
        name = draw.choice(list(message))
        text = f"{text[:-1]}, {json.dumps(name)}: {text_of(draw.choice(JUNK))}}}"
    if draw.random() < 0.03:
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(("", "}", "]", ",", '"', "\\", "\x00", "1")) + text[at + 1 :]
    return text


def _change(draw: random.Random, value: object) -> None:
    """Change something in a message: further down, the deeper it is."""
    if isinstance(value, dict) and value:
        name = draw.choice(list(value))
        if isinstance(value[name], dict | list) and value[name] and draw.random() < 0.6:
            _change(draw, value[name])
        elif draw.random() < 0.15:
            del value[name]
        elif draw.random() < 0.1:
            value[draw.choice(("x", "", "seq", "\0", "\ud800", "x" * 1001))] = value[name]
        else:
            value[name] = _other(draw, value[name])
    elif isinstance(value, list) and value:
        at = draw.randrange(len(value))
        if isinstance(value[at], dict | list) and value[at] and draw.random() < 0.6:
            _change(draw, value[at])
        elif draw.random() < 0.15:
            del value[at]
        elif draw.random() < 0.15:
            value.append(deepcopy(value[at]))
        else:
            value[at] = _other(draw, value[at])


def _other(draw: random.Random, value: object) -> object:
    """Another value, at times one of the same type."""
    if isinstance(value, int | float) and draw.random() < 0.4:
        return draw.choice((value + 1, -value, value * 1000, str(value), [value], float(value)))
    return deepcopy(draw.choice(JUNK))

"""Results of checks, and the limits under which their facts are gathered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

State = Literal["ok", "doubtful", "wrong", "unknown"]
_Fact = TypeVar("_Fact")
_LONGEST = 300  # characters of an error's text


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``fix``: what to do; empty where nothing needs to be done."""

    name: str
    state: State
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A fact that could not be gathered, and why."""

    reason: str


def gather(act: Callable[[], _Fact], limit_s: float) -> _Fact | Unavailable:
    """Return the result of an act; Unavailable where it fails or takes too long. It never raises.

    The act runs in a thread of its own, since not every call of the system has a timeout (names of
    hosts, files on a dead server); a late one is abandoned.
    """
    results: list[_Fact | Unavailable] = []

    def run() -> None:
        try:
            results.append(act())
        except Exception as error:  # whatever the installation suffers from is a result
            results.append(Unavailable(describe(error)))

    thread = threading.Thread(target=run, daemon=True, name="gather")
    thread.start()
    thread.join(limit_s)
    return results[0] if results else Unavailable(f"no result within {limit_s:g} s")


def describe(error: BaseException) -> str:
    """Return an error as one line."""
    cause = getattr(error, "reason", None)  # urllib wraps the error of the connection
    if isinstance(cause, Exception):
        return describe(cause)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    else:
        text = " ".join(str(error).split())
    return (text or type(error).__name__)[:_LONGEST]


def count(checks: Sequence[Check], state: State) -> int:
    """Return the number of checks with a state."""
    return sum(check.state == state for check in checks)


def as_document(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the JSON document of the checks."""
    return {
        "checks": [asdict(check) for check in checks],
        "wrong": count(checks, "wrong"),
        "doubtful": count(checks, "doubtful"),
    }

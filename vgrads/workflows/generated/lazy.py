"""Workflows whose tasks are not written down: a rule says which become ready when one has ended.

A million cells of a Wavefront are a rule and three bytes each (:mod:`vgrads.dispatch.core.tasks`),
no dictionary of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from vgrads.kernel.errors import InputError
from vgrads.workflows.generated.allpairs import AllPairs
from vgrads.workflows.generated.wavefront import Wavefront


class Lazy(Protocol):
    """Tasks from 0 to ``size - 1`` and the rule between them: frozen, and the same answer to the
    same question."""

    @property
    def size(self) -> int:
        """How many tasks there are."""

    def first(self) -> Iterable[int]:
        """What is ready at the beginning."""

    def after(self, task: int, done: Callable[[int], bool], /) -> Iterable[int]:
        """What became ready because ``task`` succeeded; ``done``: whether a task has, this one
        included.

        A task is told of when the last one that it needs ends; where several end together, perhaps
        more than once.
        """

    def needs(self, task: int, /) -> Iterable[int]:
        """What must have succeeded before a task is ready, as far as it follows from nothing
        else."""

    def as_json(self) -> Mapping[str, Any]:
        """Itself as plain values, for :func:`lazy_of`."""


_KINDS: Mapping[str, Callable[..., Lazy]] = {"wavefront": Wavefront, "allpairs": AllPairs}


def lazy_of(described: Mapping[str, Any]) -> Lazy:
    """The workflow that ``as_json`` described; InputError for what describes none."""
    fields = dict(described)
    try:
        return _KINDS[fields.pop("kind")](**fields)
    except (KeyError, TypeError) as error:
        raise InputError(f"describes no lazy workflow: {error!r}", where="order") from error

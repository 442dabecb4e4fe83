"""Workflows whose tasks are not listed: a rule determines the tasks that become ready when a task
has ended.

A million cells of a Wavefront are a rule and three bytes each (:mod:`vgrads.dispatch.core.tasks`),
not a dictionary of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError, brief
from vgrads.workflows.generated.allpairs import AllPairs
from vgrads.workflows.generated.wavefront import Wavefront


class Lazy(Protocol):
    """Tasks from 0 to ``size - 1`` and the rule between them: frozen and deterministic."""

    @property
    def size(self) -> int:
        """Number of tasks."""

    def first(self) -> Iterable[int]:
        """Return the tasks that are ready at the beginning."""

    def after(self, task: int, done: Callable[[int], bool], /) -> Iterable[int]:
        """Return the tasks that became ready because ``task`` succeeded; ``done``: whether a task
        has, including this one.

        A task is returned when the last one that it needs ends; possibly more than once if several
        end together.
        """

    def needs(self, task: int, /) -> Iterable[int]:
        """Return the direct dependencies of a task, without those that follow from others."""

    def levels(self, left: NDArray[np.bool_], /) -> tuple[int, ...] | None:
        """Return how many of the tasks that are left can run at the same time, one level of them
        after the other; None where all can at once.

        ``left``: for each task whether it is; a task that needs one that is left is left
        too.
        """

    def as_json(self) -> Mapping[str, Any]:
        """Return the workflow as plain values, for :func:`lazy_of`."""


_KINDS: Mapping[str, Callable[..., Lazy]] = {"wavefront": Wavefront, "allpairs": AllPairs}


def lazy_of(described: Mapping[str, Any]) -> Lazy:
    """Return the workflow that ``as_json`` described; InputError for an invalid description."""
    fields = dict(described)
    try:
        return _KINDS[fields.pop("kind")](**fields)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"does not describe a lazy workflow: {brief(error)}", where="order"
        ) from error

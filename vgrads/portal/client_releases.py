"""The part of the client that releases the tasks of a run one by one. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from vgrads.kernel.errors import InputError

Json = dict[str, Any]
_TOGETHER = 500
_NOBODY: Sequence[Mapping[str, Any]] = ()


class _Calls(Protocol):
    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json: ...

    def _follow(self, path: str, after: str, patience_s: float) -> Iterator[Json]: ...


class ReleaseCalls:
    """Calls about runs of sets that are ``released``."""

    def release(
        self: _Calls,
        run_id: str,
        release: Sequence[Mapping[str, Any]] = _NOBODY,
        *,
        add: Sequence[Mapping[str, Any]] = _NOBODY,
        give_up: Sequence[Mapping[str, Any]] = _NOBODY,
    ) -> int:
        """Tell a run what is added, what may begin (``workflow``, ``task``, ``command``,
        ``memory_mib``), what is given up.

        Nothing at all is a sign of life, which a run wants to hear within ten minutes. InputError
        where the run is over. Answers to this have a ``release`` above the number that is returned.
        """
        path = f"/v1/runs/{run_id}/releases"
        left = {"add": list(add), "release": list(release), "give_up": list(give_up)}
        after = None
        while True:
            body, room = {}, _TOGETHER
            for name, rows in left.items():
                body[name], left[name] = rows[:room], rows[room:]
                room -= len(body[name])
            told = self._ask("POST", path, body)
            after = told["after"] if after is None else after
            if not any(left.values()):
                return int(after)

    def gather(
        self: _Calls,
        name: str,
        document: Mapping[str, Any],
        told: Callable[[Json], object],
        pause_s: float = 1.0,
    ) -> Json:
        """Bring a workflow to a set that several callers put together, and wait for the others;
        ``told`` is called whenever somebody has come. What the service says when it has begun, or
        failed."""
        came, answer = 0, self._ask("POST", f"/v1/gatherings/{name}", document)
        while answer["state"] == "waiting":
            if answer["came"] != came:
                came = answer["came"]
                told(answer)
            time.sleep(pause_s)
            try:
                answer = self._ask("GET", f"/v1/gatherings/{name}/{document['ticket']}")
            except InputError:  # the service was started anew
                answer = self._ask("POST", f"/v1/gatherings/{name}", document)
        return answer

    def answers(
        self: _Calls, run_id: str, after: str = "", patience_s: float = float("inf")
    ) -> Iterator[Json]:
        """How the tasks of a run stand, as it changes, until the run is over (``event``: end). A
        broken connection is taken up again; SiteError where that does not succeed for
        ``patience_s``."""
        return self._follow(f"/v1/runs/{run_id}/answers", after, patience_s)

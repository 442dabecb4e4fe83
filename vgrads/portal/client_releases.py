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
        """Send a run the tasks to add, to release (``workflow``, ``task``, ``command``,
        ``memory_mib``) and to give up.

        An empty request is a heartbeat, which a run needs every ten minutes. Raises InputError
        where the run is terminal. Updates that reflect this request have a ``release`` above the
        returned number.
        """
        path = f"/v1/runs/{run_id}/releases"
        left = {"add": list(add), "release": list(release), "give_up": list(give_up)}
        after = None
        while True:
            body, room = {}, _TOGETHER
            for name, rows in left.items():
                body[name], left[name] = rows[:room], rows[room:]
                room -= len(body[name])
            payload = self._ask("POST", path, body)
            after = payload["after"] if after is None else after
            if not any(left.values()):
                return int(after)

    def gather(
        self: _Calls,
        name: str,
        document: Mapping[str, Any],
        callback: Callable[[Json], object],
        pause_s: float = 1.0,
    ) -> Json:
        """Add a workflow to a joint submission of several callers, and wait for the others;
        ``callback`` is called at each arrival. Return the service's answer when the set has
        started, or failed."""
        came, answer = 0, self._ask("POST", f"/v1/joint-submissions/{name}", document)
        while answer["state"] == "waiting":
            if answer["came"] != came:
                came = answer["came"]
                callback(answer)
            time.sleep(pause_s)
            try:
                answer = self._ask("GET", f"/v1/joint-submissions/{name}/{document['ticket']}")
            except InputError:  # the service was restarted
                answer = self._ask("POST", f"/v1/joint-submissions/{name}", document)
        return answer

    def answers(
        self: _Calls, run_id: str, after: str = "", patience_s: float = float("inf")
    ) -> Iterator[Json]:
        """Yield state changes of the tasks of a run until it is terminal (``event``: end). A broken
        connection is restored; SiteError where that fails for ``patience_s``."""
        return self._follow(f"/v1/runs/{run_id}/answers", after, patience_s)

"""A client of the service, for portals and outside workflow engines. Standard library only.

    client = Client("http://127.0.0.1:8080")
    run = client.run(client.submit(document))
    print(client.wait(run))

An outside engine runs the tasks itself::

    permit = client.permit(run, "lead-1", "wrf")      # waits for its start permit
    ...                                               # run it in permit["slot"] at permit["site"]
    client.end(run, "lead-1", "wrf", replica=permit["copy"], ok=True)
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vgrads.agent.tcp import connect_tcp
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.client_bags import BagCalls
from vgrads.portal.client_generated import OptionCalls
from vgrads.portal.client_names import RunHandle

Json = dict[str, Any]
_TOGETHER = 500
_NOBODY: Sequence[Mapping[str, Any]] = ()


_LONG_POLL_S = 20.0
_PLANNING_S = 0.5
"""Time between two questions whether a set is planned."""
_NOTHING: Mapping[str, str] = {}


class _AnsweredEarly(http.client.HTTPConnection):
    """A connection to another process, whose answer is read also where the service gives it, and
    closes, before it has received the whole body: one that is too large."""

    def connect(self) -> None:
        self._create_connection = connect_tcp
        super().connect()

    def endheaders(self, message_body: object = None, *, encode_chunked: bool = False) -> None:
        try:
            super().endheaders(message_body, encode_chunked=encode_chunked)  # type: ignore[arg-type]
        except (BrokenPipeError, ConnectionResetError):
            if self.sock is None:
                raise


class _SecureAnsweredEarly(_AnsweredEarly, http.client.HTTPSConnection):
    pass


class _PlainHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_AnsweredEarly, req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureAnsweredEarly, req)


_open_url = urllib.request.build_opener(_PlainHandler, _SecureHandler).open


class Client(OptionCalls, BagCalls):
    """A connection to one service; the calls for bags, and those that are generated, are in modules
    of their own. Errors are InputError (the request is wrong)
    and SiteError (no answer)."""

    def __init__(self, url: str, timeout_s: float = 60.0, token: str = "") -> None:
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no connection is held between calls."""

    def read(self, set_id: str) -> dict[str, Any]:
        """Return a set as submitted, its state, its runs."""
        return self._ask("GET", f"/v1/workflow-sets/{set_id}")

    def list_sets(self) -> list[dict[str, Any]]:
        """Return the newest sets, with their runs."""
        rows: Any = self._ask("GET", "/v1/workflow-sets")
        return list(rows)

    def newest_run(self, set_id: str) -> RunHandle | None:
        """Return the latest run of a set; None where there is none."""
        runs = self.read(set_id)["runs"]
        return RunHandle(set_id, str(runs[0]["id"])) if runs else None

    def promise(self, set_id: str) -> dict[str, Any]:
        """Return the probability of the promise over the newest run."""
        return self._ask("GET", f"/v1/workflow-sets/{set_id}/promise")

    def plan(self, set_id: str) -> dict[str, Any]:
        """Return the plan of a set."""
        return self._ask("GET", f"/v1/workflow-sets/{set_id}/plan")

    def gantt(self, set_id: str) -> dict[str, Any]:
        """Return slots and placements of a set, planned and, in a run, actual."""
        return self._ask("GET", f"/v1/workflow-sets/{set_id}/gantt")

    def what_if(self, set_id: str, **wishes: object) -> dict[str, Any]:
        """Return the promise with another ``deadline``, ``fraction``, ``probability`` or
        ``budget_usd``."""
        return self._ask("POST", f"/v1/workflow-sets/{set_id}/what-if", wishes)

    def change(
        self, set_id: str, *, preview: bool = False, etag: str = "*", **changes: object
    ) -> dict[str, Any]:
        """Change what the running set has to keep: ``deadline`` (a time from now, or an instant),
        ``at_least``, ``budget_usd``, ``probability``, ``drop_sites``, ``add_sites``. Return the
        request before and after, with its promise; ``preview``: change nothing. ``etag``: of the
        request that is to be changed; InputError where it has changed since."""
        path = f"/v1/workflow-sets/{set_id}/request{'?preview=true' if preview else ''}"
        return self._ask("PATCH", path, changes, {"If-Match": etag})

    def cancel(self, set_id: str) -> None:
        """Cancel the run of a set."""
        self._ask("DELETE", f"/v1/workflow-sets/{set_id}")

    def archive(self, name: str, *, archived: bool = True) -> None:
        """Leave a set or bag that has ended out of lists of work, by its id or name; with
        ``archived=False`` list it again."""
        self._ask("PUT" if archived else "DELETE", f"/v1/work/{_quote_name(name)}/archived")

    def delete_records(self, set_id: str) -> None:
        """Delete a set whose runs have ended; the folders of its results stay."""
        self._ask("DELETE", f"/v1/workflow-sets/{set_id}/records")

    def events(self, run: RunHandle, after: str = "") -> Iterator[dict[str, Any]]:
        """Yield events in real time until the run is terminal. A broken connection is restored.

        Each event has its ``id``; ``after`` continues after one.
        """
        return self._follow(f"/v1/workflow-sets/{run.set_id}/events", after)

    def wait(self, run: RunHandle) -> str:
        """Return the final state of a run."""
        return str([event for event in self.events(run) if event["event"] == "end"][-1]["state"])

    def permit(self, run: RunHandle, workflow: str, task: str) -> dict[str, Any]:
        """Wait for the permit to start a task: ``copy`` (its replica), ``site``, ``slot``,
        ``procs``."""
        path = (
            f"/v1/runs/{run.run_id}/permits/{_quote_name(workflow)}/{_quote_name(task)}"
            f"?wait_s={_LONG_POLL_S}"
        )
        while not (permits := self._ask("POST", path)["permits"]):
            pass
        return dict(permits[0])

    def end(
        self,
        run: RunHandle,
        workflow: str,
        task: str,
        *,
        replica: int = 0,
        ok: bool,
        reason: str = "",
    ) -> bool:
        """Report the end of a replica; False if it was not needed any more."""
        body = {"workflow": workflow, "task": task, "copy": replica, "ok": ok, "reason": reason}
        return bool(self._ask("POST", f"/v1/runs/{run.run_id}/completions", body)["counted"])

    def forecasts(
        self, questions: Sequence[Mapping[str, Any]], **how: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Return the answers to many questions, in their order; ``how``: ``quantiles``,
        ``within_s``."""
        document = {"questions": [dict(question) for question in questions], **how}
        return list(self._ask("POST", "/v1/forecasts", document)["forecasts"])

    def managers(self) -> list[dict[str, Any]]:
        """Return the managers that lease nodes of pools."""
        rows: Any = self._ask("GET", "/v1/managers")
        return list(rows)

    def pools(self) -> list[dict[str, Any]]:
        """Return the pools, their decisions, and the reasons."""
        rows: Any = self._ask("GET", "/v1/pools")
        return list(rows)

    def publish(self, kind: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Publish the state of a ``manager`` or a ``pool``; returns, for a manager, the pools'
        decisions."""
        return dict(self._ask("PUT", f"/v1/{kind}s/{_quote_name(name)}", dict(entry)))

    def withdraw(self, kind: str, name: str) -> None:
        """Remove an entry."""
        self._ask("DELETE", f"/v1/{kind}s/{_quote_name(name)}")

    def release(
        self,
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
        self,
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
        self, run_id: str, after: str = "", patience_s: float = float("inf")
    ) -> Iterator[Json]:
        """Yield state changes of the tasks of a run until it is terminal (``event``: end). A broken
        connection is restored; SiteError where that fails for ``patience_s``."""
        return self._follow(f"/v1/runs/{run_id}/answers", after, patience_s)

    def _follow(
        self, path: str, after: str, patience_s: float = float("inf")
    ) -> Iterator[dict[str, Any]]:
        last_s = time.monotonic()
        while True:
            try:
                for event in self._events(path, after):
                    yield event
                    if event["event"] == "end":
                        return
                    after, last_s = event["id"], time.monotonic()
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() - last_s > patience_s:
                    raise _make_unreachable_error(self._url, error) from None
                time.sleep(1.0)

    def _events(self, path: str, after: str) -> Iterator[dict[str, Any]]:
        headers = self._headers | ({"Last-Event-ID": after} if after else {})
        request = urllib.request.Request(self._url + path, headers=headers)
        with _open_url(request, timeout=self._timeout_s) as answer:
            fields: dict[str, str] = {}
            for raw in answer:
                line = raw.decode().rstrip("\r\n")
                if line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif not line and "data" in fields:
                    yield {
                        **json.loads(fields["data"]),
                        "id": fields.get("id", ""),
                        "event": fields.get("event", ""),
                    }
                    fields = {}

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | str | Iterable[bytes] | None = None,
        more: Mapping[str, str] = _NOTHING,
    ) -> dict[str, Any]:
        """Send a request. ``body``: a document, or lines of JSON: as a text, or streamed."""
        data: bytes | Iterable[bytes] | None
        kind = "application/x-ndjson"
        if body is None or isinstance(body, Mapping):
            kind, data = "application/json", None if body is None else json.dumps(body).encode()
        else:
            data = body.encode() if isinstance(body, str) else body
        headers = {"Content-Type": kind, **self._headers, **more}
        request = urllib.request.Request(
            self._url + path, data=data, method=method, headers=headers
        )
        try:
            with _open_url(request, timeout=self._timeout_s) as answer:
                result: dict[str, Any] = json.loads(answer.read() or b"{}")
                return result
        except urllib.error.HTTPError as error:
            detail = json.loads(error.read() or b"{}").get("detail", error.reason)
            if error.code >= 500:
                raise SiteError(str(detail), site=self._url, transient=True) from None
            raise InputError(str(detail), where=f"{method} {path}") from None
        except (OSError, http.client.HTTPException) as error:  # its origin: 40 lines of urllib
            raise _make_unreachable_error(self._url, error) from None

    def _send(
        self,
        method: str,
        path: str,
        options: Mapping[str, Any],
        *,
        document: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> dict[str, Any]:
        """Send a request with options as parameters of its query, those with several
        values once for each; None is the default of each."""
        chosen = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in options.items()
            if value is not None and value != ()
        }
        query = f"?{urllib.parse.urlencode(chosen, doseq=True)}" if chosen else ""
        return self._ask(method, path + query, document, _make_key_headers(key))

    def _await_plan(self, set_id: str) -> None:
        while self.read(set_id).get("state") == "planning":
            time.sleep(_PLANNING_S)

    def _open(self, path: str) -> Any:
        """Open an answer for streaming."""
        request = urllib.request.Request(self._url + path, headers=self._headers)
        return _open_url(request, timeout=self._timeout_s)


def _make_key_headers(key: str) -> Mapping[str, str]:
    return {"Idempotency-Key": key} if key else _NOTHING


def _quote_name(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _make_unreachable_error(url: str, error: Exception) -> SiteError:
    cause = getattr(error, "reason", error)
    return SiteError(
        f"no answer: {getattr(cause, 'strerror', None) or cause}",
        site=url,
        transient=True,
        fix="'vgrads serve' starts a service",
    )

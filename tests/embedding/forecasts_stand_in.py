"""``POST /v1/forecasts`` where a service has no such route yet: each question is answered by the
service's own bound, by a route of an application or a server in front of a service."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fastapi import FastAPI

from vgrads.portal.web.embedding.forecast_access import FORECASTS, refuse_missing_queue
from vgrads.portal.web.guard import Forecaster


def add_route(app: FastAPI) -> None:
    """Add the route, which answers for the queues of the caller, if the application has none."""
    if any(getattr(route, "path", "") == FORECASTS for route in app.routes):
        return

    @app.post(FORECASTS)
    def forecasts(body: dict[str, Any], who: Forecaster) -> dict[str, Any]:
        answers = []
        for question in body["questions"]:
            try:
                refuse_missing_queue(who, question["site"], question["queue"])
            except Exception as error:
                answers.append(question | {"error": str(getattr(error, "detail", error))})
            else:
                answers.append(question | {"bounds": []})
        return {"forecasts": answers}


@contextmanager
def in_front_of(service_url: str):
    """The address of a server with this route, whose bounds are those of a service."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            head = {"Authorization": self.headers.get("Authorization", "")}
            answers = [
                answer(service_url, head, question, body["quantiles"])
                for question in body["questions"]
            ]
            text = json.dumps({"forecasts": answers}).encode()
            self.send_response(200 if self.path == FORECASTS else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(
    url: str, head: dict[str, str], question: dict[str, Any], quantiles: list[float]
) -> dict[str, Any]:
    """The answer to a question: its bounds, or the error."""
    bounds = []
    for quantile in quantiles:
        values = {name: question[name] for name in ("procs", "walltime_s")}
        query = urllib.parse.urlencode(values | {"probability": quantile})
        path = f"/v1/sites/{question['site']}/queues/{question['queue']}/bound?{query}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url + path, headers=head)) as reply:
                bounds.append({"quantile": quantile, "bound_s": json.load(reply)["bound_s"]})
        except urllib.error.HTTPError as error:
            with error:
                return question | {"error": json.load(error)["detail"]}
    return question | {"bounds": bounds}

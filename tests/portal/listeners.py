"""Servers that take messages of alarms: mail, and HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiosmtpd.smtp import SMTP, AuthResult


class HttpListener:
    """An HTTP server. ``status``: of its answers, None: it never answers; ``location``: to which
    it redirects; ``on_request``: called with each request."""

    def __init__(self, host="127.0.0.1", status=204, location="", on_request=None):
        self.requests = []
        self.status, self.location, self.on_request = status, location, on_request
        self.released = threading.Event()
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                listener.requests.append((self.path, dict(self.headers), body))
                if listener.on_request:
                    listener.on_request()
                if listener.status is None:
                    listener.released.wait(60)
                    return
                self.send_response(listener.status)
                if listener.location:
                    self.send_header("Location", listener.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def documents(self):
        """The JSON of each request."""
        return [json.loads(body) for _, _, body in self.requests]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class MailListener:
    """An SMTP server. ``password``: which its users need, empty: none."""

    def __init__(self, password=""):
        self.messages, self._password, self.port = [], password, 0
        self._loop, self._started = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._serve)

    async def handle_DATA(self, server, session, envelope):
        """Take a message."""
        self.messages.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return "250 OK"

    def _check(self, server, session, envelope, mechanism, login):
        return AuthResult(success=login.password.decode() == self._password, handled=False)

    def _protocol(self):
        options = {}
        if self._password:
            options = {"authenticator": self._check, "auth_require_tls": False}
        return SMTP(self, hostname="localhost", loop=self._loop, **options)

    def _serve(self):
        server = self._loop.run_until_complete(
            self._loop.create_server(self._protocol, "127.0.0.1", 0)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@contextmanager
def no_server():
    """The port of a server that has ended: connections to it are refused."""
    with HttpListener() as listener:
        port = listener.port
    yield port

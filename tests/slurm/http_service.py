"""A small HTTP service on a Unix socket or a port, whose answers a test states."""

import http.server
import json
import socket
import socketserver
import threading
from contextlib import contextmanager


class AnsweringService:
    """What was requested so far, and what is answered: a list that is used up, or a function."""

    def __init__(self, answers):
        self.requests, self._answers = [], answers

    def answer(self, path, headers, body):
        self.requests.append((path, headers, json.loads(body)))
        if callable(self._answers):
            return self._answers(self.requests[-1][2])
        return self._answers.pop(0)


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    request_queue_size, daemon_threads = 64, True


class PortServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    request_queue_size, daemon_threads = 64, True


@contextmanager
def answering(address, answers):
    """The service while the block runs; an answer is JSON, (status, JSON), bytes to send as they
    are, or None to break the connection."""
    service = AnsweringService(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = service.answer(self.path, dict(self.headers), body)
            self.close_connection = True
            if answer is None:
                self.connection.shutdown(socket.SHUT_RDWR)
            elif isinstance(answer, bytes):
                self.wfile.write(answer)
            else:
                status, content = answer if isinstance(answer, tuple) else (200, answer)
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def address_string(self):
            return "client"

        def log_message(self, *words):
            pass

    server = (PortServer if isinstance(address, tuple) else UnixServer)(address, Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        service.address = server.server_address
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

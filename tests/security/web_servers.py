"""Web servers that are not vgrads, with and without TLS."""

import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class NotVgrads(BaseHTTPRequestHandler):
    """Answers everything, or redirects it to ``target``; counts the tokens that it gets."""

    tokens: list[str] = []  # noqa: RUF012 of a test
    target = ""

    def do_GET(self):
        if "Authorization" in self.headers:
            self.tokens.append(self.headers["Authorization"])
        self.send_response(307 if self.target else 200)
        self.send_header("Location", self.target)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        """Print nothing."""


@contextmanager
def web_server(context=None, target=""):
    """The port of such a server, with TLS where there is a context."""
    handler = type("Handler", (NotVgrads,), {"target": target})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # clients that reject the certificate
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certificate(folder, days):
    """A TLS context whose own certificate ends in so many days, and its file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=90))
        .not_valid_after(now + timedelta(days=days, hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    pem = serialization.Encoding.PEM
    file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + built.public_bytes(pem)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, file

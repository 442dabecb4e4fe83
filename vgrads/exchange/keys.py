"""Keys of agents, one for each slot: derived from the manager's secret, so that none is stored.
And the addresses by which agents reach their manager."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from vgrads.kernel.files import write_whole

_PORT = "port"  # in a manager's folder
_LONGEST_SOCKET = 100
"""Bytes of the path of a socket (unix(7): sun_path has 108)."""


def derive_key(secret: bytes, slot: str) -> str:
    """Return the bearer key of a slot's agents."""
    name = base64.urlsafe_b64encode(slot.encode()).decode().rstrip("=")
    return f"{name}.{_sign(secret, slot)}"


def find_slot_of_key(secret: bytes, key: str) -> str | None:
    """Return the slot of a key; None for a key not derived from this secret."""
    name, _, signed = key.partition(".")
    try:
        slot = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except ValueError:
        return None
    # in constant time, so that answers do not tell how much of a key is right
    return slot if hmac.compare_digest(signed.encode(), _sign(secret, slot).encode()) else None


def _sign(secret: bytes, slot: str) -> str:
    return hmac.new(secret, slot.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Keys:
    """The secret of a manager's folder, from which agents' keys are derived, and its certificate:
    made when it is needed first, since agents on this machine need none."""

    folder: Path
    secret: bytes

    @property
    def certificate(self) -> str:
        """The manager's certificate (PEM)."""
        return self._open_certificate()[0].read_text()

    def _open_certificate(self) -> tuple[Path, Path]:
        """Return the files of the certificate and its key."""
        certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        if not (certificate.exists() and key.exists()):
            from vgrads.exchange.certificate import make_certificate  # noqa: PLC0415 loads much

            for path, text in zip((certificate, key), make_certificate(), strict=True):
                write_whole(path, text.encode(), 0o600)
        return certificate, key

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings of the manager's port."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._open_certificate())
        return context

    def contact(self, host: str, port: int) -> dict[str, str]:
        """Return the variables by which agents elsewhere reach and know the manager."""
        return {"VGRADS_CONTACT": f"tls://{host}:{port}", "VGRADS_CERT": self.certificate}


def open_keys(folder: Path) -> Keys:
    """Return the keys of a manager's folder, created on first use."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = folder / "secret"
    if not secret.exists():
        write_whole(secret, secrets.token_bytes(32), 0o600)
    return Keys(folder, secret.read_bytes())


def find_socket(folder: Path) -> Path | None:
    """Return the socket in a folder, for programs on this machine; None where its path is too long
    for one. Only the folder's owner can reach it, so neither TLS nor a port is needed."""
    path = folder.absolute() / "socket"
    return path if len(os.fsencode(path)) <= _LONGEST_SOCKET else None


def name_socket(path: Path) -> dict[str, str]:
    """Return the variables by which agents on this machine reach the manager."""
    return {"VGRADS_CONTACT": f"unix://{quote(str(path))}"}


def read_port(folder: Path) -> int:
    """Return the number of a manager's port, which a later manager uses again; 0 before its first
    start."""
    path = folder / _PORT
    return int(path.read_text()) if path.exists() else 0


def store_port(folder: Path, number: int) -> None:
    """Store the number of a manager's port. OSError if that fails."""
    if number != read_port(folder):
        write_whole(folder / _PORT, str(number).encode())

"""Keys of agents, one for each slot: derived from the manager's secret, so that none is stored.
And the certificate by which agents know their manager."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vgrads.kernel.files import write_whole

_CERTIFICATE, _PORT = "cert.pem", "port"  # in a manager's folder
MANAGER_NAME = "vgrads-run"
"""The common name in every manager's certificate."""
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, MANAGER_NAME)])
_FROM, _UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Always, as far as X.509 can express it (RFC 5280, 4.1.2.5): the keys end with the run. If
validity began at creation, every machine whose calendar is behind the manager's would reject the
certificate."""


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


def make_keys() -> tuple[str, str]:
    """Return (certificate, key) in PEM. The certificate is its own authority: a process with the
    run's key belongs to the run."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


@dataclass(frozen=True)
class Keys:
    """A manager's certificate and key (PEM), and the secret from which agents' keys are
    derived."""

    certificate: str
    key: Path
    secret: bytes

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings of the manager's port."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.key.parent / _CERTIFICATE, self.key)
        return context

    def contact(self, host: str, port: int) -> dict[str, str]:
        """Return the variables by which agents reach and know the manager."""
        return {"VGRADS_CONTACT": f"tls://{host}:{port}", "VGRADS_CERT": self.certificate}


def open_keys(folder: Path) -> Keys:
    """Return the keys of a manager's folder, created on first use."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    certificate, key, secret = (folder / name for name in (_CERTIFICATE, "key.pem", "secret"))
    if not secret.exists():
        pem, private = make_keys()
        # the secret last: where it exists, the others are complete
        for path, body in (
            (certificate, pem.encode()),
            (key, private.encode()),
            (secret, secrets.token_bytes(32)),
        ):
            write_whole(path, body, 0o600)
    return Keys(certificate.read_text(), key, secret.read_bytes())


def read_port(folder: Path) -> int:
    """Return the number of a manager's port, which a later manager uses again; 0 before its first
    start."""
    path = folder / _PORT
    return int(path.read_text()) if path.exists() else 0


def store_port(folder: Path, number: int) -> None:
    """Store the number of a manager's port. OSError if that fails."""
    if number != read_port(folder):
        write_whole(folder / _PORT, str(number).encode())

"""The certificate by which agents know their manager."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

MANAGER_NAME = "vgrads-run"
"""The common name in every manager's certificate."""
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, MANAGER_NAME)])
_FROM, _UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Always, as far as X.509 can express it (RFC 5280, 4.1.2.5): the keys end with the run. If
validity began at creation, every machine whose calendar is behind the manager's would reject the
certificate."""


def make_certificate() -> tuple[str, str]:
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

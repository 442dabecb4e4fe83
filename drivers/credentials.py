"""Keys of EC2-compatible clouds: from the environment or the standard file; never stored, never
shown."""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass, field
from pathlib import Path

from vgrads.kernel.errors import SiteError

_NAMES = (
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    ("EC2_ACCESS_KEY", "EC2_SECRET_KEY"),  # exported by Eucalyptus' eucarc
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key; its repr shows only the identifier."""

    key: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


def find_credentials(site: str, profile: str = "default") -> Credentials:
    """Return the keys for a site; SiteError lists the places that were searched."""
    for key_name, secret_name in _NAMES:
        key, secret = os.environ.get(key_name), os.environ.get(secret_name)
        if key and secret:
            return Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN", ""))
    file = Path(
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials"
    )
    credentials = _read_credentials(file, profile)
    if credentials is None:
        raise SiteError(
            "no credentials",
            site=site,
            transient=False,
            fix=(
                f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write [{profile}] into {file}"
            ),
        )
    return credentials


def _read_credentials(file: Path, profile: str) -> Credentials | None:
    # a secret may contain a percent sign
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(file)
    except (configparser.Error, UnicodeDecodeError):
        return None
    if not parser.has_section(profile):
        return None
    section = parser[profile]
    key, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    return (
        Credentials(key, secret, section.get("aws_session_token", "")) if key and secret else None
    )

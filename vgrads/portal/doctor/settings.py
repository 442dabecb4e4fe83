"""The settings that the service and its commands would use, the sites that they name, and what is
installed for them."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgrads.api.config import chosen_home, embedded_data
from vgrads.kernel.errors import InputError
from vgrads.kernel.extras import MODULES, is_installed
from vgrads.kernel.files import read_text
from vgrads.portal.doctor.checks import Check, Unavailable
from vgrads.portal.doctor.database import stored_sites
from vgrads.portal.doctor.files import PRIVATE, WRITABLE, FileFacts, file_facts
from vgrads.portal.doctor.machine import UsedSite
from vgrads.portal.records.reader import database_in
from vgrads.vgrid.catalog import load_catalog

OLDEST_PYTHON = (3, 11)
_DRIVER_EXTRAS = {"dask": "dask"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFacts:
    """A settings file. ``values``: what it states; ``error``: why it cannot be read."""

    file: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def secret(self) -> bool:
        """Return True where the file contains a secret: of a login provider or a database."""
        oidc = self.values.get("oidc")
        # an empty part before the host is no password
        password = "@" in str(self.values.get("db", "")).replace("//@", "")
        return password or (isinstance(oidc, Mapping) and bool(oidc.get("client_secret")))

    @property
    def database(self) -> str:
        """Return the URL of the database: of the environment, the file, or the default."""
        default = database_in(chosen_home())
        return os.environ.get("VGRADS_DB") or str(self.values.get("db") or "") or default

    @property
    def sites(self) -> Path | None:
        """Return the sites file that the environment or the settings name."""
        if os.environ.get("VGRADS_SITES"):
            return Path(os.environ["VGRADS_SITES"])
        stated = self.values.get("sites")
        return self.file.resolve().parent / str(stated) if stated and self.file else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SitesFacts:
    """The sites in use. ``source``: a file, or a description of where they are stored;
    ``used``: those sites."""

    source: str
    used: tuple[UsedSite, ...]


def read_settings(file: Path | None) -> SettingsFacts:
    """Read a settings file; default: that of ``VGRADS_CONFIG``, if any."""
    chosen = file or (
        Path(os.environ["VGRADS_CONFIG"]) if os.environ.get("VGRADS_CONFIG") else None
    )
    if chosen is None:
        return SettingsFacts()
    try:
        return SettingsFacts(file=chosen, values=tomllib.loads(read_text(chosen)))
    except (InputError, OSError, ValueError) as error:
        text = error.what if isinstance(error, InputError) else str(error)
        return SettingsFacts(file=chosen, error=text)


def settings_file(settings: SettingsFacts) -> FileFacts | None:
    """Return the facts of the settings file; one without a secret may be read by others."""
    if settings.file is None:
        return None
    forbidden = PRIVATE if settings.secret else WRITABLE
    return file_facts(settings.file, "settings", forbidden, of_system=True)


def read_sites(settings: SettingsFacts) -> SitesFacts:
    """Read the sites in use: of a file, else of the database, else the embedded ones. InputError
    where they are not valid."""
    if settings.sites is None:
        stored = stored_sites(settings.database)
        if stored:
            return SitesFacts(source="the database", used=tuple(stored))
    file = settings.sites or embedded_data() / "sites.toml"
    catalog = load_catalog(file)
    source = str(file) if settings.sites else "the embedded ones"
    sites = (UsedSite(name=s.name, driver=s.driver, host=s.access.host) for s in catalog.sites)
    return SitesFacts(source=source, used=tuple(sites))


def required_extras(
    settings: SettingsFacts, sites: SitesFacts | Unavailable
) -> list[tuple[str, str]]:
    """Return (extra, what needs it) for the sites, the database and the login provider."""
    used = () if isinstance(sites, Unavailable) else sites.used
    required = [
        (_DRIVER_EXTRAS[site.driver], f"site '{site.name}' (driver '{site.driver}')")
        for site in used
        if site.driver in _DRIVER_EXTRAS
    ]
    if settings.database.startswith("postgresql"):
        required.append(("postgres", "the database"))
    if settings.values.get("oidc"):
        required.append(("oidc", "the login provider"))
    return required


def installed_extras() -> frozenset[str]:
    """Return the extras that are installed."""
    return frozenset(extra for extra in MODULES if is_installed(extra))


def judge_settings(settings: SettingsFacts) -> Check:
    """Judge whether the settings file can be read."""
    name = "settings"
    if settings.file is None:
        return Check(name, "ok", "no settings file: defaults, VGRADS_ variables and options")
    if settings.error:
        fix = f"see 'vgrads config check --config {settings.file}'"
        return Check(name, "wrong", f"{settings.file}: {settings.error}", fix)
    return Check(name, "ok", f"{settings.file} can be read")


def judge_sites(sites: SitesFacts | Unavailable) -> Check:
    """Judge whether the sites can be read."""
    name = "sites"
    if isinstance(sites, Unavailable):
        return Check(name, "wrong", sites.reason, "see 'vgrads sites check'")
    names = ", ".join(site.name for site in sites.used)
    return Check(name, "ok", f"{len(sites.used)} of {sites.source}: {names}")


def judge_extras(required: Iterable[tuple[str, str]], installed: frozenset[str]) -> Check:
    """Judge whether the extras in use are installed."""
    name = "extras"
    required = list(required)
    missing = [(extra, user) for extra, user in required if extra not in installed]
    if not missing:
        needed = ", ".join(dict.fromkeys(extra for extra, _ in required)) or "none"
        return Check(name, "ok", f"needed and installed: {needed}")
    text = "; ".join(f"{user} needs the extra '{extra}'" for extra, user in missing)
    extras = ",".join(dict.fromkeys(extra for extra, _ in missing))
    return Check(name, "wrong", f"{text}: not installed", f"pip install 'vgrads[{extras}]'")


def judge_python(version: tuple[int, int, int], vgrads: str) -> Check:
    """Judge the interpreter; report the version of vgrads."""
    text = f"Python {'.'.join(map(str, version))}, vgrads {vgrads}"
    if version[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Check("versions", "wrong", text, f"install Python {oldest} or newer")
    return Check("versions", "ok", text)


def python_version() -> tuple[int, int, int]:
    """Return the version of this interpreter."""
    return sys.version_info[0], sys.version_info[1], sys.version_info[2]

"""All checks of a home and of a service: facts first, then the judgement of each."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path

from vgrads.api.config import chosen_home
from vgrads.portal.doctor import database, files, machine, ports, settings
from vgrads.portal.doctor.checks import Check, Unavailable, gather
from vgrads.portal.doctor.files import FileFacts
from vgrads.portal.doctor.service_checks import judge_service
from vgrads.portal.doctor.service_facts import (
    ServiceAddress,
    gather_service,
    resolve,
)
from vgrads.portal.records.database import sqlite_file

_FILES_S, _DATABASE_S, _NAMES_S, _PORTS_S, _MACHINE_S = 20.0, 30.0, 10.0, 30.0, 15.0


def examine_home(config: Path | None) -> list[Check]:
    """Check this machine's home. ``config``: the settings file; default: that of
    ``VGRADS_CONFIG``."""
    folder, now_s = chosen_home(), time.time()
    values = settings.read_settings(config)
    url = values.database
    file = sqlite_file(url)
    place = gather(lambda: files.file_facts(folder, "the home"), _FILES_S)
    user = files.user_of(place)
    stored = gather(lambda: database.read_database(url), _DATABASE_S)
    backup = gather(lambda: database.newest_backup(file) if file else None, _DATABASE_S)
    sites = gather(lambda: settings.read_sites(values), _DATABASE_S)
    return [
        settings.judge_python(settings.python_version(), version("vgrads")),
        files.judge_home(folder, place, user),
        files.judge_files(
            gather(lambda: _check_private_files(folder, file, values), _FILES_S), user
        ),
        settings.judge_settings(values),
        *database.judge_database(stored),
        database.judge_backup(file, bool(file and file.exists()), backup, now_s),
        files.judge_space(gather(lambda: files.free_bytes(folder), _FILES_S)),
        settings.judge_sites(sites),
        settings.judge_extras(settings.required_extras(values, sites), settings.installed_extras()),
        *machine.judge_machine(
            gather(machine.read_machine, _MACHINE_S),
            () if isinstance(sites, Unavailable) else sites.used,
        ),
    ]


def _check_private_files(
    folder: Path, file: Path | None, values: settings.SettingsFacts
) -> tuple[FileFacts, ...]:
    backups = database.backups_of(file) if file else []
    of_settings = settings.settings_file(values)
    return (*files.private_files(folder, file, backups), *((of_settings,) if of_settings else ()))


def examine_service(address: ServiceAddress, token: str) -> tuple[list[Check], bool]:
    """Check a service; return the checks, and whether it was reached. ``token``: the caller's, or
    empty."""
    addresses = gather(lambda: resolve(address), _NAMES_S)
    facts = gather_service(address, addresses, token)
    sockets = None
    if not isinstance(addresses, Unavailable) and ports.is_local(addresses):
        sockets = gather(lambda: ports.read_ports(address.port, address.encrypted), _PORTS_S)
    checks = judge_service(facts, version("vgrads"), bool(token), time.time())
    return [*checks, ports.judge_ports(sockets)], not isinstance(facts.health, Unavailable)

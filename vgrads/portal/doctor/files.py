"""Files of the home: their permissions and owners, and the free space."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgrads.api.pools.document import MANAGER_FILE
from vgrads.portal.doctor.checks import Check, Unavailable

PRIVATE = 0o077
WRITABLE = 0o022
_ROOT = 0
_SHOWN = 3
_LITTLE_BYTES, _LEAST_BYTES = 2**30, 100 * 2**20
_KEYS = (
    "*/*/key.pem",
    "*/*/*/key.pem",
    "*/*/secret",
    "*/*/socket",
    f"*/*/managers/*/{MANAGER_FILE}",
)
"""Keys and sockets of dispatchers and pools below the home, by the folders of runs, bags, pools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file or folder. ``kind``: what it holds; ``forbidden``: permissions that it must not have;
    ``of_system``: root may own it, as a file in ``/etc``."""

    path: Path
    kind: str
    mode: int
    owner: int
    forbidden: int = PRIVATE
    of_system: bool = False


def file_facts(
    path: Path, kind: str, forbidden: int = PRIVATE, of_system: bool = False
) -> FileFacts | None:
    """Return the facts of a file; None where it does not exist. OSError where it is out of
    reach."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return FileFacts(
        path=path,
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        owner=status.st_uid,
        forbidden=forbidden,
        of_system=of_system,
    )


def private_files(
    home: Path, database: Path | None, backups: Iterable[Path]
) -> tuple[FileFacts, ...]:
    """Return the facts of the files that only this user may read: the database, its backups,
    keys."""
    paths = [(path, "backup") for path in backups]
    if database is not None:
        # the newest records are in the second, until SQLite moves them to the first
        names = [database.name + suffix for suffix in ("", "-wal", "-shm")]
        paths += [(database.with_name(name), "database") for name in names]
    paths += [(path, "key") for pattern in _KEYS for path in sorted(home.glob(pattern))]
    facts = [file_facts(path, kind) for path, kind in paths]
    return tuple(fact for fact in facts if fact is not None)


def judge_home(home: Path, facts: FileFacts | Unavailable | None, user: int) -> Check:
    """Judge the home: only this user may use it."""
    name = "home"
    if facts is None:
        text = f"{home} does not exist: nothing was stored yet"
        return Check(name, "doubtful", text, "if there should be one, check VGRADS_HOME")
    if isinstance(facts, Unavailable):
        return Check(name, "wrong", f"{home}: {facts.reason}", "check VGRADS_HOME")
    problem = problem_of(facts, user)
    if problem:
        return Check(name, "wrong", problem, f"chmod 700 {shlex.quote(str(home))}; see its owner")
    if facts.mode & stat.S_IRWXU != stat.S_IRWXU:
        text = f"{home} has the mode {facts.mode:04o}: its owner cannot use it"
        return Check(name, "wrong", text, f"chmod 700 {shlex.quote(str(home))}")
    return Check(name, "ok", f"{home} is private (mode {facts.mode:04o})")


def judge_files(files: Sequence[FileFacts] | Unavailable, user: int) -> Check:
    """Judge the database, backups, keys and settings: no other user may read or change them."""
    name = "private files"
    if isinstance(files, Unavailable):
        return Check(name, "unknown", f"cannot be listed: {files.reason}")
    problems = [(fact, problem_of(fact, user)) for fact in files]
    wrong = [(fact, text) for fact, text in problems if text]
    if not wrong:
        kinds = ", ".join(dict.fromkeys(fact.kind for fact in files))
        text = f"{len(files)} private to their owner ({kinds})" if files else "there are none yet"
        return Check(name, "ok", text)
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    paths = " ".join(shlex.quote(str(fact.path)) for fact, _ in wrong[:_SHOWN])
    text = "; ".join(text for _, text in wrong[:_SHOWN]) + more
    return Check(name, "wrong", text, f"chmod go-rwx {paths}; chown what has another owner")


def problem_of(facts: FileFacts, user: int) -> str:
    """Return what is wrong with a file's owner and permissions; empty where nothing is."""
    owners = {user, _ROOT} if facts.of_system else {user}
    if facts.owner not in owners:
        return f"{facts.kind} {facts.path} belongs to user {facts.owner}, not to user {user}"
    if facts.mode & facts.forbidden:
        verb = "use" if facts.forbidden & 0o044 else "change"
        return f"{facts.kind} {facts.path} has the mode {facts.mode:04o}: others may {verb} it"
    return ""


def user_of(home: FileFacts | Unavailable | None) -> int:
    """Return the user to whom the files must belong: this process's; where that is root, the owner
    of the home."""
    user = os.geteuid()
    return home.owner if user == _ROOT and isinstance(home, FileFacts) else user


def free_bytes(home: Path) -> int:
    """Return the free space of the home's disk, also before the home exists."""
    folder = next(path for path in (home, *home.absolute().parents) if path.is_dir())
    return shutil.disk_usage(folder).free


def judge_space(free: int | Unavailable) -> Check:
    """Judge the free space of the home's disk."""
    name, fix = "disk space", "free space, or 'vgrads db prune --keep 180d'"
    if isinstance(free, Unavailable):
        return Check(name, "unknown", free.reason)
    text = f"{free / 2**30:.1f} GiB free on the disk of the home"
    if free < _LEAST_BYTES:
        return Check(name, "wrong", text, fix)
    return Check(name, "doubtful", text, fix) if free < _LITTLE_BYTES else Check(name, "ok", text)

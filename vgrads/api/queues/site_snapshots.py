"""The queue of a real batch site as it was when anybody on this machine last listed it: one file a
site in the home folder, written by whoever asks, read by commands and services alike.

A site is shared with other people, so its whole queue is listed at most once in :data:`FRESH_S`,
and what changes rarely (limits, closures) at most once in :data:`FACTS_S`, however many processes
ask. A site that fails or answers slowly is asked less often. The file has no names of users.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from vgrads.api.config import make_home
from vgrads.api.wiring import derive_site_file, is_batch_system, open_batch
from vgrads.drivers.api import QueuedJob, QueueLimits, SiteFacts
from vgrads.drivers.batch_site import BatchSite
from vgrads.kernel.backoff import Backoff
from vgrads.kernel.closures import Closure
from vgrads.kernel.errors import SiteError
from vgrads.kernel.files import write_whole
from vgrads.vgrid.catalog import Site

Json = dict[str, Any]
Stated = TypeVar("Stated")
FRESH_S = 60.0
"""Least time between two listings of a site's whole queue."""
FACTS_S = 600.0
"""Least time between two listings of a site's limits and closures."""
_BACKOFF = Backoff(FRESH_S, 16 * 60.0)  # of a site that does not answer
_SLOW = 20.0  # a listing may take this fraction of the time until the next
_VERSION = 1
_STEP_S, _ROUNDING_S = 0.05, 0.01
_WORTH_WAITING_S = 300.0
"""Age from which a snapshot is waited for while another process asks for a newer one."""
_log = logging.getLogger("vgrads.sites")
_tried: dict[Path, float] = {}
"""Instants at which this process asked, where the home cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSnapshot:
    """The queue of a site. ``taken_unix_s``: when it was listed, 0 for never; ``is_hidden``: users
    are shown their own jobs alone, so ``jobs`` is empty; ``problem``: why the newest attempt, at
    ``tried_unix_s``, failed; empty if it did not. Users are hashes, also ``asker``, the own one;
    ``hides_jobs``: as in :class:`vgrads.drivers.api.SiteFacts`."""

    taken_unix_s: float = 0.0
    jobs: tuple[QueuedJob, ...] = ()
    is_hidden: bool = False
    hides_jobs: bool = False
    asker: str = ""
    limits: tuple[QueueLimits, ...] = ()
    closures: tuple[Closure, ...] = ()
    facts_unix_s: float = 0.0
    tried_unix_s: float = 0.0
    pause_s: float = FRESH_S
    problem: str = ""

    @property
    def is_listed(self) -> bool:
        """True if the site has ever listed its queue."""
        return self.taken_unix_s > 0

    def age_s(self, now_unix_s: float) -> float:
        """Return the time since the queue was listed; never negative, whatever clocks did."""
        return max(0.0, now_unix_s - self.taken_unix_s)

    def limits_of(self, queue: str) -> QueueLimits | None:
        """Return the limits of a queue as its site states them; None if it does not."""
        return next((entry for entry in self.limits if entry.name == queue), None)


_NEVER = SiteSnapshot()


def derive_snapshot_file(site: Site) -> Path:
    """Return the file of a site."""
    return derive_site_file(site, "json")


def read_snapshot(site: Site) -> SiteSnapshot | None:
    """Return the newest snapshot of a site, whatever its age; None where there is none."""
    return _read(derive_snapshot_file(site))


def refresh_snapshot(site: Site) -> SiteSnapshot:
    """Return the queue of a real batch site, listed now if that is due and no other process does
    it. A site that does not answer leaves the former snapshot, with the ``problem``."""
    path = derive_snapshot_file(site)
    snapshot = _read(path) or _NEVER
    marked_s = _read_mark_s(path)
    is_asking = marked_s - snapshot.tried_unix_s > _ROUNDING_S  # not stored yet
    if not is_asking and not _is_due(path, snapshot, marked_s):
        return snapshot
    patience_s = site.access.timeout_s
    if snapshot.age_s(time.time()) < _WORTH_WAITING_S:
        patience_s = 0.0
    with _try_lock(path, patience_s) as is_locked:
        snapshot = _read(path) or _NEVER  # another process may have asked meanwhile
        if is_locked and may_list(site, snapshot):
            snapshot = _list(site, path, snapshot)
    return snapshot


def refresh_snapshots(sites: Iterable[Site]) -> Mapping[str, SiteSnapshot]:
    """Return the queues of the real batch sites of these, each listed now where that is due."""
    return {site.name: refresh_snapshot(site) for site in sites if is_batch_system(site)}


def read_reported_closures(sites: Iterable[Site]) -> dict[str, tuple[Closure, ...]]:
    """Return the closures that the real batch sites of these report."""
    return {name: snapshot.closures for name, snapshot in refresh_snapshots(sites).items()}


def may_list(site: Site, snapshot: SiteSnapshot | None) -> bool:
    """True if a site may be asked, after what its newest snapshot says. Attempts count, also those
    whose result was not stored; an instant of the future is that of a clock that was set back."""
    path = derive_snapshot_file(site)
    return _is_due(path, snapshot or _NEVER, _read_mark_s(path))


def _read_mark_s(path: Path) -> float:
    """Return when anybody began to ask last; 0 for never."""
    with suppress(OSError):
        return _lock_file(path).stat().st_mtime
    return 0.0


def _is_due(path: Path, snapshot: SiteSnapshot, marked_s: float) -> bool:
    now = time.time()
    attempts = (snapshot.tried_unix_s, marked_s, _tried.get(path, -math.inf))
    newest = max((at for at in attempts if at <= now + FRESH_S), default=-math.inf)
    return now - newest >= snapshot.pause_s


def _list(site: Site, path: Path, before: SiteSnapshot) -> SiteSnapshot:
    begin = time.time()
    try:
        os.utime(_lock_file(path), (begin, begin))  # before the call: it counts whatever comes
    except OSError:
        _tried[path] = begin
    try:
        batch = open_batch(site)
        # a negative age is that of a clock that was set back
        facts_are_due = not 0 <= begin - before.facts_unix_s < FACTS_S
        facts = _ask_facts(site, batch) if facts_are_due else before
        jobs = tuple(_hide_name(site, job) for job in batch.listed_jobs())
    except SiteError as error:
        pause_s = _BACKOFF.after(before.pause_s)
        result = replace(before, tried_unix_s=begin, pause_s=pause_s, problem=str(error))
    else:
        taken = time.time()
        is_hidden = facts.hides_jobs and all(job.user == facts.asker for job in jobs)
        result = replace(
            facts,
            taken_unix_s=taken,
            jobs=() if is_hidden else jobs,
            is_hidden=is_hidden,
            facts_unix_s=begin if facts_are_due else before.facts_unix_s,
            tried_unix_s=begin,
            pause_s=min(_BACKOFF.longest_s, max(FRESH_S, _SLOW * (taken - begin))),
            problem="",
        )
    try:
        _write(path, result)
    except OSError as error:
        _log.warning("the queue of site '%s' cannot be stored: %s", site.name, error.strerror)
    return result


def _ask_facts(site: Site, batch: BatchSite) -> SiteSnapshot:
    """Return a snapshot without jobs: the facts of a site, and its closures."""
    facts = _read_statement(site, "the limits of its queues", batch.facts, SiteFacts(user=""))
    none: tuple[Closure, ...] = ()
    closures = _read_statement(site, "its closures", lambda: batch.closures(time.time()), none)
    return replace(
        _NEVER,
        hides_jobs=facts.hides_jobs,
        asker=_hash_user(site, facts.user),
        limits=tuple(replace(entry, nodes=frozenset()) for entry in facts.queues),
        closures=closures,
    )


def _read_statement(site: Site, what: str, ask: Callable[[], Stated], nothing: Stated) -> Stated:
    """Return what a site states; nothing, and a warning, where it refuses to. SiteError where it
    does not answer."""
    try:
        return ask()
    except SiteError as error:
        if error.transient:
            raise
        _log.warning("site '%s' does not state %s: %s", site.name, what, error)
        return nothing


def _hide_name(site: Site, job: QueuedJob) -> QueuedJob:
    return replace(job, user=_hash_user(site, job.user))


def _hash_user(site: Site, user: str) -> str:
    return hashlib.sha256(f"{site.name}\0{user}".encode()).hexdigest()[:12]


_COLUMNS = ("queue", "user", "procs", "requested_s", "waited_s", "left_s", "eligible")


def _write(path: Path, snapshot: SiteSnapshot) -> None:
    columns = {name: [getattr(job, name) for job in snapshot.jobs] for name in _COLUMNS}
    limits = [{name: getattr(entry, name) for name in _LIMITS} for entry in snapshot.limits]
    document: Json = {
        "version": _VERSION,
        **{name: getattr(snapshot, name) for name in _PLAIN},
        "limits": limits,
        "closures": [
            {**asdict(entry), "queues": sorted(entry.queues), "nodes": sorted(entry.nodes)}
            for entry in snapshot.closures
        ],
        "jobs": columns,
    }
    _make_folder(path)
    write_whole(path, json.dumps(document).encode(), 0o600)


_LIMITS = ("name", "max_walltime_s", "max_procs", "open")
_PLAIN = tuple(
    entry.name for entry in fields(SiteSnapshot) if entry.name not in ("jobs", "limits", "closures")
)


def _read(path: Path) -> SiteSnapshot | None:
    """Return the snapshot of a file; None for one that is missing, damaged or of another version:
    the site is asked again."""
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION:
            return None
        limits = (QueueLimits(**entry) for entry in document["limits"])
        closures = (
            Closure(
                **{
                    **entry,
                    "queues": frozenset(entry["queues"]),
                    "nodes": frozenset(entry["nodes"]),
                }
            )
            for entry in document["closures"]
        )
        columns = [document["jobs"][name] for name in _COLUMNS]
        return SiteSnapshot(
            jobs=tuple(_make_job(row) for row in zip(*columns, strict=True)),
            limits=tuple(limits),
            closures=tuple(closures),
            **{name: document[name] for name in _PLAIN},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _make_job(row: Sequence[Any]) -> QueuedJob:
    return QueuedJob(**dict(zip(_COLUMNS, row, strict=True)))


def _lock_file(path: Path) -> Path:
    # a file of its own: a lock on the snapshot would be lost when that is replaced
    return path.with_suffix(".lock")


def _make_folder(path: Path) -> None:
    make_home()
    path.parent.mkdir(exist_ok=True, mode=0o700)


def _create_lock(path: Path) -> None:
    """Create the file of a lock as a whole, with the mark that nobody has asked yet."""
    draft = path.with_suffix(f".{secrets.token_hex(4)}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        os.utime(draft, (0, 0))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


@contextmanager
def _try_lock(path: Path, patience_s: float) -> Iterator[bool]:
    """Hold the lock of a file for a block; False where another process holds it for longer. A home
    that cannot be written has no lock: each process keeps to the limits by itself."""
    try:
        _make_folder(path)
        if not _lock_file(path).exists():
            _create_lock(_lock_file(path))
        descriptor = os.open(_lock_file(path), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        end_s = time.monotonic() + patience_s
        while True:
            try:
                # tried again and again, because flock has no time limit
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end_s:
                    yield False
                    return
                time.sleep(_STEP_S)
            else:
                yield True
                return
    finally:
        # closing the file releases its lock
        os.close(descriptor)

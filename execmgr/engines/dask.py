"""Tasks in slots on other machines, through Dask distributed.

The manager holds a scheduler; the pilot of each slot (:mod:`vgrads.execmgr.pilot`) brings a worker
that bears the slot's name and its processors, over TLS with certificates made for this run. Tasks
are pinned to their slot's worker. Dask decides nothing: the core has decided what starts where and
when, and a worker that is lost is a lost task, told as such.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dask
from distributed import CancelledError, Client, Future, LocalCluster, Security

from vgrads.drivers.dask_clock import count_steadily
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.engines.folder import FolderEngine
from vgrads.execmgr.engines.news import News
from vgrads.execmgr.run_keys import make_keys
from vgrads.execmgr.tasks.folder import AWAY, CONTACT, TaskFolder
from vgrads.execmgr.tasks.output import STDERR, STDOUT, shorten
from vgrads.execmgr.tasks.parcels import Parcel, pack, unpack
from vgrads.execmgr.tasks.process import Verdict, alive, await_end, has_ended
from vgrads.execmgr.tasks.processes import kill_marked, marked, variable_of
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError
from vgrads.planner.snapshot import CopyKey

_STOP = ".stop"
PAGES = "127.0.0.1:0"
"""Where Dask's own web server listens: it cannot be left out, so nobody else reaches it, and it
shows nothing."""
NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
_HELD: set[str] = set()  # on a worker: marks of the copies that it runs
_STOPPED: set[str] = set()  # on a worker: copies that are to stop


@dataclass(frozen=True, kw_only=True)
class Contact:
    """Where pilots find the manager, and what they prove themselves with. Kept with the run, for
    resuming."""

    port: int
    ca: str
    certificate: str
    key: str

    def security(self) -> Security:
        """The same keys for scheduler, client and workers: they are all of one run."""
        mine = {
            f"tls_{role}_{what}": value
            for role in ("scheduler", "worker", "client")
            for what, value in (("cert", self.certificate), ("key", self.key))
        }
        return Security(require_encryption=True, tls_ca_file=self.ca, **mine)

    def environment(self, host: str) -> dict[str, str]:
        """What a pilot is told."""
        return {
            "VGRADS_CONTACT": f"tls://{host}:{self.port}",
            "VGRADS_KEYS": base64.b64encode(json.dumps(asdict(self)).encode()).decode(),
        }


def read_contact(text: str) -> Contact:
    """The other end of :meth:`Contact.environment`."""
    return Contact(**json.loads(base64.b64decode(text)))


def _open_contact(folder: Path) -> Contact:
    """The contact of an earlier manager of this run, or a new one on a free port."""
    kept = folder / CONTACT
    if kept.is_file():
        return Contact(**json.loads(kept.read_text()))
    certificate, key = make_keys()
    return Contact(port=0, ca=certificate, certificate=certificate, key=key)


@contextmanager
def _room_here() -> Iterator[None]:
    """A disk that takes nothing is a site that does not answer: asked again later, when it may have
    room."""
    try:
        yield
    except OSError as error:
        raise SiteError(
            f"its workers cannot be told where to find the manager: {error}",
            site="here",
            transient=True,
            fix="asked again later",
        ) from error


def _listen(port: int, security: Security) -> LocalCluster:
    """A scheduler without workers, on this port, or for 0 on one that is free."""
    try:
        return LocalCluster(
            n_workers=0,
            processes=False,
            protocol="tls://",
            host="0.0.0.0",
            scheduler_port=port,
            security=security,
            silence_logs=logging.ERROR,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": PAGES},
        )
    except (OSError, RuntimeError) as error:
        raise SiteError(
            f"cannot listen for workers on port {port or 'of any number'}: {error}",
            site="here",
            transient=True,
            fix="a resumed run needs the port that its workers look for",
        ) from error


class DaskEngine(FolderEngine):
    """Runs copies on the workers of their slots.

    ``folder`` is the same on every machine, except at the sites in ``apart``: there a task's files
    travel with it, and its outputs back (:mod:`vgrads.execmgr.tasks.parcels`).
    """

    def __init__(
        self,
        clock: Clock,
        folder: TaskFolder,
        news: News | None = None,
        apart: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(clock, folder, news)
        self._apart = apart
        self._futures: dict[CopyKey, tuple[TaskOrder, Future]] = {}
        self._ordered_s: dict[CopyKey, float] = {}
        with _room_here():
            folder.run_folder.mkdir(parents=True, exist_ok=True)
            contact = _open_contact(folder.run_folder)
        dask.config.set({"distributed.scheduler.allowed-failures": 0, **NO_PAGES})
        count_steadily()
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters comes as events
        security = contact.security()
        self._cluster = _listen(contact.port, security)
        port = int(self._cluster.scheduler_address.rpartition(":")[2])
        self.contact = Contact(**{**asdict(contact), "port": port})
        try:
            with _room_here():
                if self.contact != contact:  # a resumed run needs no room for what it has
                    _keep_secret(folder.run_folder / CONTACT, json.dumps(asdict(self.contact)))
        except SiteError:
            self._cluster.close()
            raise
        self._client = Client(self._cluster, security=security)

    def environment(self, host: str) -> dict[str, str]:
        """What the pilots of slots are told, which find this machine under ``host``."""
        return self.contact.environment(host) | {"VGRADS_RUN": str(self._folder.run_folder)}

    def reports(self, slot: str) -> bool:
        """True where the worker of a slot is there for tasks."""
        scheduler: Any = self._cluster.scheduler
        return any(one.name == slot for one in list(scheduler.workers.values()))

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            if self._done_before(order):
                continue
            self._ordered_s[order.key] = time.monotonic()
            self._witness.look(order)
            try:
                work = (
                    (run_apart, order, self._parcel(order))
                    if order.site in self._apart
                    else (run_order, order, self._folder)
                )
            except OSError as error:
                self._tell(order, Verdict(str(error)))
                continue
            future = self._client.submit(
                *work,
                workers=[order.slot],
                resources={"procs": order.procs},
                key=_work_key(order),
                pure=False,
            )
            self._futures[order.key] = (order, future)
            future.add_done_callback(self._told(order))

    def _parcel(self, order: TaskOrder) -> Parcel:
        return pack(self._folder.inputs.sources(order))

    def _told(self, order: TaskOrder) -> Callable[[Future], None]:
        def tell(future: Future) -> None:
            try:
                answer = future.result() if future.status == "finished" else Verdict(_lost(future))
            except CancelledError:  # by us, or on the way out: nobody waits for this news
                return
            came_s = time.monotonic()
            told = answer if isinstance(answer, Verdict) else self._arrived(order, *answer)
            self._tell(order, self._timed(order, told, came_s))

        return tell

    def _timed(self, order: TaskOrder, verdict: Verdict, came_s: float) -> Verdict:
        """With what it took besides: waiting for the worker, the way there and back, putting its
        outputs away."""
        there = verdict.times or Times()
        now_s = time.monotonic()
        since_s = came_s - self._ordered_s.pop(order.key, came_s)
        elsewhere_s = since_s - there.in_s - there.ran_s - there.out_s
        waited = Times(waited_s=max(0.0, elsewhere_s), out_s=now_s - came_s)
        return replace(verdict, times=there.and_then(waited))

    def _arrived(self, order: TaskOrder, verdict: Verdict, made: Parcel) -> Verdict:
        """Put what a task made and printed elsewhere where it is committed from, and looked for."""
        place = self._folder.place(order)
        try:
            place.mkdir(parents=True, exist_ok=True)
            unpack(made, place, (*order.outputs, STDOUT, STDERR))
        except OSError as error:
            return verdict if verdict.reason else Verdict(f"its outputs cannot be kept: {error}")
        return verdict

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """Ordered again: the worker finds what runs or has ended in the task's folder, or begins
        it."""
        wanted = {self._folder.place(order) for order in orders}
        for notes in self._folder.noted():
            if notes.parent not in wanted and not has_ended(notes.parent):
                # or its worker ends it a little later, ordered by nobody
                _ask_to_stop(notes.parent)
        self.start(orders)

    def cancel(self, key: CopyKey) -> None:
        order, future = self._futures.pop(key, (None, None))
        if order is None or future is None:
            return
        place = self._folder.place(order)
        if order.site in self._apart or (place.is_dir() and not _ask_to_stop(place)):
            self._client.run(stop_here, _work_name(order), wait=False, on_error="ignore")
        future.cancel()

    def forget(self, key: CopyKey) -> None:
        self._futures.pop(key, None)

    def close(self) -> None:
        for key in list(self._futures):
            self.cancel(key)
        self._finish()
        self.abandon()

    def abandon(self) -> None:
        self._futures.clear()
        self._client.close()
        self._cluster.close()


def run_order(order: TaskOrder, folder: TaskFolder) -> Verdict:
    """On a worker: run a copy, or find it running or ended there; whether it did its task."""
    mark = folder.mark(order)
    _HELD.add(mark)
    try:
        code, times = _run_or_find(order, folder, mark)
        return replace(folder.judge(order, code), times=times)
    except OSError as error:
        return Verdict(str(error))
    finally:
        _HELD.discard(mark)


def _run_or_find(order: TaskOrder, folder: TaskFolder, mark: str) -> tuple[int, Times | None]:
    """The exit code of a copy that is run now, or was begun before; and where the time of one that
    is run now went."""
    scratch = folder.place(order)

    def stop() -> bool:
        return (scratch / _STOP).exists() or _work_name(order) in _STOPPED

    if alive(scratch) or has_ended(scratch):
        code = await_end(scratch, mark, stop)
        if code:
            folder.end_container(order)
        return code, None
    if not order.command:
        raise OSError("has no command to run")
    begun_s = time.monotonic()
    process = folder.prepare(order)
    inputs = folder.input_mib(order)
    code = process.attend(order.memory_mib, stop)
    return code, process.times(begun_s, begun_s, inputs)


def run_apart(order: TaskOrder, inputs: Parcel) -> Verdict | tuple[Verdict, Parcel]:
    """On a worker that shares no files with the manager: run a copy there; what it made and printed
    with it."""
    base = Path(os.environ["VGRADS_WORK"])
    folder = TaskFolder(base / "run", base / "set" / _work_name(order), AWAY)
    try:
        begun_s = time.monotonic()
        folder.set_folder.mkdir(parents=True, exist_ok=True)
        unpack(inputs, folder.set_folder)
        brought_s = time.monotonic() - begun_s
        verdict = run_order(order, folder)
        place, ran_s = folder.place(order), time.monotonic()
        made = {} if verdict.reason else {name: place / name for name in order.outputs}
        parcel = pack(shorten(place) | made)
        ways = Times(
            in_s=brought_s, in_mib=inputs.mib, out_s=time.monotonic() - ran_s, out_mib=parcel.mib
        )
        return replace(verdict, times=ways.and_then(verdict.times)), parcel
    except OSError as error:
        return Verdict(str(error))


def reap() -> None:
    """On a worker: end tasks of its slot that run there and that nobody has ordered of this worker.

    An earlier worker began them for a manager that is gone, or that counts them as lost.
    """
    end_tasks_here(os.environ["VGRADS_SLOT_NAME"], _HELD)


def end_tasks_here(slot: str, but: Collection[str] = ()) -> bool:
    """Kill all tasks of a slot on this machine but those with these marks; False where one does not
    die."""
    ours = _marks_here()
    found = marked(lambda mark: mark.startswith(ours) and mark not in but)
    doomed = {mark for pid, mark in found.items() if variable_of(pid, "VGRADS_SLOT") == slot}
    return kill_marked(lambda mark: mark in doomed)


def _marks_here() -> tuple[str, ...]:
    """What the marks begin with of tasks that may run in this slot: with the manager's files, or
    apart."""
    folders = (Path(os.environ["VGRADS_WORK"]) / "run", Path(os.environ["VGRADS_RUN"]))
    return tuple(TaskFolder(run, run, AWAY).marks for run in folders)


async def stop_here(name: str) -> None:  # only what is asynchronous need not be waited for
    """On a worker: the copy of this name is not needed any more."""
    _STOPPED.add(name)


def _ask_to_stop(place: Path) -> bool:
    """Leave word in a task's folder; False where the disk takes none."""
    try:
        (place / _STOP).touch()
    except OSError:
        return False
    return True


def _work_name(order: TaskOrder) -> str:
    return "-".join(map(str, (*order.key, order.attempt)))


def _work_key(order: TaskOrder) -> str:
    """A name of its own for every time that an order is given."""
    return f"{_work_name(order)}-{os.urandom(4).hex()}"


def _lost(future: Future) -> str:
    """Why there is no result; CancelledError where the copy was cancelled."""
    if future.status == "cancelled":
        raise CancelledError
    error: Any = future.exception()
    if type(error).__name__ == "KilledWorker":
        return "the worker of its slot was lost"
    return f"{type(error).__name__}: {error}"[:300]


def _keep_secret(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)

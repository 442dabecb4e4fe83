"""What runs in a slot: ``python -P -m vgrads.execmgr.pilot``, a Dask worker that bears the slot's
name.

Told by its environment: ``VGRADS_CONTACT`` (where the manager is), ``VGRADS_KEYS`` (the run's TLS
keys), ``VGRADS_RUN`` (its folder), ``VGRADS_SLOT_NAME``, ``VGRADS_PROCS``. When the manager is lost
it looks for it again, until the slot ends and everything in it: a manager that resumes the run
finds the slot and what runs in it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

from vgrads.drivers.pilot import CANNOT_WORK
from vgrads.execmgr.tasks.processes import name_of, parent_of

_PAUSE_S = 1.0
_LOOK_S = 0.2
_PATIENCE_S = 10.0
_GIVE_UP_S = 30.0  # a worker that finds no manager in this time is replaced by a new try


async def _work(pilot: int) -> None:
    import dask  # noqa: PLC0415 the looping parent needs none of it
    from distributed import Status, Worker  # noqa: PLC0415

    from vgrads.drivers.dask_clock import count_steadily  # noqa: PLC0415
    from vgrads.execmgr.engines.dask import NO_PAGES, PAGES, read_contact  # noqa: PLC0415

    dask.config.set(NO_PAGES)
    count_steadily()

    procs = int(os.environ["VGRADS_PROCS"])
    contact = read_contact(os.environ["VGRADS_KEYS"])
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(
            os.environ["VGRADS_CONTACT"],
            name=os.environ["VGRADS_SLOT_NAME"],
            nthreads=max(procs, 1),
            resources={"procs": procs},
            security=contact.security(),
            death_timeout=_GIVE_UP_S,
            local_directory=folder,
            memory_limit=0,
            dashboard=False,
            dashboard_address=PAGES,
        )
        await worker
        reaping = asyncio.create_task(_reap_later())
        while worker.status == Status.running:  # a closing one would wait for its tasks
            if (
                os.getppid() != pilot
            ):  # killed: nobody ends this worker with its slot, or counts it as lost
                _end_its_tasks()
                shutil.rmtree(os.environ["VGRADS_WORK"], ignore_errors=True)
                return
            await asyncio.sleep(_LOOK_S)
        reaping.cancel()


async def _and_out(pilot: int) -> None:
    """Work for the pilot of this number, then leave at once: tasks go on by themselves, their
    threads must not keep a dead worker alive."""
    code = 0
    try:
        await _work(pilot)
    except ImportError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        code = CANNOT_WORK
    finally:
        os._exit(code)


async def _reap_later() -> None:
    """When a manager has had time to order again what it still wants, the rest of what runs here
    ends."""
    from vgrads.execmgr.engines.dask import reap  # noqa: PLC0415

    await asyncio.sleep(_PATIENCE_S)
    reap()


def _end_its_tasks() -> None:
    """Nothing of a worker that died may run on: the next one is given the same tasks again."""
    from vgrads.execmgr.engines.dask import end_tasks_here  # noqa: PLC0415

    end_tasks_here(os.environ["VGRADS_SLOT_NAME"])


_KEEPERS = ("slurmstepd", "sge_shepherd")
"""Processes of batch systems that live as long as a job, and without which it has failed."""


class _Slot:
    """The slot that the pilot runs in: over when its job's script is gone, whoever killed that.

    The script waits for ``timeout``, which waits for the pilot. A batch system that knows a job by
    its processes' parents loses both when the script dies first; so the pilot looks for itself.
    """

    def __init__(self) -> None:
        self._guard = os.getppid()
        self._script = parent_of(self._guard) if name_of(self._guard) == "timeout" else None
        self._keeper = None if self._script is None else parent_of(self._script)
        if self._keeper is None or not name_of(self._keeper).startswith(_KEEPERS):
            self._keeper = None  # what else begins scripts may be started anew while they run

    def over(self) -> bool:
        """True where nobody waits for the pilot any more."""
        if self._script is None:
            return False
        if os.getppid() != self._guard or parent_of(self._guard) != self._script:
            return True
        return self._keeper is not None and parent_of(self._script) != self._keeper


def _work_until_over(slot: _Slot) -> None:
    """One worker after the other, until the slot is over."""
    while not slot.over():
        worker = subprocess.Popen([sys.executable, "-P", "-m", "vgrads.execmgr.pilot", "--once"])
        try:
            while worker.poll() is None and not slot.over():
                with suppress(subprocess.TimeoutExpired):
                    worker.wait(_PAUSE_S)
        finally:
            worker.kill()
            code = worker.wait()
        if code == CANNOT_WORK:
            sys.exit(code)
        if code:  # it did not leave by itself: its manager counts what it ran as lost
            _end_its_tasks()
        time.sleep(_PAUSE_S)
    _end_its_tasks()


def main() -> None:
    """Start a worker, and another one whenever it ends; with ``--once``, be that worker."""
    if "--once" in sys.argv:
        asyncio.run(_and_out(os.getppid()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="vgrads-") as work:  # of tasks whose files travel
        os.environ["VGRADS_WORK"] = work
        try:
            _work_until_over(_Slot())
        except SystemExit:
            _end_its_tasks()
            raise


if __name__ == "__main__":
    main()

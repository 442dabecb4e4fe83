"""What runs in a slot: ``python -m execmgr.pilot``, a Dask worker that bears the slot's name.

Told by its environment: ``VGRADS_CONTACT`` (where the manager is), ``VGRADS_KEYS`` (the run's TLS keys), ``VGRADS_RUN`` (its folder),
``VGRADS_SLOT_NAME``, ``VGRADS_PROCS``. When the manager is lost it looks for it again, until the slot ends
and everything in it: a manager that resumes the run finds the slot and what runs in it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time

_PAUSE_S = 1.0
_LOOK_S = 0.2
_PATIENCE_S = 10.0
_GIVE_UP_S = 30.0  # a worker that finds no manager in this time is replaced by a new try


async def _work() -> None:
    import dask  # noqa: PLC0415 the looping parent needs none of it
    from distributed import Status, Worker  # noqa: PLC0415

    from execmgr.dask_engine import NO_PAGES, PAGES, read_contact  # noqa: PLC0415

    dask.config.set(NO_PAGES)

    procs = int(os.environ["VGRADS_PROCS"])
    contact = read_contact(os.environ["VGRADS_KEYS"])
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(
            os.environ["VGRADS_CONTACT"], name=os.environ["VGRADS_SLOT_NAME"], nthreads=max(procs, 1),
            resources={"procs": procs}, security=contact.security(), death_timeout=_GIVE_UP_S, local_directory=folder,
            memory_limit=0, dashboard=False, dashboard_address=PAGES,
        )  # fmt: skip
        await worker
        reaping = asyncio.create_task(_reap_later())
        while worker.status == Status.running:  # a closing one would wait for its tasks
            await asyncio.sleep(_LOOK_S)
        reaping.cancel()


async def _and_out() -> None:
    """Work, then leave at once: tasks go on by themselves, their threads must not keep a dead worker alive."""
    try:
        await _work()
    finally:
        os._exit(0)


async def _reap_later() -> None:
    """When a manager has had time to order again what it still wants, the rest of what runs here ends."""
    from execmgr.dask_engine import reap  # noqa: PLC0415

    await asyncio.sleep(_PATIENCE_S)
    reap()


def _end_its_tasks() -> None:
    """Nothing of a worker that died may run on: the next one is given the same tasks again."""
    from execmgr.dask_engine import end_tasks_here  # noqa: PLC0415

    end_tasks_here(os.environ["VGRADS_SLOT_NAME"])


def main() -> None:
    """Start a worker, and another one whenever it ends; with ``--once``, be that worker."""
    if "--once" in sys.argv:
        asyncio.run(_and_out())
    with tempfile.TemporaryDirectory(prefix="vgrads-") as work:  # of tasks whose files travel
        while True:
            os.environ["VGRADS_WORK"] = work
            worker = subprocess.run([sys.executable, "-m", "execmgr.pilot", "--once"], check=False)
            if (
                worker.returncode
            ):  # it did not leave by itself: its manager counts what it ran as lost
                _end_its_tasks()
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()

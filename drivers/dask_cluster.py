"""Slots on the workers of an existing Dask cluster: a pilot on each, as a long-running task.

The scheduler identifies a pilot by a name that is derived from its slot's, so submission is
idempotent, and a later manager finds running pilots. A pilot occupies one thread of its worker; the
site's ``cores_per_node`` is the number of processors that it may use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from vgrads.agent.programs import dask_pilot
from vgrads.drivers.api import (
    MarkedJob,
    QueueLimits,
    SiteAccess,
    SlotSpec,
    SlotState,
    SlotStatus,
    Survey,
    mark,
)
from vgrads.drivers.ledger import LedgerDriver
from vgrads.drivers.pilot import Mark
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError
from vgrads.kernel.extras import require_at
from vgrads.kernel.units import format_count

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _DaskSlot:
    """The futures of a slot's pilots by node, and the workers assigned to them."""

    futures: list[Any] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)


class DaskCluster(LedgerDriver):
    """Driver of the workers behind one scheduler (``access.endpoint``)."""

    def __init__(self, site: str, access: SiteAccess, clock: Clock) -> None:
        super().__init__(clock)
        self.site, self._access = site, access
        self._client: Any = None
        self._slots: dict[str, _DaskSlot] = {}

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._slots or self._ended(spec.id):
            return
        nodes = spec.nodes if spec.every_node else 1
        workers = self._free(spec, nodes)
        if len(workers) < nodes:
            reason = f"{len(workers)} of its workers are free, {nodes} are requested"
            self._ledger.move(spec.id, SlotState.FAILED, self._clock.now(), reason)
            return
        self._slots[spec.id] = slot = _DaskSlot(workers=workers)
        for node, worker in enumerate(workers):
            environment = {**spec.environment, **_make_pilot_environment(spec, node, nodes)}
            slot.futures.append(
                self._ask(
                    partial(_start, spec=spec, environment=environment, worker=worker, node=node)
                )
            )
        self._ledger.move(spec.id, SlotState.QUEUED, self._clock.now())

    def _free(self, spec: SlotSpec, nodes: int) -> list[str]:
        """Return workers for a slot's pilots: first those that run its pilots already, then those
        without a pilot of ours."""
        holding = self._running()
        busy = {worker for key, worker in holding.items() if key.startswith("vg-")}
        busy |= {
            w for name, slot in self._slots.items() if not self._ended(name) for w in slot.workers
        }
        free = [
            w
            for w in sorted(_list_workers(self._ask(lambda c: c.scheduler_info(n_workers=-1))))
            if w not in busy
        ]
        names = [f"{mark(spec.id)}.{node}" for node in range(nodes)]
        workers = []
        for name in names:
            if name in holding:
                workers.append(holding[name])
            elif free:
                workers.append(free.pop(0))
        return workers

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        now = self._clock.now()
        open_ = [slot for slot in slots if not self._ended(slot)]
        if open_:
            running = self._running()
            for slot in open_:
                if slot in self._slots or self._find(slot, running):
                    self._look(slot, running, now)
        return self._ledger.status(slots, now)

    def _running(self) -> dict[str, str]:
        """Return the running pilots, and the worker of each."""
        processing: Mapping[str, Sequence[Any]] = self._ask(lambda c: c.processing())
        return {str(key): worker for worker, keys in processing.items() for key in keys}

    def _find(self, slot: str, running: Mapping[str, str]) -> bool:
        """Find the pilots of a slot that another manager requested."""
        keys = sorted(key for key in running if key.startswith(f"{mark(slot)}."))
        if keys:
            futures = [self._ask(partial(_find_future, key)) for key in keys]
            self._slots[slot] = _DaskSlot(futures, [running[key] for key in keys])
        return bool(keys)

    def _look(self, slot: str, running: Mapping[str, str], now: float) -> None:
        futures = self._slots[slot].futures
        states = [future.status for future in futures]
        if any(f.key in running for f in futures):
            self._ledger.move(slot, SlotState.READY, now)
        if "pending" in states:
            return
        ends = [self._end_of(future) for future in futures]
        worst = max(ends, key=lambda end: end.code or 0)
        outcome = worst.outcome
        if outcome is not None:
            self._ledger.move(slot, outcome[0], now, outcome[1], worst.permanent)

    def _end_of(self, future: Any) -> Mark:
        if future.status == "finished":
            code, text = self._ask(lambda _: future.result(timeout=self._access.timeout_s))
            return Mark(ready=True, code=code, message=text)
        return Mark(ready=True, code=1, message=f"its task is {future.status} at the scheduler")

    def cancel(self, slot: str) -> None:
        if slot not in self._slots or self._ended(slot):
            return
        # Dask cannot end a running thread: a mark on the node of the worker ends the pilot
        if self._slots[slot].futures:
            name = mark(slot)
            workers = self._slots[slot].workers
            self._ask(
                lambda c: c.run(
                    dask_pilot.give_back,
                    name,
                    workers=_select_present(c, workers),
                    on_error="ignore",
                )
            )
            self._ask(lambda c: c.cancel(self._slots[slot].futures, force=True))
        self._ledger.move(slot, SlotState.RELEASED, self._clock.now(), "released")

    def close(self) -> None:
        super().close()
        if self._client is not None:
            self._client.close()
            self._client = None

    def marked_jobs(self) -> list[MarkedJob]:
        """Return the running pilots that carry a mark of vgrads."""
        keys = (key for key in self._running() if key.startswith("vg-"))
        return [
            MarkedJob(handle=key, name=key.partition(".")[0], slot="", state=SlotState.READY)
            for key in sorted(keys)
        ]

    def sweep(self, handles: Sequence[str]) -> None:
        """Cancel these pilots."""
        for name in {handle.partition(".")[0] for handle in handles}:
            self._ask(lambda c, n=name: c.run(dask_pilot.give_back, n, on_error="ignore"))  # type: ignore[misc]

    def survey(self) -> Survey:
        """Return the cluster's version, workers and problems."""
        info = self._ask(lambda c: c.scheduler_info(n_workers=-1))
        threads = sum(worker["nthreads"] for worker in info["workers"].values())
        works = (
            f"{format_count(len(info['workers']), 'worker')} with "
            f"{format_count(threads, 'thread')}",
        )
        return Survey(
            version=f"Dask {info.get('id', '')}".strip(),
            queues=(QueueLimits(name="", max_procs=threads),),
            works=works,
        )

    def _ask(self, call: Callable[[Any], _Result]) -> _Result:
        """Call the scheduler and return its answer; SiteError (transient) if it does not answer."""
        try:
            if self._client is None:
                self._client = self._connect()
            return call(self._client)
        except (OSError, TimeoutError, RuntimeError) as error:
            raise SiteError(
                f"the scheduler does not answer: {error}",
                site=self.site,
                transient=True,
                fix="set access.endpoint to its address",
            ) from error

    def _connect(self) -> Any:
        require_at("dask", "the driver 'dask'", self.site)
        import cloudpickle  # noqa: PLC0415 of an extra
        import distributed  # noqa: PLC0415

        cloudpickle.register_pickle_by_value(dask_pilot)  # workers do not need vgrads
        return distributed.Client(  # type: ignore[no-untyped-call]
            self._access.endpoint,
            timeout=self._access.timeout_s,
            set_as_default=False,
            name="vgrads",
        )


def _find_future(key: str, client: Any) -> Any:
    """Return the future of a task that another client submitted."""
    from distributed import Future  # noqa: PLC0415 of an extra

    return Future(key, client)


def _start(
    client: Any, spec: SlotSpec, environment: Mapping[str, str], worker: str, node: int
) -> Any:
    from distributed import fire_and_forget  # noqa: PLC0415 of an extra

    name = mark(spec.id)
    # without a pilot: longer than the slot, so that the slot's own limit ends it
    pilot = spec.pilot or f"exec sleep {round(spec.duration_s) + 60}"
    future = client.submit(
        dask_pilot.run_pilot,
        pilot,
        dict(environment),
        spec.duration_s,
        f"{name}.{node}",
        key=f"{name}.{node}",
        workers=[worker],
        pure=False,
        retries=0,
    )
    fire_and_forget(future)  # type: ignore[no-untyped-call]  # it outlives this manager
    return future


def _make_pilot_environment(spec: SlotSpec, node: int, nodes: int) -> dict[str, str]:
    variables = {"VGRADS_SLOT": spec.id, "VGRADS_PROCS": str(spec.procs)}
    return variables | (
        {"VGRADS_NODE": str(node), "VGRADS_NODES": str(nodes)} if spec.every_node else {}
    )


def _list_workers(info: Mapping[str, Any]) -> list[str]:
    return list(info["workers"])


def _select_present(client: Any, workers: Sequence[str]) -> list[str]:
    """Return those of these workers that still exist."""
    running = client.scheduler_info(n_workers=-1)["workers"]
    return [worker for worker in workers if worker in running]

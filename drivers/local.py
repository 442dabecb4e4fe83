"""Cores of this machine as slots: granted at once while cores are free, until their time limit.

Cores are counted, not pinned. The engine runs the tasks; a slot's own pilot, if it has one, runs as
a process group that ends with the slot.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from vgrads.agent.processes import lend_priority
from vgrads.agent.scratch import sweep
from vgrads.drivers.api import SlotSpec, SlotState, SlotStatus
from vgrads.drivers.ledger import SlotLedger
from vgrads.drivers.pilot import Mark
from vgrads.kernel.clock import Clock
from vgrads.kernel.units import format_count

_DEATH_S = 10.0
_GRACE_S = 7.0  # agents take up to five seconds to report what they ended


class _Pilot(Protocol):
    """A pilot on this machine, started by this process or an earlier one."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


class _Adopted:
    """A pilot that an earlier manager started: the system reports whether it runs; its exit status
    is not known."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        return None if Path(f"/proc/{self.pid}").exists() else 0

    def wait(self) -> int:
        with suppress(OSError):  # gone already
            descriptor = os.pidfd_open(self.pid)
            select.select([descriptor], [], [], _DEATH_S)
            os.close(descriptor)
        return 0


@dataclass(slots=True)
class _Hold:
    """Cores in use until ``end_s``, and the pilots that run on them."""

    procs: int
    end_s: float
    pilots: tuple[_Pilot, ...] = ()
    output: IO[bytes] | None = None

    def code(self) -> int | None:
        """Return the worst exit status of the pilots; None while any runs, or if there is none."""
        codes = [pilot.poll() for pilot in self.pilots]
        ended = [abs(code) for code in codes if code is not None]
        return max(ended) if ended and len(ended) == len(codes) else None

    def stop(self) -> None:
        """Terminate the pilots with all their children. SIGTERM is sent first, as batch systems do:
        processes of their tasks are in separate sessions that only the pilots know. The first
        process of a pilot may be gone before its others."""
        self._signal(signal.SIGTERM)
        end_s = time.monotonic() + _GRACE_S
        while self._signal(0) and time.monotonic() < end_s:
            time.sleep(0.01)
        self._signal(signal.SIGKILL)
        for pilot in self.pilots:
            pilot.wait()
        if self.output is not None:
            self.output.close()

    def _signal(self, number: int) -> bool:
        """Send a signal to all processes of the pilots; return False where none is left."""
        reached = False
        for pilot in self.pilots:
            pilot.poll()  # an ended child counts as a process until its parent has asked
            with suppress(ProcessLookupError):
                os.killpg(pilot.pid, number)
                reached = True
        return reached

    def last_words(self) -> str:
        """Return the last line that the pilot printed."""
        if self.output is None:
            return ""
        self.output.seek(0)
        lines = self.output.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


class LocalDriver:
    """Driver of ``procs`` cores of this machine. ``environment``: of pilots, in addition to that of
    their slots; None: this process's."""

    def __init__(
        self, procs: int, clock: Clock, environment: Mapping[str, str] | None = None
    ) -> None:
        self.procs, self._environment = procs, environment
        self._clock = clock
        self._ledger = SlotLedger()
        self._holds: dict[str, _Hold] = {}

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._ledger:
            return
        self._advance()
        now = self._clock.now()
        if spec.procs > self.procs - sum(hold.procs for hold in self._holds.values()):
            reason = f"fewer than {spec.procs} of {format_count(self.procs, 'core', 'are')} free"
            self._ledger.move(spec.id, SlotState.FAILED, now, reason)
            return
        hold = _Hold(spec.procs, now + spec.duration_s)
        if spec.pilot:
            hold.output = tempfile.TemporaryFile()  # noqa: SIM115 closed with the slot
            hold.pilots = _find_running(spec.id) or _start(spec, hold.output, self._environment)
        self._holds[spec.id] = hold
        self._ledger.move(spec.id, SlotState.READY, now)

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        self._advance()
        return self._ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        if slot in self._holds:
            self._end(slot, SlotState.RELEASED, "released")

    def wake_at(self) -> float:
        return min((hold.end_s for hold in self._holds.values()), default=float("inf"))

    def close(self) -> None:
        for slot in list(self._holds):
            self.cancel(slot)

    def _advance(self) -> None:
        """End slots that have reached their end, or whose pilot has ended."""
        now = self._clock.now()
        for slot, hold in list(self._holds.items()):
            code = hold.code()
            if hold.end_s <= now:
                self._end(slot, SlotState.EXPIRED, "reached its end")
            elif code is not None:
                outcome = Mark(ready=True, code=code, message=hold.last_words()).outcome
                if outcome is not None:
                    self._end(slot, *outcome)

    def _end(self, slot: str, state: SlotState, reason: str) -> None:
        hold = self._holds.pop(slot)
        hold.stop()
        if hold.pilots:
            sweep(None)  # a pilot that was killed by others has left its folder
        self._ledger.move(slot, state, self._clock.now(), reason)


def _find_running(slot: str) -> tuple[_Pilot, ...]:
    """Return the pilots of a slot that an earlier manager left running: the leaders of its
    sessions."""
    variable = f"VGRADS_SLOT={slot}".encode()
    results = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(folder.name)
            if variable in (folder / "environ").read_bytes().split(b"\0") and os.getsid(pid) == pid:
                results.append(_Adopted(pid))
    return tuple(results)


def _start(
    spec: SlotSpec, output: IO[bytes], environment: Mapping[str, str] | None
) -> tuple[_Pilot, ...]:
    """Start the pilot, or one for every node: processes on this machine, so that it can emulate
    several nodes."""
    common = {
        **(os.environ if environment is None else environment),
        **spec.environment,
        "VGRADS_SLOT": spec.id,
        "VGRADS_PROCS": str(spec.procs),
    }
    nodes = spec.nodes if spec.every_node else 1
    environments = [
        common | {"VGRADS_NODE": str(node), "VGRADS_NODES": str(nodes)}
        if spec.every_node
        else common
        for node in range(nodes)
    ]
    pilots = tuple(
        subprocess.Popen(
            ["/bin/sh", "-c", spec.pilot],
            env=variables,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        for variables in environments
    )
    for pilot in pilots:
        lend_priority(pilot.pid)
    return pilots

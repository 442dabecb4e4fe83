"""A million cells in virtual time: core, journal, matrix file and virtual hosts, as fast as this
machine plays them."""

from __future__ import annotations

import random
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vgrads.bags.bag import TASK, BagSpec
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import DONE
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.storage.journal import DispatchJournal
from vgrads.dispatch.storage.matrix_store import MatrixStore, join_values
from vgrads.exchange.values import AttemptEnd
from vgrads.workflows.generated.blocks import BlockGrid

_STEP_S = 0.5  # of virtual time
# of real time, between two groups of the journal; dispatchers in virtual time take half a second
_GROUP_S = 0.1


class Numbered:
    """Tasks without a command."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def command(self, task: int) -> str:
        return f"block {task}"

    def filled(self, texts: list[str], task: int) -> list[str]:  # noqa: ARG002
        return []

    def values(self, task: int) -> dict[str, str]:
        return {TASK: str(task)}


@dataclass(frozen=True)
class Played:
    """How it went: real seconds, virtual seconds, bytes of the journal, peak of the process."""

    seconds: float
    virtual_s: float
    first_s: float
    journal_bytes: int
    matrix_bytes: int
    peak_mib: float
    done: int


class _Simulation:
    """A dispatcher of one grid, with its journal, its matrix file and its hosts."""

    def __init__(self, folder: Path, grid: BlockGrid, cell_s: float) -> None:
        self.folder, self.grid, self.cell_s = folder, grid, cell_s
        self.began, self.first_s, self.written = time.perf_counter(), 0.0, 0
        self.draw, self.ended, self.bodies = random.Random(1), list[int](), dict[int, bytes]()
        self.journal = DispatchJournal(folder / "journal")
        self.store = MatrixStore(folder / "m", {"grid": grid.as_json()}, write=True)
        self.core = Core(State(), Rules(), self.journal.add, self.on_end)
        bag = BagSpec(
            name="m",
            commands=Numbered(grid.order.size),
            estimate_s=cell_s * grid.high * grid.wide,
            order=grid.order if grid.kind == "wavefront" else None,
        )
        self.core.add(0, bag, 0.0)
        self.agents = VirtualAgents(self.core, self.run_time)

    def on_end(self, _: int, end: AttemptEnd, effect: Effect) -> None:
        if effect.counts and end.code == 0:
            self.ended.append(end.task)

    def run_time(self, _: int, task: int, __: str) -> tuple[float, int]:
        self.first_s = self.first_s or time.perf_counter() - self.began
        return self.cell_s * self.grid.count(task) * self.draw.lognormvariate(-0.02, 0.2), 0

    def body(self, task: int) -> bytes:
        count = self.grid.count(task)
        if count not in self.bodies:
            self.bodies[count] = join_values([b"%d\n" % k for k in range(count)])
        return self.bodies[count]

    def write(self) -> None:
        """Values first, then the journal."""
        self.store.append((task, self.body(task)) for task in self.ended)
        self.ended.clear()
        group = self.journal.take()
        self.journal.write(group)
        self.written += len(group)
        if self.journal.full:
            self.journal.roll(self.core.state).carry_out()

    def run(self) -> Played:
        bag, wrote_s = self.core.state.bags[0], self.began
        while not bag.over:
            self.agents.run(until_s=max(self.agents.now_s, self.agents.next_s) + _STEP_S)
            if bag.over or time.perf_counter() - wrote_s >= _GROUP_S:
                self.write()
                wrote_s = time.perf_counter()
        seconds = time.perf_counter() - self.began
        done = bag.tasks.counts[DONE]
        assert self.store.whole and done == self.grid.order.size
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        size = (self.folder / "m").stat().st_size
        return Played(seconds, self.agents.now_s, self.first_s, self.written, size, peak, done)


def simulated(grid: BlockGrid, cell_s: float, agents: int, procs: int) -> Played:
    """A grid carried out by so many virtual hosts. Run times are drawn (log-normal, a fifth of the
    mean), so that no host ends two blocks at once by chance; values are ready-made, for making them
    is the user's part."""
    with tempfile.TemporaryDirectory() as name:
        simulate = _Simulation(Path(name), grid, cell_s)
        for n in range(agents):
            simulate.agents.join(f"h{n}", procs=procs)
        return simulate.run()

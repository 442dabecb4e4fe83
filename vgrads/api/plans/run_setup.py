"""Start parameters of a run, as stored to continue it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vgrads.api.queues.history_files import Instant
from vgrads.vgrid.catalog import Catalog


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run: its id, its folder, the speed of virtual time, the seed.

    ``at``: the instant of the histories that the plan was made for; ``replan``: plan the remainder
    again if too little is left; ``own``: the tasks belong to the user of this process, and get its
    environment; ``account``: see :class:`vgrads.api.wiring.RunFiles`.
    """

    run_id: str
    folder: Path
    speed: float | None = None
    seed: int = 0
    at: Instant = None
    replan: bool = True
    own: bool = False
    account: int = 0


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The setup of a run: everything that is needed to continue it. Times: see
    :class:`vgrads.kernel.clock.Moment`. ``pilot``: version of the pilots of its slots, 0 before it
    was stored."""

    options: RunOptions
    catalog: Catalog
    began_unix_s: float
    began_boot: str = ""
    began_up_s: float = 0.0
    pilot: int = 0

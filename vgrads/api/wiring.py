"""The one place that knows concrete drivers, engines and clocks, and puts them together."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from vgrads.agent.environment import pass_environment
from vgrads.drivers.api import Driver
from vgrads.drivers.batch import BatchDriver
from vgrads.drivers.batch_site import BatchSite
from vgrads.drivers.cloud import CloudDriver, Price
from vgrads.drivers.credentials import find_credentials
from vgrads.drivers.dialect import Dialect
from vgrads.drivers.gridengine import GridEngine
from vgrads.drivers.local import LocalDriver
from vgrads.drivers.pbs import Pbs
from vgrads.drivers.pilot import CANNOT_WORK
from vgrads.drivers.shell import Shell, quote
from vgrads.drivers.simulated import SimulatedBatch, SimulatedCloud, SiteBehaviour
from vgrads.drivers.slurm import Slurm
from vgrads.execmgr.engines.base import Engine, Pilot, Reach
from vgrads.execmgr.engines.news import News
from vgrads.execmgr.engines.processes import ProcessEngine
from vgrads.execmgr.engines.several import AwayEngine, Engines, SharingEngine
from vgrads.execmgr.engines.simulated import Luck, SimulatedEngine
from vgrads.execmgr.tasks.folder import AWAY, TaskFolder
from vgrads.kernel.clock import Clock, SimClock, WallClock
from vgrads.kernel.errors import InputError, SiteError
from vgrads.kernel.streams import stream
from vgrads.planner.plan import Plan
from vgrads.planner.promise.lengths import drawn_factor
from vgrads.planner.snapshot import Snapshot
from vgrads.simulator.cloud import CloudRegion
from vgrads.simulator.cluster import BatchCluster
from vgrads.simulator.load import Nodes, draw_outages, load_background
from vgrads.traces.records import JobLog
from vgrads.vgrid.catalog import Catalog, Site

if TYPE_CHECKING:
    from vgrads.drivers.dask_cluster import DaskCluster

_DIALECTS: dict[str, Callable[[], Dialect]] = {"slurm": Slurm, "gridengine": GridEngine, "pbs": Pbs}
_PACE_STEP_S = 0.5
_GONE_S = 90.0  # Slurm gives jobs half a minute to end, and its daemon some more
_PATIENCE_S = (
    180.0  # with a pilot whose slot is ready: Python starts slowly from a busy file system
)
PILOT = 1
"""Which pilots a manager works with, kept with each run. 0: ``python -m execmgr.pilot``, up to
0.2. Raise it where today's manager cannot work with pilots that an earlier one has queued."""
HORIZON_S = 3 * 86400.0  # background load that is laid out beyond the deadline


@dataclass(frozen=True, kw_only=True)
class Surrounding:
    """What a simulated site starts from: histories, the instant on each one's clock, the seed."""

    logs: Mapping[tuple[str, str], JobLog]
    instants: Mapping[tuple[str, str], float]
    until_s: float
    seed: int


def is_real(site: Site) -> bool:
    """True where slots are asked of somebody else's machines."""
    return site.driver not in ("simulated", "local")


def any_real(catalog: Catalog, plan: Plan) -> bool:
    """True where a plan uses a site that is not simulated."""
    return any(catalog.site(use.slot.site).driver != "simulated" for use in plan.uses)


def all_simulated(sites: Iterable[Site]) -> bool:
    """True where no site is real; InputError where real and simulated ones are mixed."""
    kinds = {site.driver == "simulated" for site in sites}
    if len(kinds) > 1:
        raise InputError("simulated and real sites cannot be mixed in one run", where="sites")
    return kinds == {True}


def make_clock(simulated: bool, speed: float | None, passed_s: float = 0.0) -> Clock:
    """Virtual time for simulated sites (paced where a speed is given), wall time for real ones."""
    if not simulated:
        return WallClock(passed_s)
    return SimClock() if speed is None else PacedClock(speed)


class PacedClock(SimClock):
    """Virtual time that a person can watch: ``speed`` virtual seconds a real one.

    It goes in short steps, so that whoever waits can look up in between: a run may be cancelled
    meanwhile.
    """

    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def advance_to(self, instant_s: float) -> None:
        reach_s = min(instant_s, self.now() + _PACE_STEP_S * self._speed)
        time.sleep(max(0.0, reach_s - self.now()) / self._speed)
        super().advance_to(reach_s)


def make_drivers(
    catalog: Catalog,
    needed: Iterable[str],
    clock: Clock,
    around: Surrounding,
    perhaps: Iterable[str] = (),
    own: bool = False,
) -> dict[str, Driver]:
    """A driver for each site that is needed, and for those of ``perhaps`` that can be reached now.
    ``own``: pilots on this machine are for tasks of whoever runs this process, and get its
    environment."""
    found = {name: _driver(catalog.site(name), clock, around, own) for name in needed}
    for name in perhaps:
        if name not in found:
            with suppress(SiteError):
                found[name] = _driver(catalog.site(name), clock, around)
    return found


def _driver(site: Site, clock: Clock, around: Surrounding, own: bool = False) -> Driver:
    if site.driver == "local":
        passed = None if own else pass_environment(os.environ, False, allowed=site.pass_env)[0]
        return LocalDriver(site.procs, clock, passed)
    if site.driver != "simulated":
        return open_site(site, clock)
    behaviour = SiteBehaviour(
        slot_up=site.slot_up,
        slot_acquire=site.slot_acquire,
        boot_s=site.boot_s,
        boot_spread=site.boot_spread,
        spot_interruptions_per_hour=max(node.spot_interruptions_per_hour for node in site.nodes),
        seed=around.seed,
    )
    if site.kind == "batch":
        return SimulatedBatch(_cluster(site, around), clock, behaviour)
    return SimulatedCloud(CloudRegion(site.procs), clock, behaviour)


def open_batch(site: Site) -> BatchSite:
    """A real batch site, to be asked; InputError for any other."""
    if site.driver not in _DIALECTS:
        raise InputError(
            f"site '{site.name}' has the driver '{site.driver}', not a batch system", where="SITE"
        )
    dialect, shell = _DIALECTS[site.driver](), Shell(site.name, site.access)
    return BatchSite(site.name, dialect, shell, site.access)


def open_site(site: Site, clock: Clock | None = None) -> BatchDriver | CloudDriver | DaskCluster:
    """The driver of a real batch site, cloud or Dask cluster; SiteError where there are no
    credentials."""
    if site.driver == "dask":
        from vgrads.drivers.dask_cluster import DaskCluster

        return DaskCluster(site.name, site.access, clock or WallClock())
    if site.driver not in ("ec2", "eucalyptus"):
        return BatchDriver(open_batch(site), clock or WallClock())
    from vgrads.drivers.ec2 import open_ec2, open_eucalyptus  # libcloud is needed for clouds only

    opens = open_ec2 if site.driver == "ec2" else open_eucalyptus
    credentials = find_credentials(site.name, site.access.profile)
    prices = {
        node.name: Price(
            usd_per_hour=node.price_usd_per_hour,
            spot_usd_per_hour=node.spot_price_usd_per_hour,
            billing_s=site.billing_s,
        )
        for node in site.nodes
    }
    api = opens(site.name, site.access, credentials)
    return CloudDriver(site.name, api, clock or WallClock(), site.access, prices)


def _cluster(site: Site, around: Surrounding) -> BatchCluster:
    cluster = BatchCluster(site.procs, cycle_s=site.cycle_s, cycle_phase_s=site.cycle_phase_s)
    until_s = around.until_s + HORIZON_S
    for outage in draw_outages(_nodes(site), until_s, stream(around.seed, "outages", site.name)):
        cluster.break_down(outage)
    laid_out: set[str] = set()  # two queues may share one log: its jobs are there once
    for queue in site.queues:
        key = (site.name, queue.name)
        if key in around.logs and around.logs[key].name not in laid_out:
            laid_out.add(around.logs[key].name)
            load_background(cluster, around.logs[key], around.instants[key], until_s)
    return cluster


def _nodes(site: Site) -> Nodes:
    cores = site.nodes[0].cores
    count = max(1, site.procs // cores)
    return Nodes(count=count, cores=cores, mtbf_s=site.node_mtbf_s, repair_s=site.node_repair_s)


def make_virtual_engine(clock: Clock, snapshot: Snapshot, seed: int) -> Engine:
    """Virtual tasks at simulated sites."""
    luck = Luck(
        seed=seed,
        factor=lambda order: drawn_factor(snapshot, seed, order.key, order.site),
        failures={slot.id: slot.task_failure for slot in snapshot.slots},
    )
    return SimulatedEngine(clock, luck)


def make_local_engine(
    clock: Clock, folders: tuple[Path, Path], own: bool, pass_env: tuple[str, ...] = ()
) -> ProcessEngine:
    """Processes of this machine (run folder, set folder); ``own``: with this process's environment;
    ``pass_env``: what the set wants passed of it."""
    run_folder, set_folder = (folder.resolve() for folder in folders)
    return ProcessEngine(clock, TaskFolder(run_folder, set_folder, own=own, requested=pass_env))


def make_real_engine(
    catalog: Catalog,
    names: Iterable[str],
    clock: Clock,
    folders: tuple[Path, Path],
    own: bool,
    pass_env: tuple[str, ...] = (),
) -> tuple[Engine, dict[str, Reach]]:
    """Processes of this machine, and through pilots in slots elsewhere (run folder, set folder)."""
    here = TaskFolder(
        folders[0].resolve(),
        folders[1].resolve(),
        own=own,
        requested=pass_env,
        allowed={site.name: site.pass_env for site in catalog.sites},
    )
    values = own_values(pass_env) if own else {}
    news: News = SimpleQueue()
    processes = ProcessEngine(clock, here, news)
    sites = [catalog.site(name) for name in names]
    apart = frozenset(site.name for site in sites if is_real(site) and not _shares_files(site))
    away = AwayEngine(clock, replace(here, kind=AWAY, own=False, values=values), news, apart)
    by_site: dict[str, SharingEngine] = {}
    reach: dict[str, Reach] = {}
    for site in sites:
        by_site[site.name] = away if is_real(site) else processes
        if is_real(site):
            reach[site.name] = Reach(
                poll_s=site.access.poll_s,
                pilot=partial(_pilot, site, away),
                reports=away.reports,
                patience_s=_PATIENCE_S + 2 * site.boot_s,
            )
    return Engines(by_site, news), reach


def own_values(names: Iterable[str]) -> dict[str, str]:
    """Variables that whoever runs this process wants passed to tasks of theirs, wherever these
    run."""
    return {name: os.environ[name] for name in names if name in os.environ}


def sweep_others(drivers: Mapping[str, Driver], run_id: str, wanted: Collection[str]) -> None:
    """Give back what bears the mark of a run and is none of the slots that it wants: begun behind
    the end of its journal, or ended for it and not for the site."""
    for driver in drivers.values():
        if isinstance(driver, BatchDriver | CloudDriver):
            with suppress(
                SiteError
            ):  # a silent site is asked again, and `vgrads sites sweep` finds the rest
                held = driver.held()
                driver.sweep([h.handle for h in held if h.run == run_id and h.slot not in wanted])


def await_gone(drivers: Mapping[str, Driver], run_id: str) -> None:
    """Wait until real sites show nothing of a run any more; a site that is silent or slow is not
    waited for long."""
    end_s = time.monotonic() + _GONE_S
    for driver in drivers.values():
        while isinstance(driver, BatchDriver | CloudDriver) and time.monotonic() < end_s:
            try:
                if not any(held.run == run_id for held in driver.held()):
                    break
            except SiteError:
                break
            time.sleep(1.0)


def _pilot(site: Site, away: AwayEngine) -> Pilot:
    """What a slot of a site runs. The first one asked for opens this machine's port for workers."""
    python = f"{quote(python_of(site))} -P"  # nothing of the folder that the slot starts in
    environment = away.dask().environment(contact_host(site))
    tried = f"{python} -c 'import vgrads.execmgr.pilot' || exit {CANNOT_WORK}"
    return Pilot(command=f"{tried}\nexec {python} -m vgrads.execmgr.pilot", environment=environment)


def python_of(site: Site) -> str:
    """The interpreter that pilots of a site are started with."""
    return site.access.python or (sys.executable if _shares_files(site) else "python3")


def _shares_files(site: Site) -> bool:
    """True where slots see this machine's files under the same paths."""
    stated = site.access.shared_files
    return stated if stated is not None else site.kind != "cloud" and not site.access.host


def contact_host(site: Site) -> str:
    """The address under which slots of a site reach this machine."""
    try:
        return site.access.contact or socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise SiteError(
            f"this machine does not know its own address: {error}",
            site=site.name,
            transient=False,
            fix="access.contact names the address under which slots reach it",
        ) from error

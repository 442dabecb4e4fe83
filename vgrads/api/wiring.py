"""Wiring: the only module that knows concrete drivers, engines and clocks, and combines them."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, TypeGuard

from vgrads.agent.environment import pass_environment
from vgrads.api.config import home, make_home
from vgrads.drivers.api import Driver
from vgrads.drivers.local import LocalDriver
from vgrads.exchange import agent_file
from vgrads.execmgr.engines.base import Engine
from vgrads.execmgr.pilots import Pilot, SitePolling
from vgrads.kernel.clock import Clock, SimClock, WallClock
from vgrads.kernel.errors import InputError, SiteError
from vgrads.vgrid.catalog import Catalog, Site

if TYPE_CHECKING:
    from vgrads.drivers.batch import BatchDriver
    from vgrads.drivers.batch_site import BatchSite
    from vgrads.drivers.cloud import CloudDriver
    from vgrads.drivers.dask_cluster import DaskCluster
    from vgrads.drivers.dialect import Dialect
    from vgrads.execmgr.engines.agents import AgentEngine
    from vgrads.execmgr.engines.completion_queue import Completions
    from vgrads.execmgr.engines.composite import SharingEngine
    from vgrads.execmgr.engines.processes import ProcessEngine
    from vgrads.execmgr.tasks.folder import TaskFolder
    from vgrads.planner.plan import Plan
    from vgrads.planner.snapshot import Snapshot
    from vgrads.simulator.cluster import BatchCluster
    from vgrads.simulator.load import Nodes
    from vgrads.traces.records import JobLog

_DIALECTS = ("slurm", "gridengine", "pbs")
_PACE_STEP_S = 0.5
_GONE_S = 90.0  # Slurm gives jobs half a minute to end, its daemon more
_PATIENCE_S = 180.0  # for the pilot of a ready slot: Python may start slowly
PILOT = 2
"""Version of the pilots that a manager works with, stored with each run. Increase it if the
current manager cannot work with pilots that an earlier one has queued."""
HORIZON_S = 3 * 86400.0  # background load beyond the deadline


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Start of sites: histories, the instant on the clock of each, the seed of simulated ones;
    ``now_s``: site → the zero of the run's clock in seconds since 1970 (absent: now)."""

    logs: Mapping[tuple[str, str], JobLog]
    instants: Mapping[tuple[str, str], float]
    until_s: float
    seed: int
    now_s: Mapping[str, float] = field(default_factory=dict)

    def zero_s(self, site: Site, clock: Clock) -> float:
        """Return the zero of the run's clock in seconds since 1970."""
        if is_real(site) or site.name not in self.now_s:
            return time.time() - clock.now()
        return self.now_s[site.name]


def is_real(site: Site) -> bool:
    """True if slots are requested on machines of others."""
    return site.driver not in ("simulated", "local")


def is_batch_system(site: Site) -> bool:
    """True for a real batch system, which lists its queue."""
    return is_real(site) and site.kind == "batch"


def uses_real_site(catalog: Catalog, plan: Plan) -> bool:
    """True if a plan uses a site that is not simulated."""
    return any(catalog.site(use.slot.site).driver != "simulated" for use in plan.uses)


def are_all_simulated(sites: Iterable[Site]) -> bool:
    """True if no site is real; InputError if real and simulated ones are mixed."""
    kinds = {site.driver == "simulated" for site in sites}
    if len(kinds) > 1:
        raise InputError("simulated and real sites cannot be mixed in one run", where="sites")
    return kinds == {True}


def make_clock(simulated: bool, speed: float | None, elapsed_s: float = 0.0) -> Clock:
    """Return virtual time for simulated sites (paced if a speed is given), wall time for real
    ones."""
    if not simulated:
        return WallClock(elapsed_s)
    return SimClock() if speed is None else PacedClock(speed)


class PacedClock(SimClock):
    """Virtual time at a visible pace: ``speed`` virtual seconds per real second.

    It advances in short steps, so that callers can act in between: a run may be cancelled.
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
    around: Wiring,
    perhaps: Iterable[str] = (),
    own: bool = False,
) -> dict[str, Driver]:
    """Return a driver for each needed site, and for those of ``perhaps`` that can be reached now.
    ``own``: pilots on this machine are for tasks of the user of this process, and get its
    environment."""
    drivers = {name: _open_driver(catalog.site(name), clock, around, own) for name in needed}
    for name in perhaps:
        if name not in drivers:
            with suppress(SiteError):
                drivers[name] = _open_driver(catalog.site(name), clock, around)
    return drivers


def _open_driver(site: Site, clock: Clock, around: Wiring, own: bool = False) -> Driver:
    """Return a site's driver, which keeps to its closed windows: a simulated cluster does so by
    itself."""
    driver = _make_driver(site, clock, around, own)
    if not site.closed or (site.kind == "batch" and site.driver == "simulated"):
        return driver
    from vgrads.execmgr.closed_site import ClosedSite

    return ClosedSite(driver, site, clock, around.zero_s(site, clock))


def _make_driver(site: Site, clock: Clock, around: Wiring, own: bool = False) -> Driver:
    if site.driver == "local":
        passed = None if own else pass_environment(os.environ, False, allowed=site.pass_env)[0]
        return LocalDriver(site.procs, clock, passed)
    if site.driver != "simulated":
        return open_site(site, clock)
    return _make_simulated(site, clock, around)


def _make_simulated(site: Site, clock: Clock, around: Wiring) -> Driver:
    from vgrads.drivers.simulated import SimulatedBatch, SimulatedCloud, SiteBehaviour
    from vgrads.simulator.cloud import CloudRegion

    behaviour = SiteBehaviour(
        slot_up=site.slot_up,
        slot_acquire=site.slot_acquire,
        boot_s=site.boot_s,
        boot_spread=site.boot_spread,
        spot_interruptions_per_hour=max(node.spot_interruptions_per_hour for node in site.nodes),
        seed=around.seed,
    )
    if site.kind == "batch":
        cluster = _make_cluster(site, around, around.zero_s(site, clock))
        return SimulatedBatch(cluster, clock, behaviour)
    return SimulatedCloud(CloudRegion(site.procs), clock, behaviour)


def open_batch(site: Site) -> BatchSite:
    """Open a real batch site for queries; InputError for any other."""
    if site.driver not in _DIALECTS:
        raise InputError(
            f"site '{site.name}' has the driver '{site.driver}', not a batch system", where="SITE"
        )
    from vgrads.drivers.batch_site import BatchSite
    from vgrads.drivers.shell import Shell

    shell = Shell(site.name, site.access)
    max_walltime_s = {queue.name: queue.max_walltime_s for queue in site.queues}
    return BatchSite(site.name, _find_dialect(site.driver), shell, site.access, max_walltime_s)


def derive_site_file(site: Site, kind: str) -> Path:
    """Return a file of this user about a real site, under its name and a digest of how it is
    reached."""
    # a site that moves to another host must not find the files of the former one
    identity = repr((site.driver, site.access.host, site.access.ssh_options)).encode()
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", site.name)[:60]
    return home() / "queues" / f"{plain}-{hashlib.sha256(identity).hexdigest()[:8]}.{kind}"


def _find_dialect(driver: str) -> Dialect:
    from vgrads.drivers.gridengine import GridEngine
    from vgrads.drivers.pbs import Pbs
    from vgrads.drivers.slurm import Slurm

    dialects: dict[str, Callable[[], Dialect]]
    dialects = {"slurm": Slurm, "gridengine": GridEngine, "pbs": Pbs}
    return dialects[driver]()


def open_site(site: Site, clock: Clock | None = None) -> BatchDriver | CloudDriver | DaskCluster:
    """Return the driver of a real batch site, cloud or Dask cluster; SiteError if there are no
    credentials."""
    if site.driver == "dask":
        from vgrads.drivers.dask_cluster import DaskCluster

        return DaskCluster(site.name, site.access, clock or WallClock())
    if site.driver not in ("ec2", "eucalyptus"):
        from vgrads.drivers.batch import BatchDriver
        from vgrads.drivers.look_limit import LookLimit

        with suppress(OSError):  # then nothing is known of other processes
            make_home()
        limit = LookLimit(derive_site_file(site, "looks"), site.access.poll_s)
        return BatchDriver(open_batch(site), clock or WallClock(), limit.permits)
    from vgrads.drivers.cloud import CloudDriver, NodePrice
    from vgrads.drivers.credentials import find_credentials
    from vgrads.drivers.ec2 import open_ec2, open_eucalyptus  # only clouds need libcloud

    opens = open_ec2 if site.driver == "ec2" else open_eucalyptus
    credentials = find_credentials(site.name, site.access.profile)
    prices = {
        node.name: NodePrice(
            usd_per_hour=node.price_usd_per_hour,
            spot_usd_per_hour=node.spot_price_usd_per_hour,
            billing_s=site.billing_s,
        )
        for node in site.nodes
    }
    api = opens(site.name, site.access, credentials)
    return CloudDriver(site.name, api, clock or WallClock(), site.access, prices)


def _make_cluster(site: Site, around: Wiring, zero_s: float) -> BatchCluster:
    from vgrads.kernel.streams import stream
    from vgrads.simulator.cluster import BatchCluster
    from vgrads.simulator.load import draw_outages, load_background
    from vgrads.vgrid.closures import find_closures

    cluster = BatchCluster(site.procs, cycle_s=site.cycle_s, cycle_phase_s=site.cycle_phase_s)
    until_s = around.until_s + HORIZON_S
    for outage in draw_outages(
        _list_nodes(site), until_s, stream(around.seed, "outages", site.name)
    ):
        cluster.break_down(outage)
    for closure in find_closures(site, zero_s):
        cluster.close(closure.begin_s - zero_s, closure.end_s - zero_s, closure.left)
    laid_out: set[str] = set()  # two queues may share one log: its jobs count once
    for queue in site.queues:
        key = (site.name, queue.name)
        if key in around.logs and around.logs[key].name not in laid_out:
            laid_out.add(around.logs[key].name)
            load_background(cluster, around.logs[key], around.instants[key], until_s)
    return cluster


def _list_nodes(site: Site) -> Nodes:
    from vgrads.simulator.load import Nodes

    cores = site.nodes[0].cores
    count = max(1, site.procs // cores)
    return Nodes(count=count, cores=cores, mtbf_s=site.node_mtbf_s, repair_s=site.node_repair_s)


def make_virtual_engine(clock: Clock, snapshot: Snapshot, seed: int) -> Engine:
    """Return the engine of virtual tasks at simulated sites."""
    from vgrads.execmgr.engines.simulated import FailureModel, SimulatedEngine
    from vgrads.planner.promise.lengths import drawn_factor

    failure_model = FailureModel(
        seed=seed,
        factor=lambda order: drawn_factor(snapshot, seed, order.key, order.site),
        failures={slot.id: slot.task_failure for slot in snapshot.slots},
    )
    return SimulatedEngine(clock, failure_model)


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """A run's id and folder, the folder of its set, and what its tasks get: ``own``: the
    environment of this process; ``pass_env``: variables of it that the set requests; ``account``:
    of the tasks, where agents run as root. Then also tasks of this machine run under agents, and
    their files are sent."""

    run: str
    folder: Path
    set_folder: Path
    own: bool
    pass_env: tuple[str, ...] = ()
    account: int = 0

    def tasks(self, sites: Iterable[Site] = ()) -> TaskFolder:
        """Return the folder of the tasks at these sites."""
        from vgrads.execmgr.tasks.folder import TaskFolder

        sites = tuple(sites)
        private = {site.name: site.private_addresses for site in sites}
        return TaskFolder(
            self.folder.resolve(),
            self.set_folder.resolve(),
            own=self.own,
            requested=self.pass_env,
            allowed={site.name: site.pass_env for site in sites},
            private={s: self.own if may is None else may for s, may in private.items()},
            account=self.account,
        )


def make_local_engine(clock: Clock, files: RunFiles) -> ProcessEngine:
    """Return the engine of processes of this machine."""
    from vgrads.execmgr.engines.processes import ProcessEngine

    return ProcessEngine(clock, files.tasks())


def make_real_engine(
    catalog: Catalog, names: Iterable[str], clock: Clock, files: RunFiles
) -> tuple[Engine, dict[str, SitePolling]]:
    """Return the engine of processes of this machine, and of agents in slots elsewhere."""
    from vgrads.execmgr.engines.agents import AgentEngine  # plans and simulations need no keys
    from vgrads.execmgr.engines.composite import Engines
    from vgrads.execmgr.engines.processes import ProcessEngine
    from vgrads.execmgr.tasks.folder import AWAY

    here = files.tasks(catalog.sites)
    values = read_own_values(files.pass_env) if files.own else {}
    news: Completions = Queue()
    processes = ProcessEngine(clock, here, news)
    sites = [catalog.site(name) for name in names]
    remote = [site for site in sites if is_real(site) or files.account]
    apart = frozenset(s.name for s in remote if files.account or not _shares_files(s))
    there = replace(here, kind=AWAY, own=False, values=values)
    away = AgentEngine(files.run, clock, there, news, apart, files.account)
    by_site: dict[str, SharingEngine] = {}
    polling: dict[str, SitePolling] = {}
    for site in sites:
        by_site[site.name] = away if site in remote else processes
        if site in remote:
            polling[site.name] = SitePolling(
                poll_s=site.access.poll_s,
                pilot=partial(_make_pilot_command, site, away),
                reports=away.reports,
                patience_s=_PATIENCE_S + 2 * site.boot_s,
                dismiss=away.dismiss,
            )
    return Engines(by_site, news), polling


def read_own_values(names: Iterable[str]) -> dict[str, str]:
    """Return the variables that the user of this process passes to their tasks at every site."""
    return {name: os.environ[name] for name in names if name in os.environ}


def remove_other_jobs(drivers: Mapping[str, Driver], run_id: str, needed: Collection[str]) -> None:
    """Remove jobs with the mark of a run whose slots it does not need: submitted after the end of
    its journal, or ended for the run but not at the site."""
    for driver in map(_find_innermost, drivers.values()):
        if _is_real_driver(driver):
            with suppress(SiteError):  # retried; `vgrads sites sweep` finds the rest
                jobs = driver.marked_jobs()
                driver.sweep([h.handle for h in jobs if h.run == run_id and h.slot not in needed])


def await_gone(drivers: Mapping[str, Driver], run_id: str) -> None:
    """Wait until real sites list no more jobs of a run; the wait for a silent or slow site is
    short."""
    end_s = time.monotonic() + _GONE_S
    for driver in map(_find_innermost, drivers.values()):
        while _is_real_driver(driver) and time.monotonic() < end_s:
            try:
                if not any(job.run == run_id for job in driver.marked_jobs()):
                    break
            except SiteError:
                break
            time.sleep(1.0)


def _find_innermost(driver: Driver) -> Driver:
    from vgrads.execmgr.closed_site import ClosedSite

    return driver.driver if isinstance(driver, ClosedSite) else driver


def _is_real_driver(driver: Driver) -> TypeGuard[BatchDriver | CloudDriver]:
    """Return True for a driver that lists the jobs with a run's mark."""
    from vgrads.drivers.batch import BatchDriver
    from vgrads.drivers.cloud import CloudDriver

    return isinstance(driver, BatchDriver | CloudDriver)


def _make_pilot_command(site: Site, engine: AgentEngine) -> Pilot:
    """Return the command of a site's slots. The first call opens this machine's port for agents."""
    host = find_contact_host(site) if is_real(site) else "127.0.0.1"
    passes = {"VGRADS_PASS_ENV": " ".join(site.pass_env)} if site.pass_env else {}
    return Pilot(
        command=make_agent_command(site),
        environment=engine.environment(host) | passes,
        of_slot=engine.key_for,
    )


def make_agent_command(site: Site) -> str:
    """Return the command that starts agents of a site."""
    if site.driver == "local" and not site.access.python:
        return agent_file.write_installed_agent_command()
    if site.kind == "cloud":  # user data is short
        return agent_file.write_fetching_agent_command(*list_pythons(site))
    return agent_file.write_agent_command(*list_pythons(site))


def list_pythons(site: Site) -> tuple[str, ...]:
    """Return the interpreters for agents of a site; the first that exists is used."""
    if site.access.python:
        return (site.access.python,)
    # the interpreter of this process exists at a site only where files are shared
    return (sys.executable, "python3") if _shares_files(site) else ("python3",)


def explain_missing_python(site: Site) -> str:
    """Return why a batch site has no interpreter for agents; empty if it has one, or starts them
    elsewhere."""
    return open_batch(site).python_problem(list_pythons(site)) if site.driver in _DIALECTS else ""


def _shares_files(site: Site) -> bool:
    """True if slots see this machine's files under the same paths."""
    stated = site.access.shared_files
    return stated if stated is not None else site.kind != "cloud" and not site.access.host


def find_contact_host(site: Site) -> str:
    """Return the address of this machine for slots of a site."""
    try:
        return site.access.contact or socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise SiteError(
            f"the address of this machine cannot be determined: {error}",
            site=site.name,
            transient=False,
            fix="set access.contact to the address under which slots reach it",
        ) from error

"""Carrying plans out: started, resumed after the manager was killed, cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from vgrads.api.plans.planning import Grid, Planned, as_it_stands, as_planned, open_grid, take_slots
from vgrads.api.plans.refusals import refuse_without_commands, refuse_without_s3
from vgrads.api.plans.runtimes import NOTHING, RunTimes
from vgrads.api.plans.up_to_date import carry_over
from vgrads.api.queues.histories import Instant
from vgrads.api.wiring import (
    PILOT,
    Surrounding,
    all_simulated,
    await_gone,
    make_clock,
    make_drivers,
    make_local_engine,
    make_real_engine,
    make_virtual_engine,
    sweep_others,
)
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.acquisitions import acquisitions
from vgrads.execmgr.core.book import Book, make_book, spec_id
from vgrads.execmgr.core.endings import workflows_done
from vgrads.execmgr.core.journal import Journal, advance
from vgrads.execmgr.core.remainder import plan_growth, plan_remainder
from vgrads.execmgr.core.states import Cancelled, Event, RunState, SlotNews
from vgrads.execmgr.core.step import begin
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.engines.base import Engine, Reach
from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.execmgr.mailbox import Mailbox
from vgrads.execmgr.runner import (
    POLL_S,
    Grower,
    Replanner,
    Runner,
    Surroundings,
    Watcher,
    no_replanner,
)
from vgrads.kernel.clock import Moment
from vgrads.planner.replan import Offers
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.task import Task

_QUICK_S = 0.1  # between looks into the mailbox of a run whose tasks are released


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended: workflow → when it was done, and whether the promise held; ``spent``: where
    its tasks' time went."""

    book: Book
    state: RunState
    done: Mapping[str, float]
    spent: Times = Times()  # noqa: RUF009 frozen

    @property
    def in_time(self) -> int:
        """Workflows done by the deadline."""
        deadline_s = self.book.plan.deadline_s
        return sum(at_s <= deadline_s for at_s in self.done.values())

    @property
    def kept(self) -> bool:
        return self.in_time >= self.book.plan.needed

    @property
    def verdict(self) -> str:
        """kept, broken or cancelled."""
        if self.kept:
            return "kept"
        return "cancelled" if self.state.cancelled else "broken"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run: under which id, where files go, how fast virtual time passes, with which luck.

    ``at``: the instant of the histories that the plan was made for; ``replan``: plan the remainder
    anew where too little is left; ``own``: the tasks belong to whoever runs this process, and get
    its environment.
    """

    run_id: str
    folder: Path
    speed: float | None = None
    seed: int = 0
    at: Instant = None
    replan: bool = True
    own: bool = False


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a run was started with: all that is needed to go on with it. When: see
    :class:`vgrads.kernel.clock.Moment`. ``pilot``: of its slots, 0 before that was kept."""

    options: RunOptions
    catalog: Catalog
    began_unix_s: float
    began_boot: str = ""
    began_up_s: float = 0.0
    pilot: int = 0


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A run whose manager is gone: what it was started with, its books, what it has come to by its
    journal.

    ``seen``: how slots of earlier runs fared, ``run_times``: what was learned of tasks, both for
    planning anew.
    """

    setup: Setup
    books: list[Book]
    state: RunState
    seen: Sequence[Acquisition] = ()
    run_times: RunTimes = NOTHING

    @property
    def passed_s(self) -> float:
        """How long ago it began, in seconds of its clock; never before what its journal tells
        of."""
        began = Moment(self.setup.began_unix_s, self.setup.began_boot, self.setup.began_up_s)
        return max(began.passed_s(), self.state.now_s)


class Record(Journal, Protocol):
    """A journal that keeps books as well, and hears of a wish to stop."""

    def keep_setup(self, setup: Setup) -> None:
        """Keep what the run was started with."""

    def keep_book(self, version: int, book: Book) -> None:
        """Keep a book."""

    def mailbox(self) -> Mailbox | None:
        """From and to whoever releases the tasks of the run; None where nobody can."""

    def stop_reason(self) -> str:
        """Why the run is to stop; empty while it is not."""


def run_plan(
    planned: Planned,
    options: RunOptions,
    record: Record,
    watch: Watcher | None = None,
    outside: OutsideEngine | None = None,
) -> Outcome:
    """Execute a plan to its end; ``outside``: somebody else runs the tasks, in real time."""
    setup, book = prepare_run(planned, options, outside is None)
    record.keep_setup(setup)
    record.keep_book(0, book)
    return start_run(planned.grid, setup, book, record, watch, outside)


def prepare_run(planned: Planned, options: RunOptions, own: bool = True) -> tuple[Setup, Book]:
    """What a run begins with, to be kept before anything is done; InputError where tasks cannot be
    run that are our ``own`` to run."""
    book = make_book(planned.plan, planned.snapshot)
    setup = begun_now(options, planned.grid.catalog)
    if own and not is_simulated(book, setup.catalog) and not book.released:
        refuse_without_commands(book)
        refuse_without_s3(book)
    return setup, book


def start_run(
    grid: Grid,
    setup: Setup,
    book: Book,
    record: Record,
    watch: Watcher | None = None,
    outside: OutsideEngine | None = None,
) -> Outcome:
    """Execute from its beginning a run of which nothing is journalled."""
    carry_over(book.plan.done, book.snapshot.wanted, setup.options.folder)
    if not book.plan.placements:  # all was done before
        return Outcome(book=book, state=begin(book), done={})
    around = _surroundings(book, setup, grid, record, 0.0, outside)
    return _outcome(Runner(setup.options.run_id, book, around, watch), lambda runner: runner.run())


def resume_run(
    begun: Begun, record: Record, watch: Watcher | None = None, outside: OutsideEngine | None = None
) -> Outcome:
    """Go on with a run whose manager is gone. Simulated sites went with it: those are played
    again."""
    setup, books = begun.setup, begun.books
    grid = open_grid(setup.catalog, setup.options.at, seen=begun.seen, run_times=begun.run_times)
    if is_simulated(books[0], setup.catalog):
        return start_run(grid, setup, books[0], record, watch, outside)
    if begun.state == begin(books[0]):  # its manager may have ended before this was done
        carry_over(books[0].plan.done, books[0].snapshot.wanted, setup.options.folder)
    if not books[0].plan.placements:
        return Outcome(book=books[0], state=begun.state, done={})
    around = _surroundings(books[0], setup, grid, record, begun.passed_s, outside)
    wanted = wanted_slots(books[begun.state.version], begun.state, setup.options.run_id)
    sweep_others(around.drivers, setup.options.run_id, wanted)
    runner = Runner(setup.options.run_id, books[begun.state.version], around, watch)
    return _outcome(runner, lambda r: r.resume(begun.state))


def wanted_slots(book: Book, state: RunState, run_id: str) -> set[str]:
    """Slots that a run has or may still ask for, by their names at the sites; what ended is wanted
    no more."""
    ended = {s for s, r in state.slots.items() if r.state is not None and r.state.ended}
    again = {s: r.again for s, r in state.slots.items()}
    return {spec_id(s, run_id, again.get(s, 0)) for s in book.uses if s not in ended}


def cancel_run(begun: Begun, record: Record, reason: str) -> Outcome:
    """Give back what a run holds whose manager is gone, and return when it is gone; nothing is
    planned."""
    catalog, options, state = begun.setup.catalog, begun.setup.options, begun.state
    book = begun.books[state.version]
    if is_simulated(begun.books[0], catalog):  # its sites ended with its manager
        end: list[Event] = [Cancelled(at_s=state.now_s, reason=reason), *_released(state)]
        record.append(end)
        for event in end:
            state = advance(begun.books, state, event)
        return Outcome(book=book, state=state, done=workflows_done(book, state))
    clock = make_clock(False, None, begun.passed_s)
    held = {s for s, r in state.slots.items() if r.state is not None and not r.state.ended}
    needed = sorted({book.uses[slot].slot.site for slot in held})
    asked = {book.uses[slot].slot.site for slot, r in state.slots.items() if r.state is not None}
    nothing = Surrounding(logs={}, instants={}, until_s=0.0, seed=0)
    drivers = make_drivers(catalog, needed, clock, nothing, sorted(asked))
    engine = make_local_engine(
        clock, _folders(options, book), options.own, book.snapshot.wanted.pass_env
    )
    around = Surroundings(drivers=drivers, clock=clock, journal=record, engine=engine)
    runner = Runner(options.run_id, book, around)
    return _outcome(runner, lambda r: r.cancel(state, reason))


def _released(state: RunState) -> list[Event]:
    return [
        SlotNews(
            at_s=state.now_s, slot=slot, state=SlotState.RELEASED, reason="gone with its manager"
        )
        for slot, record in state.slots.items()
        if record.state is not None and not record.state.ended
    ]


def _folders(options: RunOptions, book: Book) -> tuple[Path, Path]:
    return options.folder, Path(book.snapshot.wanted.directory)


def begun_now(options: RunOptions, catalog: Catalog) -> Setup:
    """What a run is started with that begins at this instant."""
    now = Moment.now()
    return Setup(
        options=options,
        catalog=catalog,
        began_unix_s=now.unix_s,
        began_boot=now.boot,
        began_up_s=now.up_s,
        pilot=PILOT,
    )


def _outcome(runner: Runner, work: Callable[[Runner], RunState]) -> Outcome:
    state = work(runner)
    if state.cancelled:
        sweep_others(runner.around.drivers, runner.run_id, ())
        await_gone(runner.around.drivers, runner.run_id)
    done = workflows_done(runner.book, state)
    return Outcome(book=runner.book, state=state, done=done, spent=runner.own_work.spent)


def is_simulated(book: Book, catalog: Catalog) -> bool:
    return all_simulated(catalog.site(name) for name in {u.slot.site for u in book.uses.values()})


def _surroundings(
    book: Book,
    setup: Setup,
    grid: Grid,
    record: Record,
    passed_s: float,
    outside: OutsideEngine | None = None,
) -> Surroundings:
    """Drivers, engine, clock and planner of a run that began ``passed_s`` ago."""
    catalog, options = setup.catalog, setup.options
    simulated = is_simulated(book, catalog)
    clock = outside.clock if outside else make_clock(simulated, options.speed, passed_s)
    around = Surrounding(
        logs=grid.logs, instants=grid.instants, until_s=book.plan.deadline_s, seed=options.seed
    )
    needed = sorted({use.slot.site for use in book.uses.values()})
    drivers = make_drivers(catalog, needed, clock, around, _same_world(catalog, simulated))
    names = tuple(drivers)
    reach: dict[str, Reach] = {}
    engine: Engine
    if outside is not None:
        engine = outside
    elif simulated:
        engine = make_virtual_engine(clock, book.snapshot, options.seed)
    else:
        engine, reach = make_real_engine(
            catalog,
            names,
            clock,
            _folders(options, book),
            options.own,
            book.snapshot.wanted.pass_env,
        )
    return Surroundings(
        drivers=drivers,
        clock=clock,
        journal=record,
        engine=engine,
        reach=reach,
        replan=_replanner(grid, names, record) if options.replan else no_replanner,
        grow=_grower(grid, names, record),
        mailbox=record.mailbox() if book.released else None,
        poll_s=_QUICK_S if book.released else POLL_S,
        asked_to_stop=record.stop_reason,
    )


def _same_world(catalog: Catalog, simulated: bool) -> tuple[str, ...]:
    """The sites that a run may turn to: all simulated ones, or all real ones."""
    return tuple(s.name for s in catalog.sites if (s.driver == "simulated") == simulated)


def _replanner(grid: Grid, names: tuple[str, ...], record: Record) -> Replanner:
    """The planner for what is left, over fresh offers of the same sites; its books are kept before
    they rule.

    How the run's own slots fared so far counts as what was seen before.
    """

    def again(book: Book, state: RunState) -> tuple[Book | None, str]:
        found, reason = plan_remainder(book, state, _offers(grid, names, book, state))
        if found is not None:
            record.keep_book(state.version + 1, found)
        return found, reason

    return again


def _grower(grid: Grid, names: tuple[str, ...], record: Record) -> Grower:
    """The same with tasks that were added; what is known of their kinds says how long they take."""

    def larger(
        book: Book, state: RunState, added: Sequence[tuple[str, Task]]
    ) -> tuple[Book | None, str]:
        offers = _offers(grid, names, book, state)
        found, reason = plan_growth(book, state, offers, as_planned(added, grid))
        if found is not None:
            record.keep_book(state.version + 1, found)
        return found, reason

    return larger


def _offers(grid: Grid, names: tuple[str, ...], book: Book, state: RunState) -> Offers:
    sites = tuple(site for site in grid.catalog.sites if site.name in names)
    usable = replace(grid, catalog=replace(grid.catalog, sites=sites))
    wiser = replace(
        as_it_stands(usable, state.now_s), seen=(*usable.seen, *acquisitions(book, state))
    )
    return lambda rest: take_slots(rest, wiser)

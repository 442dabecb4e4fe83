"""Planning and looking from the command line: files in, charts and rows out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

from vgrads.api.plans.answers import plan_json, planned_gantt
from vgrads.api.plans.planning import Planned, open_grid, plan_set
from vgrads.api.plans.runtimes import NOTHING
from vgrads.api.plans.runtimes import told as guesses
from vgrads.api.plans.up_to_date import up_to_date
from vgrads.api.queues.first_words import refusals, told
from vgrads.api.queues.histories import Instant
from vgrads.api.queues.log_queues import changed_defaults
from vgrads.kernel.documents import load_mapping
from vgrads.kernel.errors import InfeasibleError, InputError
from vgrads.kernel.files import write_bytes
from vgrads.kernel.units import parse_duration, parse_probability
from vgrads.planner.explain import explain
from vgrads.planner.make import STANDARD, Options
from vgrads.planner.policies import check_rule, make_pipeline
from vgrads.portal.charts.exports import export, format_of, reasons_of
from vgrads.portal.cli.plans.plan_text import relaxation_text
from vgrads.portal.cli.terminal import busy, console, print_warnings
from vgrads.portal.records.earlier import runs_of_name
from vgrads.portal.records.sites import choose_catalog, past_acquisitions, past_run_times
from vgrads.portal.records.store import Store
from vgrads.workflows.sets import NOTHING_BESIDE, Beside, load_set


@dataclass(frozen=True, kw_only=True)
class HowToPlan:
    """Options of a plan. ``learned``: let what earlier runs saw of the sites correct what their
    file states; ``asked``: how sure the promise must be, instead of what the set says; ``rerun``:
    plan also what is done already."""

    seed: int = 0
    learned: bool = True
    options: Options = STANDARD
    asked: float | None = None
    rerun: bool = False


def level_of(text: str | None) -> float | None:
    """How sure a promise must be, as it was said; InputError for a probability that is none."""
    if text is None:
        return None
    if text in ("joint", "paper"):
        raise InputError(
            "is a number", where="--probability", fix=f"--reckon {text} chooses the rule"
        )
    return parse_probability(text, "--probability")


def plan_file(
    set_file: Path, sites: Path | None, at: Instant, how: HowToPlan, beside: Beside = NOTHING_BESIDE
) -> Planned:
    """Plan the set in a file against the sites given, named by the set, of the database, or
    embedded.

    ``beside``: what is said beside the file; with a deadline it may be a workflow's.

    InputError for an unknown policy or rule comes before anything is read.
    """
    make_pipeline(how.options.policy)
    check_rule(how.options.probability)
    wanted, named = load_set(set_file, beside=beside)
    if how.asked is not None:
        wanted = replace(wanted, probability=how.asked)
    file = sites or (Path(named) if named else None)
    catalog = choose_catalog(file)
    out = console(stderr=True)
    with busy(out, "planning") as doing:
        seen = past_acquisitions() if how.learned else ()
        run_times = past_run_times() if how.learned else NOTHING
        grid = open_grid(catalog, at, notify=doing, seen=seen, run_times=run_times)
        doing("looking for what is done already")
        done = () if how.rerun else up_to_date(wanted, catalog, runs_of_name(wanted.name))
        doing("planning")
        planned = plan_set(wanted, grid, how.seed, how.options, done)
    print_warnings(out, [w for log in grid.logs.values() for w in log.warnings])
    print_warnings(out, changed_defaults(catalog))
    print_warnings(out, told(grid.words, file))
    print_warnings(out, guesses(planned.plan.run_times))
    print_warnings(out, planned.plan.notes)
    if planned.plan.feasible:
        print_warnings(out, refusals(grid.words))
    return planned


def refuse(planned: Planned, set_file: Path) -> NoReturn:
    """Exit 3 with what is lacking and what would do."""
    plan = planned.plan
    would = "; ".join(map(relaxation_text, plan.relaxations))
    ways = (
        f"any of these would do: {would}"
        if would
        else (
            "no fewer workflows and no later deadline that was tried reaches "
            f"{plan.asked_probability} by itself"
        )
    )
    raise InfeasibleError(
        f"no plan finishes {plan.needed} workflows within {plan.deadline_s:.0f} s",
        lacking=f"{plan.lacking}; {ways}",
        where=str(set_file),
    )


def explain_task(plan: str, task: str) -> dict[str, Any]:
    """Why a task stands where it does: in a plan's JSON file, or a set or run of the database."""
    file = Path(plan)
    if file.is_file():
        document = load_mapping(file)
    else:
        with Store() as store:
            set_id = store.get_run(plan).set_id if plan.startswith("run-") else plan
            row = store.get_set(set_id)
        if row is None:
            raise InputError(f"no file and no set or run '{plan}'", where="PLAN")
        document = json.loads(row.plan)
    if "placements" not in document or "slots" not in document:
        raise InputError("is no plan; write one with 'vgrads plan SET --json'", where=plan)
    return explain(document, task)


def run_study(name: str, arguments: Sequence[str]) -> None:
    """Hand over to a study that is installed under a name; without one, or with a wrong one, list
    them."""
    known = {point.name: point for point in entry_points(group="vgrads.studies")}
    if name in ("--help", "-h"):
        console().print(
            f"vgrads study NAME [options]; studies: {', '.join(sorted(known))}. Each has --help.",
            highlight=False,
        )
        return
    if name not in known:
        raise InputError(
            f"no study '{name}'", where="NAME", fix=f"one of {', '.join(sorted(known))}"
        )
    known[name].load()(list(arguments))


def parse_speed(text: str) -> float | None:
    """``max`` → None, else virtual seconds a real second."""
    if text == "max":
        return None
    speed = parse_duration(text, "--speed")
    if speed <= 0:
        raise InputError("must be above 0, or 'max'", where="--speed")
    return speed


def write_gantt(path: Path, planned: Planned) -> None:
    """The chart of a plan."""
    reasons = reasons_of(plan_json(planned.plan))
    draw_gantt(path, planned_gantt(planned), "Planned, not run.", reasons)


def draw_run(run_id: str, path: Path) -> None:
    """The chart of a run in the database."""
    with Store() as store:
        row = store.get_run(run_id)
        planned = store.get_set(row.set_id)
    gantt = json.loads(row.gantt)
    if not gantt:
        raise InputError(f"'{run_id}' has no chart yet; it is {row.state}")
    reasons = reasons_of(json.loads(planned.plan)) if planned else None
    draw_gantt(path, gantt, f"The promise was {row.state}.", reasons)


def draw_gantt(
    path: Path, gantt: Mapping[str, Any], sentence: str, reasons: Mapping[str, str] | None = None
) -> None:
    """A page; with the ending ``.svg``, ``.png`` or ``.pdf`` the chart alone, with ``.json`` a
    trace."""
    write_bytes(path, export(gantt, format_of(path.name), sentence, reasons))

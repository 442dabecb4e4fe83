"""Plans and promises as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vgrads.api.plans.execution import RunOutcome
from vgrads.api.plans.runtimes import source_text
from vgrads.kernel.units import format_duration, format_usd
from vgrads.planner.plan import Plan
from vgrads.workflows.spread import RuntimeSpread

_MOST_NAMED = 3


def print_plan(out: Console, plan: Plan) -> None:
    """Print the slots that a plan uses, the gain of each phase, the promise."""
    if plan.uses:
        table = Table(title=f"Slots for '{plan.set_name}'", title_justify="left", box=SIMPLE_HEAD)
        for name in ("slot", "procs", "submit at", "from", "until", "prob.", "cost", "tasks"):
            table.add_column(
                name,
                justify="left" if name == "slot" else "right",
                no_wrap=name != "slot",
                overflow="fold",
            )
        for use in plan.uses:
            tasks = sum(p.slot == use.slot.id for p in plan.placements)
            table.add_row(
                use.slot.id,
                str(use.slot.procs),
                format_duration(use.submit_s),
                format_duration(use.start_s),
                format_duration(use.end_s),
                f"{use.probability:.3f}",
                format_usd(use.cost_usd) if use.slot.paid else "–",
                str(tasks),
            )
        out.print(table)
    if plan.done:
        out.print(done_sentence(plan))
    _print_run_times(out, plan)
    for phase in plan.phases:
        out.print(
            f"  phase {phase.name:<11} {phase.placed:>4} placed, promise "
            f"{phase.probability_before:.3f} → {phase.probability_after:.3f}  "
            f"({phase.seconds * 1000:.0f} ms)"
        )
    out.print(promise_sentence(plan), style="bold" if plan.feasible else "bold red")


def done_sentence(plan: Plan) -> str:
    """Return a sentence about tasks that are already done, and since when."""
    runs = list(dict.fromkeys(done.run for done in plan.done))
    since = ", ".join(runs[:_MOST_NAMED]) + (" and others" if len(runs) > _MOST_NAMED else "")
    tasks = "1 task is" if len(plan.done) == 1 else f"{len(plan.done)} tasks are"
    return f"{tasks} up to date (done in {since}) and not run again; --rerun runs everything."


def _print_run_times(out: Console, plan: Plan) -> None:
    """Print the evidence for the run times of each kind of task; nothing where all are as
    stated."""
    if all(entry["source"] == "stated" for entry in plan.run_times):
        return
    table = Table(title="Run times", title_justify="left", box=SIMPLE_HEAD)
    for name in ("kind", "tasks", "median", "90 % below", "from"):
        table.add_column(
            name, justify="right" if name in ("tasks", "median", "90 % below") else "left"
        )
    for entry in plan.run_times:
        low_s, high_s = entry["shortest_s"], entry["longest_s"]
        low, high = format_duration(low_s), format_duration(high_s)
        below_s = high_s * RuntimeSpread(own=entry["spread"]).factor(0.9)
        median = low if low == high else f"{low} – {high}"
        table.add_row(
            entry["kind"], str(entry["tasks"]), median, format_duration(below_s), source_text(entry)
        )
    out.print(table)


def print_pilots(out: Console, tried: Sequence[Mapping[str, Any]]) -> None:
    """Print the tasks to try out first."""
    if not tried:
        out.print(
            "No pilot run is recommended: no kind of task has an uncertain run time that its "
            "tasks share."
        )
        return
    table = Table(
        title="Recommended pilot runs, on inputs one tenth as large",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for name in ("kind", "tasks", "run time", "promise", "gain"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for item in tried:
        table.add_row(
            item["kind"],
            str(item["tasks"]),
            f"about {format_duration(item['pilot_s'])}",
            f"{item['probability']:.3f}",
            f"{item['gain']:+.3f}",
        )
    out.print(table)


def print_started(out: Console, pilots: Sequence[Mapping[str, Any]]) -> None:
    """Print the pilots that were started, and those that were not, with the reason."""
    table = Table(
        title="Pilot runs, of one task of each kind on its whole input",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for name in ("kind", "expected run time", "expected gain", "result"):
        table.add_column(name, justify="right" if name.startswith("expected") else "left")
    for item in pilots:
        gain = f"{item['gain']:+.3f}" if "gain" in item else ""
        result = f"{item['state']}: {item['reason']}" if item["reason"] else item["state"]
        table.add_row(item["kind"], f"about {format_duration(item['pilot_s'])}", gain, result)
    if pilots:
        out.print(table)
    else:
        out.print(
            "No pilot was run: no kind of task has an uncertain run time that its tasks share."
        )


def print_change(out: Console, before: Mapping[str, Any], plan: Plan) -> None:
    """Print the promise before and after pilot runs."""
    out.print(
        f"Promise before the pilot runs: {before['probability']:.3f}, after them: "
        f"{plan.promise.probability:.3f}."
    )


def promise_sentence(plan: Plan) -> str:
    """Return the promise as a sentence, or why there is none."""
    goal = f"at least {plan.needed} workflows within {format_duration(plan.deadline_s)}"
    if plan.done and not plan.placements:
        return "Nothing is left to be done."
    if not plan.feasible:
        return f"Cannot promise {goal}: {plan.lacking}."
    promise = plan.promise
    short = "" if plan.meets_request else f" (less than the requested {plan.requested_probability})"
    weak = sorted({f"{u.slot.shared}: {u.slot.basis}" for u in plan.uses if u.slot.basis})
    rests = f" It uses no history of waits ({'; '.join(weak)})." if weak else ""
    return (
        f"Promise: {goal} with probability {promise.probability:.3f} ± "
        f"{promise.standard_error:.3f}{short}, "
        f"for {format_usd(plan.cost_usd)}{_expected(plan)}.{rests}"
    )


def _expected(plan: Plan) -> str:
    """Return the expected actual usage, where known."""
    if plan.expected_hours <= 0:
        return ""
    hours = f"{plan.expected_hours:.1f} processor-hours reserved"
    if plan.expected_usd > sum(use.cost_usd for use in plan.uses):
        return f" on average ({hours})"
    usd = f"{format_usd(plan.expected_usd)}, " if plan.cost_usd > 0 else ""
    return f" at most (on average {usd}{hours})"


def outcome_sentence(outcome: RunOutcome) -> str:
    """Return one sentence with the promise, its probability, and the outcome."""
    plan = outcome.execution.plan
    if plan.done and not plan.placements:
        return "Nothing was left to be done."
    workflow_set = outcome.execution.snapshot.workflow_set
    total = len(workflow_set.workflows)
    last = sorted(t for t in outcome.done.values() if t <= plan.deadline_s)
    when = f", the last of them after {format_duration(last[-1])}" if last else ""
    cancelled = (
        f"it was cancelled ({outcome.state.cancelled})" if outcome.verdict == "cancelled" else ""
    )
    verdict = cancelled or f"the promise was {'KEPT' if outcome.kept else 'BROKEN'}"
    whole = len({done.workflow for done in plan.done} - {w.name for w in workflow_set.workflows})
    before = f" ({whole} more were done before)" if whole else ""
    return (
        f"Promised {plan.needed} of {total} workflows{before} within "
        f"{format_duration(plan.deadline_s)} with probability "
        f"{plan.promise.probability:.3f}; {outcome.in_time} were done in time{when}: "
        f"{verdict}."
    )

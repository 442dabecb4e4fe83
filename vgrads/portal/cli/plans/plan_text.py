"""Plans and promises as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from vgrads.api.plans.execution import RunOutcome
from vgrads.api.plans.refusals import describe_relaxation
from vgrads.api.plans.runtimes import describe_source
from vgrads.kernel.text_table import Column, Row, TextTable, pad
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.planner.plan import PhaseReport, Plan
from vgrads.vgrid.slot import NOW_S
from vgrads.workflows.spread import RuntimeSpread

_MOST_NAMED = 3


def print_plan(out: Console, plan: Plan) -> None:
    """Print the slots that a plan uses, the gain of each phase, the promise; nothing of a plan that
    is not feasible: its error says everything."""
    if not plan.feasible:
        return
    if plan.uses:
        out.print(_make_slots_table(plan))
    if plan.done:
        out.print(done_sentence(plan))
    _print_run_times(out, plan)
    for phase in plan.phases:
        sentence = _describe_phase(phase, plan.requested_probability)
        out.print(f"  {sentence}  ({phase.seconds * 1000:.0f} ms)")
    out.print(promise_sentence(plan), style="bold")
    if plan.lacking:
        out.print(f"Limit: {plan.lacking}.")
    if plan.relaxations:
        out.print(f"Sufficient changes: {'; '.join(map(describe_relaxation, plan.relaxations))}.")


def _make_slots_table(plan: Plan) -> TextTable:
    columns = (
        Column("slot", shorten=True),
        Column("procs", right=True, fold=2),
        Column("submit at", right=True, fold=5),
        Column("starts about", right=True, fold=4),
        Column("needed by", right=True),
        Column("prob.", right=True),
        Column("until", right=True, fold=1),
        Column("cost", right=True, fold=3),
        Column("tasks", right=True, fold=6),
    )
    rows = tuple(
        Row(
            (
                use.slot.id,
                str(use.slot.procs),
                format_duration(use.submit_s),
                likely_start_text(use.slot.curve.reaches_s(0.5) + use.slot.zero_s(use.submit_s)),
                format_duration(use.start_s),
                f"{use.probability:.3f}",
                format_duration(use.end_s),
                format_usd(use.cost_usd) if use.slot.paid else "–",
                str(sum(p.slot == use.slot.id for p in plan.placements)),
            )
        )
        for use in plan.uses
    )
    return TextTable(columns, rows, title=f"Slots for '{plan.set_name}'")


def likely_start_text(at_s: float) -> str:
    """Return seconds from now as the likely start of a slot."""
    return "now" if at_s < NOW_S else format_duration(at_s)


def _describe_phase(phase: PhaseReport, requested: float) -> str:
    """Return what a phase or a step of the search did."""
    before, after = phase.probability_before, phase.probability_after
    if phase.name == "comparing":
        others = len(phase.steps) - 1
        return (
            f"compared with {format_count(others, 'other plan')}"
            if others > 0
            else "no other plan is needed"
        )
    if phase.name == "improving":
        return _describe_improvement(phase, requested)
    placed = pad(str(phase.placed), 4, right=True)
    return f"phase {pad(phase.name, 11)} {placed} placed, promise {before:.3f} → {after:.3f}"


def _describe_improvement(phase: PhaseReport, requested: float) -> str:
    """Return what the search changed: the promise, and the cost, for which it may fall."""
    before, after = phase.probability_before, phase.probability_after
    first, last = phase.steps[0], phase.steps[-1]
    # plans of equal cost differ in the processors that they occupy
    if first["expected_usd"] == last["expected_usd"]:
        costs = [f"{step['expected_hours']:.1f}" for step in (first, last)]
        unit = " processor-hours"
    else:
        costs, unit = [format_usd(step["expected_usd"]) for step in (first, last)], ""
    instead = f"{costs[1]} instead of {costs[0]}{unit} on average"
    promise = f"promise {before:.3f} → {after:.3f}"
    if before < requested and after > before:
        return f"more probable plan: {promise}, for {instead}"
    if costs[0] == costs[1]:
        return f"no better plan is found, promise {after:.3f}"
    enough = f"; {requested:g} is enough" if after < before else ""
    return f"cheaper plan: {instead}, {promise}{enough}"


def done_sentence(plan: Plan) -> str:
    """Return a sentence about tasks that are already done, and since when."""
    runs = list(dict.fromkeys(done.run for done in plan.done))
    since = ", ".join(runs[:_MOST_NAMED]) + (" and others" if len(runs) > _MOST_NAMED else "")
    tasks = f"{format_count(len(plan.done), 'task')} {_conjugate_be(len(plan.done))}"
    return f"{tasks} up to date (done in {since}) and not run again; --rerun runs everything."


def _print_run_times(out: Console, plan: Plan) -> None:
    """Print the evidence for the run times of each kind of task; nothing where all are as
    stated."""
    if all(entry["source"] == "stated" for entry in plan.run_times):
        return
    columns = (
        Column("kind", shorten=True),
        Column("tasks", right=True, fold=2),
        Column("median", right=True),
        Column("90 % below", right=True),
        Column("from", below=True),
    )
    out.print(TextTable(columns, tuple(map(_run_time_row, plan.run_times)), title="Run times"))


def _run_time_row(entry: Mapping[str, Any]) -> Row:
    low_s, high_s = entry["shortest_s"], entry["longest_s"]
    low, high = format_duration(low_s), format_duration(high_s)
    below_s = high_s * RuntimeSpread(own=entry["spread"]).factor(0.9)
    median = low if low == high else f"{low} – {high}"
    cells = (entry["kind"], str(entry["tasks"]), median, format_duration(below_s))
    return Row((*cells, describe_source(entry)))


def print_pilots(out: Console, tried: Sequence[Mapping[str, Any]]) -> None:
    """Print the tasks to try out first."""
    if not tried:
        out.print(
            "No pilot run is recommended: of no kind of task would a run on a small input raise "
            "the promise visibly."
        )
        return
    columns = (
        Column("kind", shorten=True),
        Column("tasks", right=True, fold=1),
        Column("run time", right=True),
        Column("promise", right=True),
        Column("gain", right=True),
    )
    rows = tuple(
        Row(
            (
                item["kind"],
                str(item["tasks"]),
                f"about {format_duration(item['pilot_s'])}",
                f"{item['probability']:.3f}",
                f"{item['gain']:+.3f}",
            )
        )
        for item in tried
    )
    out.print(
        TextTable(columns, rows, title="Recommended pilot runs, on inputs one tenth as large")
    )


def _format_gain(gain: float | None) -> str:
    """Return a gain of probability; a dash where it is not visible."""
    if gain is None:
        return ""
    return f"{gain:+.3f}" if round(abs(gain), 3) else "–"


def print_started(out: Console, pilots: Sequence[Mapping[str, Any]]) -> None:
    """Print the pilots that were started, and those that were not, with the reason."""
    if not pilots:
        out.print(
            "No pilot was run: no kind of task has an uncertain run time that its tasks share."
        )
        return
    columns = (
        Column("kind", shorten=True),
        Column("expected run time", right=True, fold=1),
        Column("expected gain", right=True, fold=2),
        Column("result"),
        Column("reason", below=True),
    )
    rows = tuple(
        Row(
            (
                item["kind"],
                f"about {format_duration(item['pilot_s'])}",
                _format_gain(item.get("gain")),
                item["state"],
                item["reason"] or "",
            ),
        )
        for item in pilots
    )
    title = "Pilot runs, of one task of each kind on its whole input"
    out.print(TextTable(columns, rows, title=title))


def print_change(out: Console, before: Mapping[str, Any], plan: Plan) -> None:
    """Print the promise before and after pilot runs."""
    out.print(
        f"Promise before the pilot runs: {before['probability']:.3f}, after them: "
        f"{plan.promise.probability:.3f}."
    )


def promise_sentence(plan: Plan) -> str:
    """Return the promise of a feasible plan as a sentence."""
    workflows = format_count(plan.needed, "workflow")
    goal = f"at least {workflows} within {format_duration(plan.deadline_s)}"
    if plan.done and not plan.placements:
        return "Nothing is left to be done."
    promise = plan.promise
    short = "" if plan.meets_request else f" (less than the requested {plan.requested_probability})"
    weak = sorted({f"{u.slot.shared}: {u.slot.basis}" for u in plan.uses if u.slot.basis})
    rests = f" It uses no history of waits ({'; '.join(weak)})." if weak else ""
    return (
        f"Promise: {goal} with probability {promise.probability:.3f} ± "
        f"{promise.standard_error:.3f}{short}, "
        f"for {format_usd(plan.cost_usd)}{_format_expected(plan)}.{rests}"
    )


def _format_expected(plan: Plan) -> str:
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
    before = f" ({whole} more {_conjugate_be(whole, past=True)} done before)" if whole else ""
    return (
        f"Promised {plan.needed} of {format_count(total, 'workflow')}{before} within "
        f"{format_duration(plan.deadline_s)} with probability "
        f"{plan.promise.probability:.3f}; {outcome.in_time} "
        f"{_conjugate_be(outcome.in_time, past=True)} done in time{when}: {verdict}."
    )


def _conjugate_be(count: int, past: bool = False) -> str:
    """Return the verb for a count."""
    return ("was" if past else "is") if count == 1 else ("were" if past else "are")

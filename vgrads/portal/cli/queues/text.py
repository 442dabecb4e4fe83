"""Results of queue queries as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vgrads.api.queues.queries import QueueQuery
from vgrads.kernel.text_table import Column, Row, TextTable, pad
from vgrads.kernel.units import format_count, format_duration, format_share
from vgrads.operations.forecast_lists import FullAnswer
from vgrads.operations.forecasts import (
    BoundAnswer,
    ProbabilityAnswer,
    QueueAnswer,
    TrajectoryAnswer,
)
from vgrads.qbets.backtest import BacktestRow
from vgrads.vgrid.varq import Reservation


def bound_text(answer: BoundAnswer) -> str:
    """Return GETBOUND as a sentence, with details."""
    bound, opened = answer.bound, answer.open_queue
    if bound.bound_s is None:
        text = f"No bound can be given: {bound.reason}."
    elif bound.method == "state":
        text = (
            "A job like this, submitted now, waits at most "
            f"{format_duration(bound.bound_s)} ({math.ceil(bound.bound_s)} s) with "
            f"probability {bound.probability}, according to the state of the queue and the "
            f"outcome of {format_count(bound.jobs, 'such forecast')}."
        )
    else:
        text = (
            f"A job like this waits at most {format_duration(bound.bound_s)} "
            f"({math.ceil(bound.bound_s)} s) with probability "
            f"{bound.probability}, stated with confidence {bound.confidence} from "
            f"{format_count(bound.jobs, 'wait')} since {opened.query.since}."
        )
    text += _note_merged(opened.query) + _format_downtime(opened.query) + _explain_view(answer)
    if answer.explanation is not None:
        text += "\n" + explanation_text(answer.explanation, answer.closure is not None)
    return text


def _explain_view(answer: QueueAnswer) -> str:
    """Return which closure moves an answer, which queue was seen, where that is more than the end
    of a history, and a warning by its record."""
    sentence = answer.open_queue.view.sentence
    closure = ""
    if answer.closure:
        begin = "At worst it" if isinstance(answer, BoundAnswer) else "The site is"
        closure = f"\n{begin} {answer.closure}."
    view = f"\n{sentence[0].upper()}{sentence[1:]}." if sentence else ""
    return closure + view + (f"\nWarning: {answer.warning}." if answer.warning else "")


def explanation_text(explanation: Mapping[str, Any], is_closed: bool = False) -> str:
    """Return the explanation, with the state variables that moved the bound, the strongest first.
    ``is_closed``: a closure of the site moves the bound further."""
    lines = [f"Method: {explanation['method']} ({explanation['why']})."]
    if explanation["queues"]:
        lines.append(
            f"Jobs of {', '.join(explanation['queues'])} count too: they take nodes of the same "
            "machine."
        )
    if explanation["moved"]:
        usual = format_duration(explanation["usual_bound_s"])
        lines.append(_format_moved(usual, "bound where all of this is as usual"))
    # less than a second is shown as nothing
    effective = [entry for entry in explanation["moved"] if round(entry["moved_s"])]
    for entry in effective:
        sign = "+" if entry["moved_s"] >= 0 else "−"
        moved = sign + format_duration(abs(entry["moved_s"]))
        lines.append(_format_moved(moved, f"{entry['side']}: {entry['reason']}"))
    if len(effective) < len(explanation["moved"]):
        others = [entry["side"] for entry in explanation["moved"] if entry not in effective]
        lines.append(_format_moved("nothing", "; ".join(others)))
    if explanation["moved"]:
        total = explanation["usual_bound_s"] + sum(e["moved_s"] for e in explanation["moved"])
        without = ", without the closure" if is_closed else ""
        lines.append(_format_moved(format_duration(total), f"bound now{without}"))
    return "\n".join(lines)


def _format_moved(duration: str, text: str) -> str:
    return f"  {pad(duration, 9, right=True)} {text}"


def _note_merged(query: QueueQuery) -> str:
    """Return a note that jobs of arrays were merged, where that is most of them."""
    if query.jobs is None or query.distinct is None or query.distinct > query.jobs / 2:
        return ""
    return (
        f"\nThe history has {format_count(query.jobs, 'job')}, {query.distinct} of them "
        "distinct: equal jobs "
        "of one user that are submitted and start within a minute count as one observation "
        "(--no-arrays counts each job)."
    )


def _format_downtime(query: QueueQuery) -> str:
    stall = query.forecast.downtime
    if stall is None:
        return ""
    return (
        f"\nThe queue may be down: no job has started since {query.instant(stall.since_s)}, "
        f"{format_count(stall.submissions, 'job', 'were')} submitted."
    )


def forecast_text(answer: FullAnswer) -> list[TextTable | str]:
    """Return bounds and probabilities as tables, the best submission, and what they rest on."""
    payload, question = answer.answer, answer.question
    bounds = tuple(
        Row((f"{entry['quantile']:.0%}", _bound_text(entry["bound_s"])))
        for entry in payload["bounds"]
    )
    curve = tuple(
        Row((format_duration(entry["within_s"]), f"{entry['probability']:.3f}"))
        for entry in payload["curve"]
    )
    job = f"{format_count(question.procs, 'processor')} for {format_duration(question.walltime_s)}"
    lines: list[TextTable | str] = [
        f"{job}: from {format_count(payload['jobs'], 'job')} since {payload['since']}, method "
        f"{payload['method']}.",
        TextTable((Column("of such jobs"), Column("wait at most", right=True)), bounds),
        TextTable((Column("starts within"), Column("probability", right=True)), curve),
    ]
    if payload["reason"]:
        lines.append(f"Note: {payload['reason']}.")
    if payload["best_submission"] is not None:
        lines.append(_recommend_submission(payload["best_submission"], question.start_by_s or 0.0))
    more = _note_merged(answer.query) + _format_downtime(answer.query) + _explain_view(answer)
    return [*lines, *([more.strip()] if more else [])]


def _bound_text(bound_s: float | None) -> str:
    return "unknown" if bound_s is None else format_duration(bound_s)


def _recommend_submission(best: Mapping[str, Any], start_by_s: float) -> str:
    """Return when to submit a job that must run by an instant."""
    begin = (
        "Submit" if best["meets_request"] else "No submission has the requested probability: the"
    )
    begin += "" if best["meets_request"] else " best is to submit"
    return (
        f"{begin} {_format_from_now(best['submit_in_s'])} and request "
        f"{format_duration(best['walltime_s'])}: it runs {format_duration(start_by_s)} from now "
        f"with probability {best['probability']:.3f}."
    )


def probability_text(answer: ProbabilityAnswer) -> str:
    """Return GETPROB as a sentence."""
    query, within = answer.query, format_duration(answer.within_s)
    more = _format_downtime(query) + _explain_view(answer)
    if query.forecast.method == "state":
        return (
            f"A job like this, submitted now, starts within {within} with probability "
            f"{answer.probability:.3f}, according to the state of the queue and the outcome of "
            f"{format_count(answer.jobs, 'such forecast')}." + more
        )
    return (
        f"A job like this starts within {within} with probability {answer.probability:.3f} "
        f"or more, stated with confidence {answer.confidence} from "
        f"{format_count(answer.jobs, 'wait')}." + more
    )


def trajectory_text(answer: TrajectoryAnswer) -> str:
    """Return VARQ in a few sentences: when to submit, what to request, and why."""
    path, reservation = answer.path, answer.reservation
    at, begin_s = path.recommended, reservation.start_by_s
    chance = f"{path.probabilities[at]:.3f}"
    submit = (
        f"{_format_from_now(path.submit_s[at])} and request {format_duration(path.walltimes_s[at])}"
    )
    begins = f"has its processors when the reservation begins, {format_duration(begin_s)} from now"
    request = _explain_request(reservation, begin_s - float(path.submit_s[at]))
    if path.chosen is not None:
        more = "" if answer.query.forecast.method == "state" else " or more"
        text = f"Submit {submit}: with probability {chance}{more}, the job {begins}.{request}"
    else:
        level = f"{answer.recommended.required.level:.4g}"
        text = f"No submission reaches probability {level} that the job {begins}"
        if path.probabilities[at] > 0:
            text += f". The best, to submit {submit}, reaches {chance}.{request}"
        else:
            text += ": each has probability 0."
        text += _limit_text(reservation)
    reason = answer.recommended.required.reason
    text += f" {reason[0].upper()}{reason[1:]}." if reason else ""
    return text + _explain_view(answer)


def _format_from_now(seconds: float) -> str:
    return f"in {format_duration(seconds)}" if round(seconds) else "now"


def _explain_request(reservation: Reservation, ahead_s: float) -> str:
    """Say why a job requests more than its own time, if it is submitted so long before."""
    if not round(ahead_s):
        return ""
    return (
        " It may get them as soon as it is submitted, and its request must last until the "
        f"reservation ends: {format_duration(ahead_s)} until it begins, in which the processors "
        f"idle at worst, and its own {format_duration(reservation.walltime_s)}."
    )


def _limit_text(reservation: Reservation) -> str:
    """Name the limit of the queue where it forbids the earliest submissions."""
    limit_s = reservation.max_walltime_s
    first_s = reservation.start_by_s + reservation.walltime_s - limit_s
    if first_s <= 0:
        return ""
    return (
        f" If it is submitted earlier than in {format_duration(first_s)}, it must request more "
        f"than the queue permits ({format_duration(limit_s)})."
    )


def backtest_table(rows: Sequence[BacktestRow]) -> TextTable:
    """Return the rows as a table: coverage, worst 500 jobs, pinball loss, median bound, bounds of
    quick jobs."""
    columns = (
        Column("history", shorten=True),
        Column("queue", shorten=True),
        Column("scored", right=True, fold=3),
        Column("cover", right=True),
        Column("worst", right=True, fold=1),
        Column("pinball", right=True, fold=4),
        Column("median", right=True, fold=2),
        Column("quick", right=True, fold=5),
        Column("jobs/s", right=True, fold=6),
        Column("view", fold=7),
    )
    return TextTable(columns, tuple(map(_make_backtest_row, rows)))


def _make_backtest_row(row: BacktestRow) -> Row:
    return Row(
        (
            row.history,
            row.queue,
            str(row.scored),
            format_share(row.coverage, row.scored),
            format_share(row.worst_window_coverage, row.scored),
            format_duration(row.pinball_s),
            format_duration(row.median_bound_s),
            format_share(row.quick_bounded),
            f"{row.jobs_per_s:,.0f}",
            row.view,
        )
    )

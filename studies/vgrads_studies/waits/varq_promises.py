"""Reliability of virtual reservations, and the cost of their early start.

A recorded log is replayed through a simulated EASY cluster. At regular intervals a request is made
for N processors for W seconds from T on, with probability P. The predictor uses only data of the
simulated queue up to then; the reservation is submitted among the other jobs and delays them. Three
ways of choosing the instant of submission are compared:

- ``once``: the paper's: the latest instant of the trajectory computed from past waits at the time
  of the request;
- ``ahead``: the same, once, from simulated futures of the queue
  (:mod:`vgrads_studies.waits.lookahead`);
- ``moving``: also from futures, recomputed as time passes, and the submission moves with them.

Kept: the job is running at T and has its whole wall time left. Idle: processor time held before T.
With --recorded there is no simulated queue: reservations take the waits of real jobs
(:mod:`vgrads_studies.waits.varq_recorded`), and with --view all forecasts are learned and queried
without the jobs that a history of that view does not show. Run: ``vgrads study varq LOG.swf.gz…
--picture docs/varq.svg``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from statsmodels.stats.proportion import proportion_confint

from vgrads.kernel.errors import InputError
from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.streams import stream
from vgrads.qbets.predictor import QueuePredictor, Settings
from vgrads.qbets.views import FULL
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster
from vgrads.traces.history import history_name
from vgrads.traces.records import JobLog
from vgrads.vgrid.varq import Reservation
from vgrads_studies.picture import diagrams, picture_file
from vgrads_studies.report import StudyParser, add_view, markdown_table, read_enough
from vgrads_studies.waits.varq_recorded import recorded_study
from vgrads_studies.waits.varq_recorded_rows import as_document, as_text
from vgrads_studies.waits.varq_stage import ReservationRequest, VarqSimulation, advance_to

POLICIES = ("none", "once", "ahead", "moving")
LEVELS = (0.5, 0.75, 0.9, 0.95)
_WARM_UP = 0.15  # share of the log before the first question


@dataclass(frozen=True, slots=True, kw_only=True)
class VarqRow:
    """One row of the study."""

    history: str
    policy: str
    probability: float
    questions: int
    refused: int
    kept: int
    idle_node_hours: float
    others_wait_s: float
    idle_of: tuple[tuple[int, float], ...] = ()  # question → idle node-hours, of promises

    @property
    def share(self) -> float:
        """Return the share of promises that were kept."""
        return self.kept / max(1, self.questions - self.refused)

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the share (Wilson)."""
        low, high = proportion_confint(
            self.kept, max(1, self.questions - self.refused), method="wilson"
        )
        return float(low), float(high)

    @property
    def idle(self) -> float:
        """Return the idle node-hours per promise."""
        return self.idle_node_hours / max(1, self.questions - self.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class VarqExtent:
    """Extent for a log: questions, forecast jobs of others, and the seed."""

    count: int = 1000
    predicted: int = 3_000
    seed: int = 0


def replay(log: JobLog, procs: int, policy: str, probability: float, extent: VarqExtent) -> VarqRow:
    """Run one log with its questions under one policy."""
    log = log.select(log.started & (log.run_s >= 0))
    stage = VarqSimulation(BatchCluster(procs), QueuePredictor(Settings()))
    questions = _questions(
        log, procs, probability, extent.count if policy != "none" else 0, extent.seed
    )
    stage.allowed = 1.0 - probability
    first, every = len(log), max(1, len(log) // extent.predicted)
    refused = 0
    rows = zip(
        log.submit_s.tolist(),
        log.procs.tolist(),
        log.request_s.tolist(),
        log.run_s.tolist(),
        log.user.tolist(),
        strict=True,
    )
    for number, (at_s, width, request_s, run_s, user) in enumerate(rows):
        while questions and questions[0][0] <= at_s:
            ask_s, request = questions.pop(0)
            advance_to(stage, ask_s, policy)
            refused += not stage.ask(
                first + len(stage.reservations) + refused, request, ask_s, policy
            )
        advance_to(stage, at_s, policy)
        requested_s = request_s if request_s > 0 else max(run_s, 1.0)
        job = BatchJob(str(number), min(width, procs), requested_s, run_s)
        if policy in ("ahead", "moving") and number % every == 0:
            stage.test(number, job, at_s)
        stage.submit(number, job, at_s, user)
    advance_to(stage, float("inf"), policy)
    requests = list(stage.reservations.values())
    return VarqRow(
        history=log.name,
        policy=policy,
        probability=probability,
        questions=len(requests) + refused,
        refused=refused,
        kept=sum(requested.kept for requested in requests),
        idle_node_hours=sum(requested.idle_s for requested in requests) / 3600,
        others_wait_s=float(np.mean(stage.waits_s)),
        idle_of=tuple(
            (number - first, requested.idle_s / 3600)
            for number, requested in stage.reservations.items()
        ),
    )


def _questions(
    log: JobLog, procs: int, probability: float, count: int, seed: int
) -> list[tuple[float, ReservationRequest]]:
    """Draw questions evenly over the log after the warm-up: 1 to a quarter of the machine, 10 min
    to 4 h, 1 to 12 h ahead."""
    draws = stream(seed, "varq", history_name(log.name))
    times = np.sort(
        draws.uniform(float(np.quantile(log.submit_s, _WARM_UP)), float(log.submit_s[-1]), count)
    )
    results = []
    for at_s in times.tolist():
        reservation = Reservation(
            procs=int(draws.integers(1, max(2, procs // 4))),
            walltime_s=float(draws.uniform(600, 14_400)),
            start_by_s=float(draws.uniform(3600, 43_200)),
            probability=probability,
        )
        results.append(
            (
                at_s,
                ReservationRequest(
                    reservation=reservation, start_by_s=at_s + reservation.start_by_s
                ),
            )
        )
    return results


def _work(job: tuple[Path, str, float, int]) -> VarqRow:
    path, policy, probability, count = job
    log = read_enough(path)
    outcome = replay(
        log, log.max_procs or int(log.procs.max()), policy, probability, VarqExtent(count=count)
    )
    return replace(outcome, history=history_name(path))


def study(paths: Sequence[Path], count: int) -> list[VarqRow]:
    """Run all logs, policies and levels, on all cores, with a progress bar."""
    work = [
        (path, policy, level, count) for path, policy, level in product(paths, POLICIES[1:], LEVELS)
    ]
    work += [(path, "none", LEVELS[0], 0) for path in paths]
    work.sort(key=lambda job: -POLICIES.index(job[1]))  # the long ones first
    bar = Console(stderr=True)
    with process_pool() as pool:
        waiting = [pool.submit(_work, job) for job in work]
        done = track(as_completed(waiting), "replaying", total=len(work), console=bar)
        outcomes = [future.result() for future in done]
    return sorted(outcomes, key=lambda o: (o.history, o.probability, POLICIES.index(o.policy)))


def against(varq_row: VarqRow, other: VarqRow) -> str:
    """Return the ratio of idle node-hours of the promises that both made, and the number of
    these."""
    mine, theirs = dict(varq_row.idle_of), dict(other.idle_of)
    both = mine.keys() & theirs.keys()
    total = sum(theirs[number] for number in both)
    return f"{sum(mine[number] for number in both) / total:.2f} ({len(both)})" if total > 0 else "–"


def table(outcomes: Sequence[VarqRow]) -> str:
    """Return the study as a Markdown table."""
    base = {o.history: o.others_wait_s for o in outcomes if o.policy == "none"}
    peers = {(o.history, o.probability, o.policy): o for o in outcomes}
    head = (
        *("log", "P", "policy", "refused", "running at T (95 % interval)"),
        *("idle node-hours per reservation", "against `once`, same queries"),
        *("against `ahead`", "others' mean wait"),
    )
    rows = []
    for o in outcomes:
        if o.policy == "none":
            continue
        low, high = o.interval
        shares = [against(o, peers[o.history, o.probability, peer]) for peer in POLICIES[1:3]]
        rows.append(
            (
                *(o.history, f"{o.probability}", o.policy, f"{o.refused} of {o.questions}"),
                f"{o.share:.3f} ({low:.3f}–{high:.3f})",
                f"{o.idle:,.1f}",
                *shares,
                f"{o.others_wait_s / base[o.history] - 1:+.1%}",
            )
        )
    return markdown_table(head, rows)


def draw(outcomes: Sequence[VarqRow], path: Path) -> None:
    """Draw reliability diagrams, one for each log: promised against kept, with intervals."""
    logs = sorted({o.history for o in outcomes})
    with diagrams(path, len(logs), (3.2 * len(logs), 3.4), sharey=True) as axes:
        for axis, log in zip(axes, logs, strict=True):
            axis.plot([0.4, 1], [0.4, 1], color="#999", linewidth=1)
            for shift, policy in zip((-0.008, 0.0, 0.008), POLICIES[1:], strict=True):
                rows = [
                    o
                    for o in outcomes
                    if (o.history, o.policy) == (log, policy) and o.questions > o.refused
                ]
                shares = np.array([o.share for o in rows])
                spans = np.abs(np.array([o.interval for o in rows]).reshape(-1, 2).T - shares)
                promised = [o.probability + shift for o in rows]
                axis.errorbar(
                    promised,
                    shares,
                    yerr=spans,
                    fmt="o-",
                    markersize=4,
                    capsize=2,
                    linewidth=1,
                    label=policy,
                )
            axis.set(
                title=log.split("-cln")[0], xlabel="promised", xlim=(0.45, 1.0), ylim=(0.2, 1.02)
            )
        axes[0].set_ylabel("running at T")
        axes[0].legend(frameon=False, loc="lower right")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = StudyParser("varq", __doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument(
        "--count", type=int, default=400, help="number of queries for each log and level"
    )
    parser.add_argument(
        "--picture", type=picture_file, help="file for the reliability diagrams (SVG)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout")
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="reservations take the waits of real jobs: no simulated queue",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=20_000,
        help="with --recorded: number of jobs to read from the beginning of each log",
    )
    add_view(parser)
    chosen = parser.parse_args(arguments)
    if chosen.recorded:
        varq_rows = recorded_study(chosen.logs, chosen.count, chosen.jobs, view=chosen.view)
        sys.stdout.write(
            (json.dumps(as_document(varq_rows)) if chosen.json else as_text(varq_rows)) + "\n"
        )
        return
    if chosen.view != FULL:
        raise InputError(
            f"a simulated queue shows all its jobs, '{chosen.view}' needs recorded starts",
            where="--view",
            fix="add --recorded",
        )
    outcomes = study(chosen.logs, chosen.count)
    if chosen.picture:
        draw(outcomes, chosen.picture)
    rows = [
        {k: v for k, v in asdict(o).items() if k != "idle_of"}
        | {"share": o.share, "interval": o.interval}
        for o in outcomes
    ]
    text = json.dumps({"rows": rows}) if chosen.json else table(outcomes)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()

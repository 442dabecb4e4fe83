"""Are virtual reservations kept where they take the starts of real jobs? (``vgrads study varq
--recorded``)

A reservation of N processors for W seconds from T on is asked for at t: with the processors of a
real job that comes somewhere between t and T, all instants alike, W and T − t parts of what that
one requested. A policy, which knows nothing of it, chooses the instant of submission s; the
reservation then takes the start of the next real job of like shape: processors of the same power of
two, a requested time of at least W + T − s, submitted within a quarter of an hour. Where there is
none the question is not asked, and their share is said.

- ``now``: at once, whatever the probability;
- ``once``: the latest instant of the trajectory from past waits, chosen when asked (the paper's
  way);
- ``ahead``: the latest instant that is sure enough by the forecast (a stranger asks), by the state
  of the queue and the more by past waits the later; what is asked for follows the record of
  promises (:func:`vgrads.vgrid.varq.adapt`);
- ``moving``: so too, with the margin of :mod:`vgrads.vgrid.varq`, and looked at again as time
  passes.

Kept: started by T. *By its wait*: so, had it waited as long as that job from its own submission on;
that other one comes up to a quarter of an hour later. Idle: processor time held before T, a
promise; compared with that of ``now`` over the questions that were not refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from statsmodels.stats.proportion import proportion_confint

from vgrads.api.queues.histories import AS_ASKED
from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.qbets.predictor import Settings
from vgrads.qbets.replay import Replay, make_predictor
from vgrads.qbets.state_forecast import Known
from vgrads.research.promises.arena import WARM, freeze_now
from vgrads.research.promises.recorded import GATHER_S, LONGEST_S
from vgrads.research.report import read_enough, text_table
from vgrads.traces.history import history_name
from vgrads.traces.records import JobLog
from vgrads.vgrid.varq import Reservation, adapt, move, trajectory

LEVELS = (0.5, 0.75, 0.9, 0.95)
POLICIES = ("now", "once", "ahead", "moving")
HEAD = (
    "log",
    "P",
    "policy",
    "refused",
    "no like job",
    "kept",
    "95 % interval",
    "by its wait",
    "idle h",
    "of `now`",
    "misses",
)
_LEAST_S = 3600.0  # requested by the job that a question is made from
_AHEAD_S = (1800.0, 14_400.0)  # from the question to T, and at most half of what that job requested
_SHORT = 0.02  # of what was asked, still counted as kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A reservation as it is asked at ``at_s``."""

    number: int
    at_s: float
    wanted: Reservation

    @property
    def start_by_s(self) -> float:
        """T, on the log's clock."""
        return self.at_s + self.wanted.start_by_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a question: refused, or submitted; ``start_s`` None where no like job came at
    ``came_s``."""

    question: Question
    submit_s: float | None = None
    came_s: float | None = None
    start_s: float | None = None

    @property
    def kept(self) -> bool:
        return self.start_s is not None and self.start_s <= self.question.start_by_s

    @property
    def in_time(self) -> bool:
        """Kept, had it waited as long as that job from its own submission on: without the time
        until that one came."""
        if self.submit_s is None or self.came_s is None or self.start_s is None:
            return False
        return self.submit_s + self.start_s - self.came_s <= self.question.start_by_s

    @property
    def idle_s(self) -> float:
        """Processor seconds held before T."""
        if self.start_s is None:
            return 0.0
        return max(0.0, self.question.start_by_s - self.start_s) * self.question.wanted.procs


class LikeJobs:
    """Started jobs of a log by width class: whose start a reservation takes."""

    def __init__(self, log: JobLog) -> None:
        self._log, self._classes = log, np.log2(np.maximum(1, log.procs)).astype(int)
        self._rows = {
            int(c): np.flatnonzero(log.started & (self._classes == c))
            for c in np.unique(self._classes)
        }

    def submit(self, question: Question, submit_s: float) -> Answer:
        """The reservation takes the start of the next like job after an instant, if one comes
        soon."""
        rows = self._rows.get(int(np.log2(question.wanted.procs)), np.empty(0, dtype=np.int64))
        times = self._log.submit_s[rows]
        first, last = np.searchsorted(times, [submit_s, submit_s + GATHER_S])
        least_s = question.wanted.walltime_s + question.start_by_s - submit_s
        for row in rows[first:last].tolist():
            if self._log.request_s[row] >= least_s:
                came_s, start_s = float(self._log.submit_s[row]), float(self._log.start_s[row])
                return Answer(question=question, submit_s=submit_s, came_s=came_s, start_s=start_s)
        return Answer(question=question, submit_s=submit_s)


def draw_questions(log: JobLog, count: int, seed: int) -> list[Question]:
    """The same for every level and policy, in time order: real jobs' processors and parts of what
    they requested."""
    late = log.submit_s >= float(np.quantile(log.submit_s, WARM))
    rows = np.flatnonzero(log.started & late & (log.request_s >= _LEAST_S))
    if not len(rows):
        raise InputError(
            "no job requested an hour or more: nothing like a reservation is in it", where=log.name
        )
    draws = stream(seed, "varq recorded", log.name)
    found = []
    for row in draws.choice(rows, count).tolist():
        request_s = min(float(log.request_s[row]), LONGEST_S)
        ahead_s = min(draws.uniform(*_AHEAD_S), request_s / 2)
        wanted = Reservation(
            procs=max(1, int(log.procs[row])),
            walltime_s=request_s * draws.uniform(0.1, 0.5),
            start_by_s=ahead_s,
            probability=0.5,
        )
        found.append((float(log.submit_s[row] - ahead_s * draws.uniform()), wanted))
    found.sort(key=lambda one: one[0])
    return [Question(number=n, at_s=at_s, wanted=wanted) for n, (at_s, wanted) in enumerate(found)]


@dataclass
class Desk:
    """Questions of one level as they are answered; what was promised so far makes later answers
    stricter."""

    like: LikeJobs
    probability: float
    allowed: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    _open: list[tuple[float, int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.allowed = 1.0 - self.probability

    def strict(self, wanted: Reservation, now_s: float) -> Reservation:
        """The reservation at the probability that the record up to now asks for."""
        while self._open and self._open[0][0] <= now_s:
            *_, kept = heapq.heappop(self._open)
            self.allowed = adapt(self.allowed, self.probability, kept)
        return replace(wanted, probability=1.0 - self.allowed)

    def submit(self, question: Question, at_s: float) -> None:
        """It takes the start of a like job, if one comes."""
        answer = self.like.submit(question, at_s)
        self.answers.append(answer)
        if answer.start_s is not None:
            heapq.heappush(self._open, (question.start_by_s, question.number, answer.kept))

    def refuse(self, question: Question) -> None:
        """No instant is sure enough."""
        self.answers.append(Answer(question=question))


Look = Callable[[Desk, Question, float, Known], float | None]
"""Looks at a question at an instant: when to look again, None where it is answered."""


def look_once(desk: Desk, question: Question, now_s: float, forecast: Known) -> None:
    """The paper's way."""
    path = trajectory(forecast, replace(question.wanted, probability=desk.probability), 60.0)
    if path.chosen is None:
        desk.refuse(question)
    else:
        desk.submit(question, now_s + float(path.submit_s[path.chosen]))


def look_ahead(desk: Desk, question: Question, now_s: float, forecast: Known) -> None:
    """The latest instant that is sure enough as the queue stands, and no second look."""
    step = move(forecast, desk.strict(question.wanted, now_s), 0.0)
    if step.latest_s is None:
        desk.refuse(question)
    else:
        desk.submit(question, now_s + step.latest_s)


def look_moving(desk: Desk, question: Question, now_s: float, forecast: Known) -> float | None:
    """Submit, refuse at the first look, or look again later."""
    left = replace(desk.strict(question.wanted, now_s), start_by_s=question.start_by_s - now_s)
    step = move(forecast, left)
    if now_s == question.at_s and step.latest_s is None:
        desk.refuse(question)
    elif step.submit:
        desk.submit(question, now_s)
    else:
        return now_s + step.again_in_s
    return None


_LOOKS: tuple[tuple[Settings, dict[str, Look]], ...] = (
    (Settings(), {"once": look_once}),
    (AS_ASKED, {"ahead": look_ahead, "moving": look_moving}),
)
Answers = dict[tuple[str, float], list[Answer]]
"""By policy and level."""


def answer_all(log: JobLog, questions: Sequence[Question]) -> Answers:
    """All questions by all policies at all levels: one pass over the log for each method."""
    like, answers = LikeJobs(log), Answers()
    for level in LEVELS:
        desk = Desk(like, level)
        for question in questions:
            desk.submit(question, question.at_s)
        answers["now", level] = desk.answers
    for settings, looks in _LOOKS:
        desks = {(policy, level): Desk(like, level) for policy in looks for level in LEVELS}
        _pass(log, questions, settings, looks, desks)
        answers |= {key: desk.answers for key, desk in desks.items()}
    return answers


def _pass(
    log: JobLog,
    questions: Sequence[Question],
    settings: Settings,
    looks: Mapping[str, Look],
    desks: Mapping[tuple[str, float], Desk],
) -> None:
    """Time passes; every question is looked at when it is due."""
    passing, first_s = Replay(log, make_predictor(settings, log)), float(log.submit_s[0])
    due = [(q.at_s, q.number, key) for q in questions for key in desks]
    heapq.heapify(due)
    forecast, known_s = None, -np.inf
    while due:
        now_s, number, key = heapq.heappop(due)
        if forecast is None or now_s > known_s:
            passing.to(now_s)
            forecast, known_s = freeze_now(passing.predictor, now_s, first_s), now_s
        again_s = looks[key[0]](desks[key], questions[number], now_s, forecast)
        if again_s is not None:
            heapq.heappush(due, (again_s, number, key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One row: how many were asked, refused, had no like job; kept, and idle processor hours a
    promise.

    ``of_now``: idle time as a share of that of submitting at once, over the questions that were not
    refused.
    """

    log: str
    probability: float
    policy: str
    asked: int
    refused: int
    unmatched: int
    kept: int
    in_time: int
    idle_hours: float
    of_now: float | None

    @property
    def made(self) -> int:
        """Promises that were judged."""
        return self.asked - self.refused - self.unmatched


def outcome(
    log: str, level: float, policy: str, answers: Sequence[Answer], now: Sequence[Answer]
) -> Outcome:
    """Counted."""
    made = [a for a in answers if a.start_s is not None]
    taken = {a.question.number for a in answers if a.submit_s is not None}
    peers = [a for a in now if a.start_s is not None and a.question.number in taken]
    idle, at_once = (
        sum(a.idle_s for a in some) / 3600.0 / max(1, len(some)) for some in (made, peers)
    )
    return Outcome(
        log=log,
        probability=level,
        policy=policy,
        asked=len(answers),
        refused=len(answers) - len(taken),
        unmatched=len(taken) - len(made),
        kept=sum(a.kept for a in made),
        in_time=sum(a.in_time for a in made),
        idle_hours=idle,
        of_now=idle / at_once if at_once > 0 else None,
    )


def study_log(path: Path, count: int, jobs: int, seed: int) -> list[Outcome]:
    """One log under all policies and levels."""
    log = read_enough(path)
    log = log.select(np.arange(min(jobs, len(log))))
    questions = draw_questions(log, count, seed)
    answers = answer_all(log, questions)
    return [
        outcome(history_name(path), level, policy, answers[policy, level], answers["now", level])
        for level in LEVELS
        for policy in POLICIES
    ]


def recorded_study(logs: Sequence[Path], count: int, jobs: int, seed: int = 0) -> list[Outcome]:
    """All logs, on all cores, with a progress bar."""
    work = partial(study_log, count=count, jobs=jobs, seed=seed)
    with ProcessPoolExecutor() as pool:
        bar = Console(stderr=True)
        done = track(pool.map(work, logs), "reserving recorded", total=len(logs), console=bar)
        return [one for found in done for one in found]


def as_text(outcomes: Sequence[Outcome]) -> str:
    """The study as a Markdown table; what misses its aim is named in the last column."""
    rows = []
    for o in outcomes:
        made = max(1, o.made)
        low, high = proportion_confint(o.kept, made, method="wilson")
        told = o.made > 0
        rows.append(
            [
                o.log,
                str(o.probability),
                o.policy,
                f"{o.refused / o.asked:.2f}",
                f"{o.unmatched / o.asked:.2f}",
                f"{o.kept / made:.3f} of {o.made}" if told else "–",
                f"{low:.3f}–{high:.3f}" if told else "–",
                f"{o.in_time / made:.3f}" if told else "–",
                f"{o.idle_hours:,.1f}" if told else "–",
                "–" if o.of_now is None else f"{o.of_now:.2f}",
                ", ".join(missed(o)),
            ]
        )
    return text_table(HEAD, rows)


def missed(o: Outcome) -> list[str]:
    """Aims that ``ahead`` and ``moving`` miss: kept as asked less .02, at most half as idle as
    submitting now."""
    if o.policy not in ("ahead", "moving") or not o.made:
        return []
    found = []
    if o.kept / o.made < o.probability - _SHORT:
        found.append("kept")
    if o.of_now is not None and o.of_now > 0.5:
        found.append("idle")
    return found


def as_document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything as JSON."""
    return {"rows": [asdict(o) | {"made": o.made} for o in outcomes]}

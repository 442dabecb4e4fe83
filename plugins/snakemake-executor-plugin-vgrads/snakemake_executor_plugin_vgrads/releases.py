"""Release jobs to the round that holds slots for them; tasks that a round cannot complete go to a
new round.

Jobs arrive in the thread of Snakemake's scheduler; one thread per round receives updates from
vgrads. ``_lock`` guards their shared state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import Logger
from typing import Any, Protocol

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.dag import DAGExecutorInterface

from snakemake_executor_plugin_vgrads import graph
from snakemake_executor_plugin_vgrads.promise import Promised, Promises, begin
from snakemake_executor_plugin_vgrads.rounds import SlotRound, SubmittedJob, task_behind
from snakemake_executor_plugin_vgrads.service import Served
from vgrads.kernel.errors import InputError, VgradsError

_MOST_ROUNDS = 5
_PATIENCE_S = 120.0
"""How long requests to a service that does not answer are retried, in seconds."""
_ALIVE_S = 60.0
"""Interval of heartbeats to a run while no tasks are released, in seconds."""


class Snakemake(Protocol):
    """The calls into Snakemake: queries and job results."""

    @property
    def dag(self) -> DAGExecutorInterface: ...
    @property
    def logger(self) -> Logger: ...
    @property
    def keeps_going(self) -> bool: ...
    def job_succeeded(self, job: SubmittedJob) -> None: ...
    def job_failed(self, job: SubmittedJob, reason: str) -> None: ...
    def job_refused(self, job: SubmittedJob, reason: str) -> None: ...
    def job_left(self, job: SubmittedJob) -> None: ...


def _start_thread(name: str, target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, daemon=True, name=name).start()


class JobReleases:
    """The jobs that are not terminal, and all rounds; new jobs go to the last one."""

    def __init__(self, snakemake: Snakemake, served: Served, promises: Promises) -> None:
        self._snakemake, self._served, self._promises = snakemake, served, promises
        self._jobs: dict[str, SubmittedJob] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._rounds: list[SlotRound] = []

    def begin(self, promised: Promised, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Open the first round."""
        self._open(promised, tasks)
        _start_thread("vgrads-alive", self._send_heartbeats)

    def _open(self, promised: Promised, tasks: Iterable[Mapping[str, Any]]) -> None:
        run = begin(self._served, promised)
        slot_round = SlotRound(promised, run, {task["id"] for task in tasks})
        self._rounds.append(slot_round)
        _start_thread(f"vgrads-{run.run_id}", self._listen, slot_round)

    def name_of(self, task: str) -> str:
        """Return the display name of a task."""
        return f"{self._rounds[-1].run.run_id}/{task}" if self._rounds else task

    def take(self, handed: Sequence[SubmittedJob]) -> None:
        """Release these jobs in one request."""
        with self._lock:
            self._jobs.update((job.task, job) for job in handed)
            self._release(handed)

    def _release(self, handed: Sequence[SubmittedJob]) -> None:
        """Release jobs to the newest round; tasks that it does not contain are added first, with
        all their dependents."""
        if not handed:
            return
        if not self._rounds or self._rounds[-1].over:
            self._go_on("it was over")
            return
        newest = self._rounds[-1]
        more = []
        if newest.take(handed):
            more = newest.extend(graph.unfinished(self._snakemake.dag, self._jobs), handed)
        after = self._ask(newest, newest.release_rows(handed), more)
        for job in handed:
            job.after = after

    def _ask(
        self,
        newest: SlotRound,
        release: Sequence[Any] = (),
        add: Sequence[Any] = (),
        give_up: Sequence[Any] = (),
    ) -> int:
        """Send a request to a run; if the run is terminal, a new one follows. Return the sequence
        number after which updates reflect the request."""
        try:
            return self._served.client.release(newest.run.run_id, release, add=add, give_up=give_up)
        except VgradsError as error:
            if not isinstance(error, InputError) or "has ended" not in str(error):
                self._fail(release, str(error))
            else:
                newest.over = True
                if release or add:
                    self._go_on(str(error))
        return 0

    def _fail(self, rows: Iterable[Mapping[str, Any]], reason: str) -> None:
        for row in rows:
            job = self._jobs.pop(task_behind(row["task"]), None)
            if job is not None:
                self._snakemake.job_refused(job, reason)

    def stop(self) -> bool:
        """Cancel the remaining tasks; runs with none left finish by themselves. Return False where
        this was done before."""
        if self._stopping.is_set():
            return False
        self._stopping.set()
        for slot_round in self._rounds:
            if slot_round.promised.run is not None:  # the other workflows continue
                self._abandon(slot_round, slot_round.tasks, "its Snakemake has ended")
                slot_round.over = True
            elif not slot_round.over and graph.unfinished(self._snakemake.dag, self._jobs):
                self._cancel(slot_round)
            else:  # tasks that Snakemake did not need are not waited for
                self._abandon(slot_round, slot_round.tasks - set(slot_round.done), "not needed")
        end_s = time.monotonic() + _ALIVE_S
        while any(not item.over for item in self._rounds) and time.monotonic() < end_s:
            time.sleep(0.05)
        return True

    def _cancel(self, slot_round: SlotRound) -> None:
        try:
            self._served.client.cancel(slot_round.run.set_id)
        except VgradsError:
            slot_round.over = True  # the run is already terminal

    def _send_heartbeats(self) -> None:
        while not self._stopping.wait(_ALIVE_S):
            with self._lock:
                if self._rounds and not self._rounds[-1].over:
                    self._ask(self._rounds[-1])

    def _listen(self, round_: SlotRound) -> None:
        try:
            for row in self._served.client.answers(round_.run.run_id, patience_s=_PATIENCE_S):
                if row["event"] == "end":
                    self._ended(round_, row["state"])
                    return
                with self._lock:
                    self._receive(round_, row)
        except VgradsError as error:
            with self._lock:
                round_.over = True
                lost = [{"task": job.task} for job in self._jobs.values() if job.round is round_]
                self._fail(lost, f"the connection to the service was lost: {error}")

    def _receive(self, round_: SlotRound, row: Mapping[str, Any]) -> None:
        job = self._jobs.get(task_behind(row["task"]))
        if job is None or not round_.describes(job, row):
            return
        job.state = row["state"]
        if job.state == "running":
            self._snakemake.logger.debug(
                f"vgrads: {job.task} runs in {row['slot']} at {row['site']}"
            )
        elif job.state == "done":
            del self._jobs[job.task]
            round_.done[job.task] += 1
            self._snakemake.job_succeeded(job)
        elif job.state == "failed":
            self._failed(round_, job, row["reason"])
        elif job.dropped:
            del self._jobs[job.task]
            self._snakemake.job_left(job)
        elif round_ is self._rounds[-1]:
            self._go_on(row["reason"])
        else:  # the newest round was planned without it
            self._release([job])

    def _failed(self, round_: SlotRound, job: SubmittedJob, reason: str) -> None:
        """Let Snakemake retry the job under its own rules, or give up the task."""
        del self._jobs[job.task]
        if not job.is_retried:
            self._abandon(round_, [job.name], reason)
            if not self._snakemake.keeps_going:
                self._drop_waiting()
        self._snakemake.job_failed(job, reason)

    def _drop_waiting(self) -> None:
        """Drop jobs that have not started, as Snakemake does after a failure."""
        waiting = [job for job in self._jobs.values() if job.waits]
        for job in waiting:
            job.dropped = True
        if waiting:
            self._snakemake.logger.info(
                f"vgrads: {len(waiting)} jobs that have not started are abandoned"
            )
            for slot_round in self._rounds:
                names = [job.name for job in waiting if job.round is slot_round]
                self._abandon(slot_round, names, "another job failed")

    def _abandon(self, round_: SlotRound, tasks: Iterable[str], reason: str) -> None:
        rows = round_.give_up_rows(tasks, reason)
        if rows and not round_.over:
            self._ask(round_, give_up=rows)

    def _ended(self, round_: SlotRound, state: str) -> None:
        """Handle the end of a run: its unfinished jobs go to a new one."""
        with self._lock:
            round_.over = True
            left = any(job.round is round_ for job in self._jobs.values())
            if left and round_ is self._rounds[-1]:
                self._go_on(f"it ended as {state}")

    def _go_on(self, reason: str) -> None:
        """Move jobs that a round cannot complete to a new round, which gets a new promise."""
        if self._stopping.is_set():
            return
        old = self._rounds[-1] if self._rounds else None
        running = old.running(self._jobs.values()) if old is not None else set()
        open_ = [job for job in self._jobs.values() if job.task not in running]
        try:
            if len(self._rounds) >= _MOST_ROUNDS:
                raise WorkflowError(f"vgrads: given up after {_MOST_ROUNDS} plans: {reason}")
            tasks = graph.unfinished(self._snakemake.dag, self._jobs, but=running)
            if old is not None:
                self._snakemake.logger.warning(
                    f"vgrads: the promise no longer holds: {reason}. The remaining tasks "
                    "are planned again"
                )
                self._abandon(old, {task["id"] for task in tasks} & old.tasks, "planned again")
            self._open(self._promises.another(tasks), tasks)
        except WorkflowError as error:
            self._fail([{"task": job.task} for job in open_], str(error))
            return
        self._release(open_)

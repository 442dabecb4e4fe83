"""Jobs are released to the round that holds slots for them; what a round cannot keep goes into
another one.

Jobs come in the thread of Snakemake's scheduler; one thread a round listens to vgrads. ``_lock``
guards what they share.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from logging import Logger
from typing import Any, Protocol

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.dag import DAGExecutorInterface

from snakemake_executor_plugin_vgrads import graph
from snakemake_executor_plugin_vgrads.promise import Promised, Promises, begin
from snakemake_executor_plugin_vgrads.rounds import HandedOver, Round, task_behind
from snakemake_executor_plugin_vgrads.service import Served
from vgrads.kernel.errors import InputError, VgradsError

_MOST_ROUNDS = 5
_PATIENCE_S = 120.0
"""For which a service that does not answer is asked again."""
_ALIVE_S = 60.0
"""Between signs of life to a run that nobody is releasing tasks of just now."""


class Snakemake(Protocol):
    """What is asked of Snakemake, and told to it."""

    @property
    def dag(self) -> DAGExecutorInterface: ...
    @property
    def logger(self) -> Logger: ...
    @property
    def keeps_going(self) -> bool: ...
    def job_succeeded(self, job: HandedOver) -> None: ...
    def job_failed(self, job: HandedOver, reason: str) -> None: ...
    def job_refused(self, job: HandedOver, reason: str) -> None: ...
    def job_left(self, job: HandedOver) -> None: ...


class Releases:
    """The jobs that have not ended, and all rounds; the last one takes what comes."""

    def __init__(self, snakemake: Snakemake, served: Served, promises: Promises) -> None:
        self._snakemake, self._served, self._promises = snakemake, served, promises
        self._jobs: dict[str, HandedOver] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._rounds: list[Round] = []

    def begin(self, promised: Promised, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Have the first round opened."""
        self._open(promised, tasks)
        threading.Thread(target=self._give_signs, daemon=True, name="vgrads-alive").start()

    def _open(self, promised: Promised, tasks: Iterable[Mapping[str, Any]]) -> None:
        found = Round(promised, begin(self._served, promised), {task["id"] for task in tasks})
        self._rounds.append(found)
        threading.Thread(
            target=self._listen, args=(found,), daemon=True, name=f"vgrads-{found.run.run_id}"
        ).start()

    def name_of(self, task: str) -> str:
        """What a task is called for people who look for it."""
        return f"{self._rounds[-1].run.run_id}/{task}" if self._rounds else task

    def take(self, handed: Sequence[HandedOver]) -> None:
        """Release these, all of them in one request."""
        with self._lock:
            self._jobs.update((job.task, job) for job in handed)
            self._release(handed)

    def _release(self, handed: Sequence[HandedOver]) -> None:
        """To the newest round; what it does not know is added to it, with all that follows."""
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
        newest: Round,
        release: Sequence[Any] = (),
        add: Sequence[Any] = (),
        give_up: Sequence[Any] = (),
    ) -> int:
        """Tell a run; one that is over by now is followed by another. The number that answers to it
        lie behind."""
        try:
            return self._served.client.release(newest.run.run_id, release, add=add, give_up=give_up)
        except VgradsError as error:
            if not isinstance(error, InputError) or "is over" not in str(error):
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
        """Give up what is left; where nothing is, runs end by themselves. False where this was done
        before."""
        if self._stopping.is_set():
            return False
        self._stopping.set()
        for one in self._rounds:
            if one.promised.run is not None:  # the others go on
                self._give_up(one, one.tasks, "its Snakemake has ended")
                one.over = True
            elif not one.over and graph.unfinished(self._snakemake.dag, self._jobs):
                self._cancel(one)
            else:  # of what Snakemake did not need after all nothing is waited for
                self._give_up(one, one.tasks - set(one.done), "not needed")
        end_s = time.monotonic() + _ALIVE_S
        while any(not one.over for one in self._rounds) and time.monotonic() < end_s:
            time.sleep(0.05)
        return True

    def _cancel(self, one: Round) -> None:
        try:
            self._served.client.cancel(one.run.set_id)
        except VgradsError:
            one.over = True  # it ended meanwhile

    def _give_signs(self) -> None:
        while not self._stopping.wait(_ALIVE_S):
            with self._lock:
                if self._rounds and not self._rounds[-1].over:
                    self._ask(self._rounds[-1])

    def _listen(self, round_: Round) -> None:
        try:
            for row in self._served.client.answers(round_.run.run_id, patience_s=_PATIENCE_S):
                if row["event"] == "end":
                    self._ended(round_, row["state"])
                    return
                with self._lock:
                    self._hear(round_, row)
        except VgradsError as error:
            with self._lock:
                round_.over = True
                lost = [{"task": job.task} for job in self._jobs.values() if job.round is round_]
                self._fail(lost, f"the service is gone: {error}")

    def _hear(self, round_: Round, row: Mapping[str, Any]) -> None:
        job = self._jobs.get(task_behind(row["task"]))
        if job is None or not round_.tells_of(job, row):
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
        else:  # the newest one was planned without it
            self._release([job])

    def _failed(self, round_: Round, job: HandedOver, reason: str) -> None:
        """Snakemake tries again, with its own rules, or the task is given up."""
        del self._jobs[job.task]
        if not job.is_tried_again:
            self._give_up(round_, [job.name], reason)
            if not self._snakemake.keeps_going:
                self._drop_waiting()
        self._snakemake.job_failed(job, reason)

    def _drop_waiting(self) -> None:
        """After a failure what has not begun is left, as Snakemake leaves it."""
        waiting = [job for job in self._jobs.values() if job.waits]
        for job in waiting:
            job.dropped = True
        if waiting:
            self._snakemake.logger.info(f"vgrads: {len(waiting)} jobs that have not begun are left")
            for one in self._rounds:
                self._give_up(
                    one, [j.name for j in waiting if j.round is one], "another job failed"
                )

    def _give_up(self, round_: Round, tasks: Iterable[str], reason: str) -> None:
        rows = round_.give_up_rows(tasks, reason)
        if rows and not round_.over:
            self._ask(round_, give_up=rows)

    def _ended(self, round_: Round, state: str) -> None:
        """A run is over: what it was to do and has not goes into another."""
        with self._lock:
            round_.over = True
            left = any(job.round is round_ for job in self._jobs.values())
            if left and round_ is self._rounds[-1]:
                self._go_on(f"it ended as {state}")

    def _go_on(self, reason: str) -> None:
        """What a round cannot keep any more goes into another one, for which another promise is
        made."""
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
                    f"vgrads: the promise does not hold any more: {reason}. What is left "
                    "is planned anew"
                )
                self._give_up(old, {task["id"] for task in tasks} & old.tasks, "planned anew")
            self._open(self._promises.another(tasks), tasks)
        except WorkflowError as error:
            self._fail([{"task": job.task} for job in open_], str(error))
            return
        self._release(open_)

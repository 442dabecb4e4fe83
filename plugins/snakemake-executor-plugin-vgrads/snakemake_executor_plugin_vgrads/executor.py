"""The executor: Snakemake says which jobs are ready, vgrads when and where each runs, and how it
ended.

Snakemake's scheduler hands jobs over in its thread; one thread a run listens to vgrads. ``_lock``
guards what they share.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import ExecMode

from snakemake_executor_plugin_vgrads import graph
from snakemake_executor_plugin_vgrads.commands import Commands
from snakemake_executor_plugin_vgrads.promise import (
    Promised,
    Wishes,
    begin,
    hand_over,
    join,
    together_of,
)
from snakemake_executor_plugin_vgrads.rounds import HandedOver, Round
from snakemake_executor_plugin_vgrads.service import Served
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.workflows.formats.snakemake_jobs import task_id, tasks_of

_MOST_ROUNDS = 5
_PATIENCE_S = 120.0
"""For which a service that does not answer is asked again."""
_ALIVE_S = 60.0
"""Between signs of life to a run that nobody is releasing tasks of just now."""


class Executor(RealExecutor):
    """Snakemake's interface (``snakemake-interface-executor-plugins``)."""

    def __post_init__(self) -> None:
        settings = self.executor_settings
        self._jobs: dict[str, HandedOver] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._rounds: list[Round] = []
        self._commands = Commands(self.workflow, direct=not settings.respawn)
        self._served = Served(
            settings.url, settings.token, settings.sites, self._commands.folder / "service.log"
        )
        try:
            self._commands.write_environment(self.envvars())
            self._open_first(settings)
        except BaseException:
            self._close()
            raise

    def _open_first(self, settings: Any) -> None:
        tasks = tasks_of(self.dag)
        name = Path(self.workflow.workdir_init).name or "snakemake"
        together = together_of(settings)
        self._wishes = Wishes(
            name=name,
            deadline=settings.deadline or None,
            probability=settings.probability,
            together=together,
        )
        if not tasks and together is None:
            return
        if together is None or settings.plan_only:
            promised = hand_over(self._served, tasks, self._wishes)
        else:
            promised = join(self._served, tasks, self._wishes, self.logger.info)
        self._tell(promised)
        if settings.plan_only:
            self._close()
            raise SystemExit(0)
        self._open(promised, tasks)
        threading.Thread(target=self._give_signs, daemon=True, name="vgrads-alive").start()

    def _tell(self, promised: Promised) -> None:
        self.logger.info(promised.sentence)
        if promised.plan["promise"]["probability"] < self._wishes.probability:
            self.logger.warning(
                f"vgrads: that is less sure than {self._wishes.probability}, which was asked for"
            )
        for warning in promised.plan.get("warnings") or ():
            self.logger.warning(f"vgrads: {warning}")
        for note in promised.plan.get("notes") or ():
            self.logger.info(f"vgrads: {note}")

    def _open(self, promised: Promised, tasks: Iterable[Mapping[str, Any]]) -> None:
        found = Round(promised, begin(self._served, promised), {task["id"] for task in tasks})
        self._rounds.append(found)
        threading.Thread(
            target=self._listen, args=(found,), daemon=True, name=f"vgrads-{found.run.run_id}"
        ).start()

    # what Snakemake asks of every executor

    @property
    def cores(self) -> str:
        """Of a job that is begun by a Snakemake of its own: see :meth:`get_job_args`."""
        return "all"

    def get_job_args(self, job: JobExecutorInterface, **kwargs: Any) -> str:
        """As many cores as its slot has for it."""
        found: str = super().get_job_args(job, cores=max(1, int(job.threads)), **kwargs)
        return found

    def get_exec_mode(self) -> ExecMode:
        """Its inner Snakemake runs what it is told, and nothing else."""
        return ExecMode.REMOTE

    def get_python_executable(self) -> str:
        """The interpreter that this runs in; its folder must be there wherever slots are.

        ``-P``: like the command ``snakemake``, it imports nothing from the workflow's folder.
        """
        return f"{sys.executable} -P"

    def run_job(self, job: JobExecutorInterface) -> None:
        """One job."""
        self.run_jobs([job])

    def run_jobs(self, jobs: Sequence[Any]) -> None:
        """Release what is ready, all of it in one request."""
        handed = []
        for job in jobs:
            self.run_job_pre(job)
            found = self._prepared(job)
            if found is not None:
                handed.append(found)
        with self._lock:
            self._release(handed)

    def _prepared(self, job: JobExecutorInterface) -> HandedOver | None:
        """A job with its command; None where it could not be prepared, which is told."""
        task = task_id(job)
        info = SubmittedJobInfo(
            job, external_jobid=f"{self._rounds[-1].run.run_id}/{task}" if self._rounds else task
        )
        self.report_job_submission(info)
        try:
            inner, own_mib = self._commands.direct(job, task, self.logger.info), graph.SHELLS_MIB
            if not inner:
                inner, own_mib = self.format_job_exec(job), graph.OWN_MIB
            found = HandedOver(
                info, task, self._commands.around(inner, task), graph.memory_mib(job, own_mib)
            )
        except Exception as error:  # whatever is wrong with a job is an error of the job
            self.report_job_error(info, msg=f"vgrads: {error}")
            return None
        with self._lock:
            self._jobs[task] = found
        return found

    def _release(self, handed: Sequence[HandedOver]) -> None:
        """To the newest round; what it does not know is added to it, with all that follows."""
        if not handed:
            return
        if not self._rounds or self._rounds[-1].over:
            self._go_on("it was over")
            return
        newest = self._rounds[-1]
        for job in handed:
            times = newest.done[job.task]
            job.round, job.state = newest, "released"
            job.name = f"{job.task}~{times}" if times else job.task
        more = []
        if any(job.name not in newest.tasks for job in handed):
            more = self._unknown(newest, handed)
            newest.tasks.update(row["task"] for row in more)
        where = newest.promised.workflow
        rows = [
            {
                "workflow": where,
                "task": job.name,
                "command": job.command,
                "memory_mib": job.memory_mib,
            }
            for job in handed
        ]
        after = self._ask(newest, rows, more)
        for job in handed:
            job.after = after

    def _unknown(self, newest: Round, handed: Sequence[HandedOver]) -> list[dict[str, Any]]:
        """Tasks of the graph as it is now that a round does not know, those of jobs that are done
        again among them."""
        left = {task["id"]: task for task in graph.unfinished(self.dag, self._jobs)}
        again = [
            {**left[job.task], "id": job.name, "parents": []}
            for job in handed
            if job.name != job.task
        ]
        return [
            {
                "workflow": newest.promised.workflow,
                "task": task["id"],
                "document": graph.document_of(task),
            }
            for task in (*left.values(), *again)
            if task["id"] not in newest.tasks
        ]

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
        except InputError as error:
            if "is over" in str(error):
                newest.over = True
                if release or add:
                    self._go_on(str(error))
            else:
                self._fail(release, str(error))
        except VgradsError as error:
            self._fail(release, str(error))
        return 0

    def _fail(self, rows: Iterable[Mapping[str, Any]], reason: str) -> None:
        for row in rows:
            job = self._jobs.pop(_base(row["task"]), None)
            if job is not None:
                self.report_job_error(job.info, msg=f"vgrads: {reason}")

    def handle_job_success(self, job: JobExecutorInterface) -> None: ...

    def handle_job_error(self, job: JobExecutorInterface) -> None: ...

    def cancel(self) -> None:
        """Ctrl-C: stop what runs, give all slots back."""
        self.logger.info("vgrads: what runs is stopped, and all slots are given back")
        self._end()

    def shutdown(self) -> None:
        """No more will be done."""
        self._end()

    def _end(self) -> None:
        """Give up what is left; where nothing is, runs end by themselves."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for one in self._rounds:
            if one.promised.run is not None:  # the others go on
                self._give_up(one, one.tasks, "its Snakemake has ended")
                one.over = True
            elif not one.over and graph.unfinished(self.dag, self._jobs):
                self._cancel(one)
            else:  # of what Snakemake did not need after all nothing is waited for
                self._give_up(one, one.tasks - set(one.done), "not needed")
        self._await_ends()
        self._close()

    def _cancel(self, one: Round) -> None:
        try:
            self._served.client.cancel(one.run.set_id)
        except VgradsError:
            one.over = True  # it ended meanwhile

    def _await_ends(self) -> None:
        end_s = time.monotonic() + _ALIVE_S
        while any(not one.over for one in self._rounds) and time.monotonic() < end_s:
            time.sleep(0.05)

    def _close(self) -> None:
        self._stopping.set()
        self._served.close()
        self._commands.forget()

    # what vgrads tells

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
        job = self._jobs.get(_base(row["task"]))
        if job is None or job.round is not round_ or row["workflow"] != round_.promised.workflow:
            return
        if job.name != row["task"] or 0 < row["release"] <= job.after:
            return  # of an earlier release
        job.state = row["state"]
        if job.state == "running":
            self.logger.debug(f"vgrads: {job.task} runs in {row['slot']} at {row['site']}")
        elif job.state == "done":
            del self._jobs[job.task]
            round_.done[job.task] += 1
            self.report_job_success(job.info)
        elif job.state == "failed":
            self._failed(round_, job, row)
        elif job.dropped:
            del self._jobs[job.task]
            self.workflow.scheduler.error_callback(job.info.job)
        elif round_ is self._rounds[-1]:
            self._go_on(row["reason"])
        else:  # the newest one was planned without it
            self._release([job])

    def _failed(self, round_: Round, job: HandedOver, row: Mapping[str, Any]) -> None:
        """Snakemake tries again, with its own rules, or the task is given up."""
        del self._jobs[job.task]
        told = self._commands.with_output(row["reason"], job.task)
        again = job.info.job.restart_times > job.info.job.attempt - 1
        if not again:
            self._give_up(round_, [job.name], row["reason"])
            if not self.workflow.execution_settings.keep_going:
                self._drop_waiting()
        self.report_job_error(job.info, msg=told, aux_logs=[str(self._commands.log_of(job.task))])

    def _drop_waiting(self) -> None:
        """After a failure what has not begun is left, as Snakemake leaves it."""
        waiting = [
            job for job in self._jobs.values() if job.state == "released" and not job.dropped
        ]
        for job in waiting:
            job.dropped = True
        if waiting:
            self.logger.info(f"vgrads: {len(waiting)} jobs that have not begun are left")
            for one in self._rounds:
                self._give_up(
                    one, [j.name for j in waiting if j.round is one], "another job failed"
                )

    def _give_up(self, round_: Round, tasks: Iterable[str], reason: str) -> None:
        where = round_.promised.workflow
        rows = [{"workflow": where, "task": task, "reason": reason} for task in tasks]
        if rows and not round_.over:
            self._ask(round_, give_up=rows)

    def _ended(self, round_: Round, state: str) -> None:
        """A run is over: what it was to do and has not goes into another."""
        with self._lock:
            round_.over = True
            if round_ is self._rounds[-1] and not self._stopping.is_set():
                left = any(job.round is round_ for job in self._jobs.values())
                if left:
                    self._go_on(f"it ended as {state}")

    def _go_on(self, reason: str) -> None:
        """What a round cannot keep any more goes into another one, for which another promise is
        made."""
        if self._stopping.is_set():
            return
        old = self._rounds[-1] if self._rounds else None
        running = {
            job.task
            for job in self._jobs.values()
            if job.round is old and job.state == "running" and old is not None and not old.over
        }
        open_ = [job for job in self._jobs.values() if job.task not in running]
        try:
            if len(self._rounds) >= _MOST_ROUNDS:
                raise WorkflowError(f"vgrads: given up after {_MOST_ROUNDS} plans: {reason}")
            tasks = [
                task for task in graph.unfinished(self.dag, self._jobs) if task["id"] not in running
            ]
            ids = {task["id"] for task in tasks}
            for task in tasks:
                task["parents"] = [parent for parent in task["parents"] if parent in ids]
            if old is not None:
                self.logger.warning(
                    f"vgrads: the promise does not hold any more: {reason}. What is left "
                    "is planned anew"
                )
                self._give_up(old, ids & old.tasks, "planned anew")
            promised = hand_over(self._served, tasks, self._wishes_now())
            self._tell(promised)
            self._open(promised, tasks)
        except WorkflowError as error:
            self._fail([{"task": job.task} for job in open_], str(error))
            return
        self._release(open_)

    def _wishes_now(self) -> Wishes:
        """The same without the deadline that cannot be kept."""
        return replace(self._wishes, deadline=None, together=None)


def _base(name: str) -> str:
    """The task behind one that is done again in its round."""
    return name.partition("~")[0]

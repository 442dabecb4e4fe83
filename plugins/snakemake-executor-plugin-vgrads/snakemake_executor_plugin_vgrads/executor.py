"""The executor: Snakemake says which jobs are ready, vgrads when and where each runs, and how it
ended.

Snakemake's scheduler hands jobs over in its thread; how they end is told in other threads
(:mod:`snakemake_executor_plugin_vgrads.releases`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import ExecMode

from snakemake_executor_plugin_vgrads import graph
from snakemake_executor_plugin_vgrads.commands import Commands
from snakemake_executor_plugin_vgrads.promise import Promises
from snakemake_executor_plugin_vgrads.releases import Releases
from snakemake_executor_plugin_vgrads.rounds import HandedOver
from snakemake_executor_plugin_vgrads.service import Served
from vgrads.workflows.formats.snakemake_jobs import task_id, tasks_of


class Executor(RealExecutor):
    """Snakemake's interface (``snakemake-interface-executor-plugins``)."""

    def __post_init__(self) -> None:
        settings = self.executor_settings
        self._commands = Commands(self.workflow, direct=not settings.respawn)
        self._served = Served(
            settings.url, settings.token, settings.sites, self._commands.folder / "service.log"
        )
        try:
            self._commands.write_environment(self.envvars())
            self._releases = self._begun(settings)
        except BaseException:
            self._close()
            raise

    def _begun(self, settings: Any) -> Releases:
        """With slots for all that is to be done; SystemExit where only the promise is wanted."""
        tasks = tasks_of(self.dag)
        name = Path(self.workflow.workdir_init).name or "snakemake"
        promises = Promises(self._served, settings, name, self.logger)
        releases = Releases(self, self._served, promises)
        if tasks or promises.with_others:
            promised = promises.first(tasks, alone=settings.plan_only)
            if settings.plan_only:
                raise SystemExit(0)
            releases.begin(promised, tasks)
        return releases

    def _close(self) -> None:
        self._served.close()
        self._commands.forget()

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
        self._releases.take(handed)

    def _prepared(self, job: JobExecutorInterface) -> HandedOver | None:
        """A job with its command; None where it could not be prepared, which is told."""
        task = task_id(job)
        info = SubmittedJobInfo(job, external_jobid=self._releases.name_of(task))
        self.report_job_submission(info)
        try:
            inner, own_mib = self._commands.direct(job, task, self.logger.info), graph.SHELLS_MIB
            if not inner:
                inner, own_mib = self.format_job_exec(job), graph.OWN_MIB
            return HandedOver(
                info, task, self._commands.around(inner, task), graph.memory_mib(job, own_mib)
            )
        except Exception as error:  # whatever is wrong with a job is an error of the job
            self.report_job_error(info, msg=f"vgrads: {error}")
            return None

    def handle_job_success(self, job: JobExecutorInterface) -> None: ...

    def handle_job_error(self, job: JobExecutorInterface) -> None: ...

    def cancel(self) -> None:
        """Ctrl-C: stop what runs, give all slots back."""
        self.logger.info("vgrads: what runs is stopped, and all slots are given back")
        self.shutdown()

    def shutdown(self) -> None:
        """No more will be done."""
        if self._releases.stop():
            self._close()

    # what became of jobs

    @property
    def keeps_going(self) -> bool:
        """True where jobs that do not need a failed one are run."""
        return bool(self.workflow.execution_settings.keep_going)

    def job_succeeded(self, job: HandedOver) -> None:
        """It is done."""
        self.report_job_success(job.info)

    def job_failed(self, job: HandedOver, reason: str) -> None:
        """It ran, and failed."""
        told = self._commands.with_output(reason, job.task)
        self.report_job_error(job.info, msg=told, aux_logs=[str(self._commands.log_of(job.task))])

    def job_refused(self, job: HandedOver, reason: str) -> None:
        """It cannot be run."""
        self.report_job_error(job.info, msg=f"vgrads: {reason}")

    def job_left(self, job: HandedOver) -> None:
        """It was not begun, after the failure of another one."""
        self.workflow.scheduler.error_callback(job.info.job)

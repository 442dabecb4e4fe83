"""The executor: Snakemake reports which jobs are ready; vgrads decides when and where each runs,
and reports its result.

Snakemake's scheduler submits jobs in its thread; their results are reported in other threads
(:mod:`snakemake_executor_plugin_vgrads.releases`).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import ExecMode

from snakemake_executor_plugin_vgrads import graph
from snakemake_executor_plugin_vgrads.commands import JobCommands
from snakemake_executor_plugin_vgrads.promise import Promises
from snakemake_executor_plugin_vgrads.releases import JobReleases
from snakemake_executor_plugin_vgrads.rounds import SubmittedJob
from snakemake_executor_plugin_vgrads.service import Served
from vgrads.workflows.formats.snakemake_jobs import derive_task_id, make_tasks

_LONGEST_NAME = 100  # of a set, in characters: services refuse one that is much longer
_THIS_MACHINE = "here"  # value of --vgrads-sites


class Executor(RealExecutor):
    """The executor interface of Snakemake (``snakemake-interface-executor-plugins``)."""

    def __post_init__(self) -> None:
        settings = self.executor_settings
        self._commands = JobCommands(self.workflow, direct=not settings.respawn)
        try:
            self._served = Served(
                settings.url, settings.token, settings.sites, self._commands.folder / "service.log"
            )
            self._start()
        except WorkflowError as error:  # Snakemake would add the lines of this program
            self.logger.error(str(error))
            raise SystemExit(1) from error

    def _start(self) -> None:
        try:
            self._commands.write_environment(self.envvars())
            self._releases = self._begun(self.executor_settings)
        except BaseException:
            self._close()
            raise

    def _begun(self, settings: Any) -> JobReleases:
        """Request slots for all unfinished jobs. Raise SystemExit where only the promise is
        requested."""
        if settings.sites == _THIS_MACHINE and not settings.url:
            self._limit_threads(os.cpu_count() or 1)
        tasks = make_tasks(self.dag)
        folder = os.fsencode(Path(self.workflow.workdir_init).name)
        name = folder.decode(errors="replace")[:_LONGEST_NAME] or "snakemake"
        promises = Promises(self._served, settings, name, self.logger)
        releases = JobReleases(self, self._served, promises)
        if tasks or promises.with_others:
            promised = promises.first(tasks, alone=settings.plan_only)
            if settings.plan_only:
                raise SystemExit(0)
            releases.begin(promised, tasks)
        return releases

    def _limit_threads(self, cores: int) -> None:
        """Limit the threads of jobs to the cores of this machine, as ``--cores`` does. Snakemake
        evaluates the resources of each job again when it is ready."""
        limits = self.workflow.resource_settings
        limits.max_threads = min(limits.max_threads or cores, cores)

    def _close(self) -> None:
        self._served.close()
        self._commands.forget()

    # the interface that Snakemake requires of every executor

    @property
    def cores(self) -> str:
        """Return the cores of a job that is started by its own Snakemake process: see
        :meth:`get_job_args`."""
        return "all"

    def get_job_args(self, job: JobExecutorInterface, **kwargs: Any) -> str:
        """Return the arguments that set as many cores as the slot has for the job."""
        arguments: str = super().get_job_args(job, cores=max(1, int(job.threads)), **kwargs)
        return arguments

    def get_exec_mode(self) -> ExecMode:
        """Return the mode in which the inner Snakemake runs only the given job."""
        return ExecMode.REMOTE

    def get_python_executable(self) -> str:
        """Return the interpreter of this process; its folder must exist at every slot.

        ``-P``: like the command ``snakemake``, it imports nothing from the workflow's folder.
        """
        return f"{sys.executable} -P"

    def get_snakefile(self) -> str:
        """Return the Snakefile, quoted for the shell: Snakemake quotes it as Python text, which no
        shell reads where the name has both kinds of quotes, or one and a dollar."""
        return shlex.quote(str(super().get_snakefile()))

    def run_job(self, job: JobExecutorInterface) -> None:
        """Run one job."""
        self.run_jobs([job])

    def run_jobs(self, jobs: Sequence[Any]) -> None:
        """Release all ready jobs in one request."""
        handed = []
        for job in jobs:
            self.run_job_pre(job)
            prepared = self._prepared(job)
            if prepared is not None:
                handed.append(prepared)
        self._releases.take(handed)

    def _prepared(self, job: JobExecutorInterface) -> SubmittedJob | None:
        """Return a job with its command; None where it could not be prepared, which is reported."""
        task = derive_task_id(job)
        info = SubmittedJobInfo(job, external_jobid=self._releases.name_of(task))
        self.report_job_submission(info)
        try:
            inner, own_mib = self._commands.direct(job, task, self.logger.info), graph.SHELLS_MIB
            if not inner:
                inner, own_mib = self.format_job_exec(job), graph.OWN_MIB
            return SubmittedJob(
                info, task, self._commands.around(inner, task), graph.memory_mib(job, own_mib)
            )
        except Exception as error:  # any exception here is an error of the job
            self.report_job_error(info, msg=f"vgrads: {error}")
            return None

    def handle_job_success(self, job: JobExecutorInterface) -> None: ...

    def handle_job_error(self, job: JobExecutorInterface) -> None: ...

    def cancel(self) -> None:
        """Handle Ctrl-C: cancel running jobs and release all slots."""
        self.logger.info("vgrads: running tasks are cancelled, and all slots are released")
        self.shutdown()

    def shutdown(self) -> None:
        """Shut the executor down."""
        if self._releases.stop():
            self._close()

    # job results

    @property
    def keeps_going(self) -> bool:
        """Return True where jobs that do not depend on a failed one are still run."""
        return bool(self.workflow.execution_settings.keep_going)

    def job_succeeded(self, job: SubmittedJob) -> None:
        """Report that a job succeeded."""
        self.report_job_success(job.info)

    def job_failed(self, job: SubmittedJob, reason: str) -> None:
        """Report that a job ran and failed."""
        text = self._commands.with_output(reason, job.task)
        self.report_job_error(job.info, msg=text, aux_logs=[str(self._commands.log_of(job.task))])

    def job_refused(self, job: SubmittedJob, reason: str) -> None:
        """Report that a job cannot be run."""
        self.report_job_error(job.info, msg=f"vgrads: {reason}")

    def job_left(self, job: SubmittedJob) -> None:
        """Report that a job was not started because another one failed."""
        self.workflow.scheduler.error_callback(job.info.job)

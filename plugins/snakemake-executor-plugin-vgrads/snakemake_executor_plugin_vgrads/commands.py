"""Shell command of a job, to be run where its slot is; the project's folder must exist there.

Most jobs of a shell rule run directly. Jobs that need Snakemake around them (scripts, conda,
containers, shadow folders, …) are started by a Snakemake process of their own, which takes about
1.5 s of processor time.
"""

from __future__ import annotations

import glob
import inspect
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from snakemake.shell import shell
from snakemake.utils import format as format_command
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import DeploymentMethod, SharedFSUsage
from snakemake_interface_executor_plugins.workflow import WorkflowExecutorInterface

from vgrads.agent.processes import runs

_THREADS = ("OMP", "GOTO", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")
_NOT_PASSED_ON = re.compile(
    r"(SLURM_(?!CONF$)|PBS_|SGE_|VGRADS_|SSH_|DBUS_|XDG_).*|TMP|TMPDIR|TEMP|TEMPDIR|_|PWD|OLDPWD|SHLVL|HOST|HOSTNAME|DISPLAY"
)
"""Environment variables that belong to the machine where Snakemake runs, not to the user."""
_TAIL = 2000  # characters of a failed job's output in its message
_LONGEST = 60_000  # characters; longer commands are written to a file
_OPEN = "<TBD>"  # Snakemake's placeholder for values known only at run time


def _environments_here() -> str:
    """Return how the names of environments of runs on this machine begin."""
    return f"environment-{os.uname().nodename}-"


class NotDerivable(Exception):
    """The shell command of a job can be derived only by a Snakemake process that runs with the
    job."""


class JobCommands:
    """The commands of one workflow's jobs. ``folder``: below the project's ``.snakemake``, for the
    files that they need."""

    def __init__(self, workflow: WorkflowExecutorInterface, direct: bool) -> None:
        self._workflow, self._direct = workflow, direct
        self.workdir = Path(workflow.workdir_init)
        self.folder = self.workdir / ".snakemake" / "vgrads"
        self.logs = self.workdir / ".snakemake" / "vgrads_logs"
        self._environment = self.folder / f"{_environments_here()}{os.getpid()}.sh"

    def write_environment(self, more: Mapping[str, str]) -> None:
        """Store the user's environment for the jobs, readable only by the user."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        stored = {
            name: value
            for name, value in os.environ.items()
            if name.isidentifier() and not _NOT_PASSED_ON.fullmatch(name)
        }
        lines = [
            f"export {name}={shlex.quote(value)}\n" for name, value in {**stored, **more}.items()
        ]
        draft = self._environment.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines(lines)
        draft.replace(self._environment)

    def _sweep(self) -> None:
        """Remove what runs on this machine have left that were killed."""
        for path in self.folder.glob(f"{glob.escape(_environments_here())}*"):
            number = path.stem.rpartition("-")[2]
            if number.isdigit() and not runs(int(number)):
                path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove the stored environment."""
        self._environment.unlink(missing_ok=True)

    def log_of(self, task: str) -> Path:
        """Return the path of a task's log."""
        return self.logs / f"{task.replace('/', '_')[:200]}.log"

    def with_output(self, reason: str, task: str) -> str:
        """Return the reason of a task's failure with the end of its output."""
        log = self.log_of(task)
        text = log.read_text(errors="replace")[-_TAIL:].rstrip() if log.is_file() else ""
        return f"{reason}; its output ends with:\n{text}\n" if text else reason

    def around(self, inner: str, task: str) -> str:
        """Return a command that runs in the project's folder with the user's environment and writes
        its output to a file."""
        self.logs.mkdir(parents=True, exist_ok=True)
        log = shlex.quote(str(self.log_of(task)))
        whole = (
            f"cd {shlex.quote(str(self.workdir))} && . {shlex.quote(str(self._environment))} "
            f"&& {{ {inner}\n}} >{log} 2>&1"
        )
        if len(whole.encode()) <= _LONGEST:
            return whole
        script = self.folder / f"{self.log_of(task).stem}.sh"
        script.write_text(whole)
        return f"/bin/sh {shlex.quote(str(script))}"

    def direct(self, job: JobExecutorInterface, task: str, report: Callable[[str], None]) -> str:
        """Return the command of a job that needs no Snakemake around it; empty for any other.
        ``report``: called with the reason where the command cannot be derived."""
        if not self._runs_directly(job):
            return ""
        self._workflow.async_run(job.prepare())
        try:
            return self._plain(job, task)
        except NotDerivable as error:
            report(
                f"vgrads: {task} is started by a Snakemake process of its own: its shell command "
                f"cannot be derived here: {error}"
            )
            return ""

    def _plain(self, job: JobExecutorInterface, task: str) -> str:
        """Return the shell command of a plain job as Snakemake would run it (``snakemake.shell``).
        Raise NotDerivable where only Snakemake itself can derive it."""
        try:
            inner = _shell_command(job)
        except NotDerivable:
            raise
        except Exception as error:  # from user expressions, or members removed from Snakemake
            raise NotDerivable(f"{type(error).__name__}: {error}") from error
        executable = job.resources.get("shell_exec") or shell.get_executable() or "/bin/sh"
        prefix = shell._get_process_prefix(executable)
        command = " ".join((prefix, inner, shell._process_suffix)).strip()
        threads = " ".join(f"{name}_NUM_THREADS={job.threads}" for name in _THREADS)
        if len(command.encode()) <= _LONGEST:
            return f"export {threads}\n{shlex.quote(executable)} -c {shlex.quote(command)}"
        script = self.folder / f"{self.log_of(task).stem}.command.sh"  # too long for one argument
        script.write_text(f"{command}\n")
        return f"export {threads}\n{shlex.quote(executable)} {shlex.quote(str(script))}"

    def _runs_directly(self, job: JobExecutorInterface) -> bool:
        """Return True for a plain shell command that needs no Snakemake around it."""
        return (
            self._direct
            and not job.is_group()
            and _is_plain(job)
            and self._needs_nothing_deployed(job)
        )

    def _needs_nothing_deployed(self, job: JobExecutorInterface) -> bool:
        methods = self._workflow.deployment_settings.deployment_method
        deployed = (
            (DeploymentMethod.CONDA in methods and job.conda_env)
            or (DeploymentMethod.APPTAINER in methods and job.container_img_url)
            or (DeploymentMethod.ENV_MODULES in methods and job.env_modules)
        )
        shared = SharedFSUsage.INPUT_OUTPUT in self._workflow.storage_settings.shared_fs_usage
        cached = self._workflow.workflow_settings.cache is not None and job.rule.cache
        return shared and not deployed and not cached


def _is_plain(job: JobExecutorInterface) -> bool:
    """Return True for a plain job.

    Uses members that are not part of Snakemake's stable interface; where one is missing, the job is
    not plain.
    """
    try:
        files = [*job.input, *job.output]
        return (
            job.is_shell
            and not (job.is_shadow or job.is_pipe or job.is_service or job.benchmark)
            and not any(getattr(file, "is_storage", False) for file in files)
        )
    except AttributeError:
        return False


def _shell_command(job: JobExecutorInterface) -> str:
    """Return the command as the rule's function passes it to ``snakemake.shell``. Raise
    NotDerivable with the reason where it cannot be derived here.

    ``job.rule.shellcmd`` is not usable: it was evaluated while the Snakefile was read, when
    ``output`` and the like belonged to no job, and ``job.shellcmd`` formats it with the main
    Snakefile's variables, also for a module's rule.
    """
    run, result = job.rule.run_func, []
    for name in run.__code__.co_names:
        value = run.__globals__.get(name)
        if name != "shell" and (callable(value) or isinstance(value, ModuleType)):
            raise NotDerivable(f"it uses '{name}'")

    def take(command: str, *words: Any, **named: Any) -> None:
        named.pop("bench_record", None)  # not used in the text
        result.append(format_command(command, *words, stepout=2, **named))

    scope = {**run.__globals__, "shell": take}
    copy = FunctionType(run.__code__, scope, run.__name__, run.__defaults__, run.__closure__)
    document = {
        "input": job.input._plainstrings(),
        "output": job.output._plainstrings(),
        "params": job.params,
        "wildcards": job.wildcards,
        "threads": job.threads,
        "resources": job.resources,
        "log": job.log._plainstrings(),
        "rule": job.rule.name,
        "jobid": job.jobid,
        "is_shell": True,
        "basedir": job.rule.basedir,
    }
    parameters = inspect.signature(run).parameters.values()
    copy(**{p.name: document.get(p.name) for p in parameters if p.default is p.empty})
    if len(result) != 1 or _OPEN in result[0]:
        raise NotDerivable("it depends on where the job runs")
    return str(result[0])

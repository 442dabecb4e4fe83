"""The environment of a task (INPUT and OUTPUT ENVIRONMENT VARIABLES in sbatch(1), srun(1))."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vgrads.slurm.job import Job

OUTER = ("SLURM_", "SLURMD_", "SBATCH_", "PMI_", "PMIX_", "VGRADS_SLURM_")
"""Beginnings of names that do not pass from the submitting process to its job."""
PLACE = "SLURM_CONF"
"""Variable that passes nevertheless: it states where the real Slurm is configured, and is not about
a job."""
_BASE = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG")


@dataclass(frozen=True)
class Export:
    """What ``--export`` states: all variables, the named ones, and new values.

    ``everything`` with no names is ``ALL``; nothing at all is ``NONE``.
    """

    everything: bool = True
    names: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ArrayShape:
    """Number, lowest and highest index and step of an array as it was submitted."""

    count: int
    lowest: int
    highest: int
    step: int = 1


@dataclass(frozen=True)
class TaskPlace:
    """Where a task runs: host names, number of the process in its job and on its node, scratch
    folder, and whether memory was requested per processor (MiB) instead of per node."""

    submit_host: str = ""
    submit_folder: str = ""
    tmpdir: str = ""
    process: int = 0
    array: ArrayShape | None = None
    memory_per_cpu_mib: int | None = None
    cluster: str = "vgrads"


def parse_export(text: str | None) -> Export:
    """Parse the argument of ``--export``; values may be quoted so as to contain commas.

    >>> parse_export("ALL,A=1,B").values, parse_export("NONE").everything
    ((('A', '1'),), False)
    """
    if text is None:
        return Export()
    names: list[str] = []
    values: list[tuple[str, str]] = []
    everything = False
    for word in _split_quoted(text):
        name, equals, value = word.partition("=")
        if equals:
            values.append((name, value))
        elif name.upper() == "ALL":
            everything = True
        elif name.upper() not in ("NONE", "NIL", ""):
            names.append(name)
    return Export(everything, tuple(names), tuple(values))


def _split_quoted(text: str) -> list[str]:
    words, word, quote = [], "", ""
    for letter in text:
        if quote and letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
        elif letter == "," and not quote:
            words.append(word)
            word = ""
        else:
            word += letter
    return [*words, word]


def exported(submitted: Mapping[str, str], export: Export) -> dict[str, str]:
    """Return what passes from the submitting process; its own ``SLURM_*`` and ``SBATCH_*`` never
    do, except where ``--export`` states a value."""
    inner = {
        name: value
        for name, value in submitted.items()
        if name == PLACE or not name.startswith(OUTER)
    }
    if export.everything:
        result = inner
    else:
        names = (*_BASE, *export.names)
        result = {name: inner[name] for name in names if name in inner}
    return result | dict(export.values)


def task_environment(
    job: Job, submitted: Mapping[str, str], export: Export, place: TaskPlace
) -> dict[str, str]:
    """Return the environment of one process of a job: what was exported, then Slurm's own
    variables.

    ``job`` is a started job; a process that ``srun`` starts differs in ``place.process``.
    """
    result = exported(submitted, export) | _list_job_variables(job, place)
    result |= _list_process_variables(job, place)
    if job.array_id is not None:
        result |= _list_array_variables(job, place.array)
    if place.tmpdir:
        result["TMPDIR"] = result["SLURM_TMPDIR"] = place.tmpdir
    return result


def _list_job_variables(job: Job, place: TaskPlace) -> dict[str, str]:
    node = job.node_list
    result = {
        "SLURM_CLUSTER_NAME": place.cluster,
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_JOB_GID": str(job.gid),
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_QOS": "normal",
        "SLURM_JOB_NODELIST": node,
        "SLURM_NODELIST": node,
        "SLURM_JOB_NUM_NODES": str(job.nodes),
        "SLURM_NNODES": str(job.nodes),
        "SLURM_NTASKS": str(job.tasks),
        "SLURM_NPROCS": str(job.tasks),
        "SLURM_TASKS_PER_NODE": str(job.tasks),
        "SLURM_CPUS_PER_TASK": str(job.cpus_per_task),
        "SLURM_CPUS_ON_NODE": str(job.cpus),
        "SLURM_JOB_CPUS_PER_NODE": str(job.cpus),
        "SLURM_SUBMIT_DIR": place.submit_folder or job.folder,
        "SLURM_SUBMIT_HOST": place.submit_host,
        # Slurm sets it only where a job was restarted
        "SLURM_RESTART_COUNT": str(job.restarts) if job.restarts else "",
        "SLURM_JOB_ACCOUNT": job.account,
        "SLURM_JOB_START_TIME": "" if job.start_s is None else str(int(job.start_s)),
    }
    if job.start_s is not None and job.limit_s is not None:
        result["SLURM_JOB_END_TIME"] = str(int(job.start_s + job.limit_s))
    if place.memory_per_cpu_mib is not None:
        result["SLURM_MEM_PER_CPU"] = str(place.memory_per_cpu_mib)
    elif job.memory_mib:
        result["SLURM_MEM_PER_NODE"] = str(job.memory_mib)
    return {name: value for name, value in result.items() if value}


def _list_process_variables(job: Job, place: TaskPlace) -> dict[str, str]:
    number = str(place.process)
    return {
        "SLURM_PROCID": number,
        "SLURM_LOCALID": number,
        "SLURM_NODEID": "0",
        "SLURM_GTIDS": ",".join(str(n) for n in range(job.tasks)) if place.process else "0",
        "SLURMD_NODENAME": job.node_list,
    }


def _list_array_variables(job: Job, array: ArrayShape | None) -> dict[str, str]:
    result = {"SLURM_ARRAY_JOB_ID": str(job.array_id)}
    if job.array_index is not None:
        result["SLURM_ARRAY_TASK_ID"] = str(job.array_index)
    if array is not None:
        result |= {
            "SLURM_ARRAY_TASK_COUNT": str(array.count),
            "SLURM_ARRAY_TASK_MIN": str(array.lowest),
            "SLURM_ARRAY_TASK_MAX": str(array.highest),
            "SLURM_ARRAY_TASK_STEP": str(array.step),
        }
    return result

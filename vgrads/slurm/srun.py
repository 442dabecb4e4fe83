"""srun inside a job: processes of one node.

Source: srun(1) of Slurm 22.05. Outside a job, and over several nodes, srun is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.slurm.environment import Export, parse_export
from vgrads.slurm.errors import Reply, SlurmError, command_error
from vgrads.slurm.text.options import CommandOptions, Parsed, information, options, scan
from vgrads.slurm.text.sbatch_options import OPTIONS as BATCH_OPTIONS
from vgrads.slurm.text.sbatch_values import Chosen

_OWN = options(
    """
    bcast=? bcast-exclude= compress=? disable-status/X epilog= exact immediate/I=? interactive
    jobid= kill-on-bad-exit/K=? label/l mpi= multi-prog msg-timeout= open-mode= overlap
    preserve-env/E prolog= pty=? relative/r= resv-ports=? slurmd-debug= task-epilog= task-prolog=
    threads/T= unbuffered/u wait/W= whole x11=? het-group= pack-group=
    """
)
_OPTIONS = (
    *_OWN,
    *(
        option
        for option in BATCH_OPTIONS
        if option.long not in {own.long for own in _OWN} | {"wrap", "parsable", "batch", "workdir"}
    ),
)
_REFUSED = {
    "multi-prog": "several programs in one step are not supported",
    "pty": "terminals are not supported",
    "het-group": "heterogeneous jobs are not supported",
    "pack-group": "heterogeneous jobs are not supported",
    "relative": "nodes cannot be chosen",
}
_MPI = ("none", "list", "")


@dataclass(frozen=True)
class SrunRequest:
    """A step: a program with its arguments, run by ``tasks`` processes on this node.

    Patterns of files are as stated, None for those of the caller. ``label`` puts the number of the
    process before each line. ``job`` is the id of the job whose step this is. ``mpi`` is what
    ``--mpi`` states; vgrads starts plain processes. ``reply`` answers ``--version``.
    """

    command: tuple[str, ...] = ()
    job: int = 0
    tasks: int = 1
    cpus_per_task: int = 1
    label: bool = False
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    folder: str | None = None
    name: str | None = None
    export: Export = field(default_factory=Export)
    kill_on_bad_exit: bool = False
    unbuffered: bool = False
    mpi: str = ""
    quiet: bool = False
    reply: Reply | None = None


def parse_srun(
    arguments: Sequence[str], environment: Mapping[str, str], now_s: float = 0.0
) -> SrunRequest:
    """Parse the command line of srun; the environment is that of the job's task.

    Raises SlurmError with the words of srun.
    """
    ignored = frozenset(environment.get("VGRADS_SLURM_IGNORE", "").split(","))
    command = CommandOptions("srun", _OPTIONS, ordered=True, ignored=ignored)
    parsed, words = scan(command, arguments)
    reply = information(command, parsed, "[OPTIONS...] executable [args...]")
    if reply is not None:
        return SrunRequest(reply=reply)
    job = environment.get("SLURM_JOB_ID", environment.get("SLURM_JOBID", ""))
    if not job.isdigit():
        raise command_error(
            "srun", "vgrads runs srun only inside a job; submit the command with sbatch"
        )
    if not words:
        raise SlurmError("srun: fatal: No command given to execute.")
    return _make_request(parsed, words, environment, Chosen(dict(parsed), now_s))


def _make_request(
    parsed: Parsed, words: Sequence[str], environment: Mapping[str, str], values: Chosen
) -> SrunRequest:
    for name, _ in parsed:
        if name in _REFUSED:
            raise command_error("srun", f"--{name}: {_REFUSED[name]}")
    job = int(environment.get("SLURM_JOB_ID", environment.get("SLURM_JOBID", "0")))
    default = environment.get("SLURM_NTASKS", "1")
    try:
        values.refuse_unavailable()
        values.nodes()
        tasks = values.count("ntasks", int(default) if default.isdigit() else 1)
        cpus = values.count("cpus-per-task")
    except SlurmError as error:
        step = f"Unable to create step for job {job}"
        # the checks are shared with sbatch, and speak in its words
        text = error.what.replace("sbatch:", "srun:").replace("Batch job submission failed", step)
        raise SlurmError(text) from error
    return SrunRequest(
        command=tuple(words),
        job=job,
        tasks=tasks,
        cpus_per_task=cpus,
        label=values.has("label"),
        stdin=values.optional("input"),
        stdout=values.optional("output"),
        stderr=values.optional("error"),
        folder=values.optional("chdir"),
        name=values.optional("job-name"),
        export=parse_export(values.optional("export")),
        kill_on_bad_exit=values.has("kill-on-bad-exit")
        and values.text("kill-on-bad-exit", "1") != "0",
        unbuffered=values.has("unbuffered"),
        mpi="" if values.text("mpi") in _MPI else values.text("mpi"),
        quiet=values.has("quiet"),
    )

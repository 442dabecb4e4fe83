"""The options of sbatch: those that are used, those without a meaning here, and those that vgrads
refuses because the job would get something else than was requested.

Source: sbatch(1) of Slurm 22.05.
"""

from __future__ import annotations

from vgrads.slurm.text.options import options

OPTIONS = options(
    """
    acctg-freq= account/A= array/a= batch= bb= bbf= begin/b= chdir/D= cluster-constraint=
    clusters/M= comment= constraint/C= container= contiguous core-spec/S= cores-per-socket=
    cpu-bind= cpu-freq= cpus-per-gpu= cpus-per-task/c= deadline= delay-boot= dependency/d=
    distribution/m= error/e= exclude/x= exclusive=? export= export-file= extra-node-info/B=
    get-user-env=? gid= gpu-bind= gpu-freq= gpus/G= gpus-per-node= gpus-per-socket= gpus-per-task=
    gres= gres-flags= help/h het-group= hint= hold/H ignore-pbs input/i= job-name/J=
    kill-on-invalid-dep= licenses/L= mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu=
    mem-per-gpu= mincpus= mpi= network= nice=? no-kill/k=? no-requeue nodefile/F= nodelist/w=
    nodes/N= ntasks/n= ntasks-per-core= ntasks-per-gpu= ntasks-per-node= ntasks-per-socket=
    ntasks-per-tres= open-mode= output/o= overcommit/O oversubscribe/s parsable partition/p= power=
    prefer= priority= profile= propagate=? qos/q= quiet/Q reboot requeue reservation= share
    signal= sockets-per-node= spread-job switches= tasks-per-node= test-only thread-spec=
    threads-per-core= time/t= time-min= tmp= uid= usage use-min-nodes verbose/v version/V wait/W
    wait-all-nodes= wckey= workdir= wrap=
    """
)

IGNORED = frozenset(
    option.long
    for option in options(
        """
    acctg-freq batch clusters contiguous core-spec cores-per-socket cpu-bind cpu-freq delay-boot
    distribution extra-node-info get-user-env gpu-bind gpu-freq gres-flags hint ignore-pbs mail-type
    mail-user mcs-label mem-bind network nice no-kill ntasks-per-core ntasks-per-socket overcommit
    oversubscribe power prefer priority profile propagate qos reboot share sockets-per-node
    spread-job switches thread-spec threads-per-core use-min-nodes wait-all-nodes wckey
    """
    )
)
"""Accepted without an effect: they concern what vgrads does not have."""

REFUSED = {
    "bb": "burst buffers are not supported",
    "bbf": "burst buffers are not supported",
    "cluster-constraint": "federations are not supported",
    "container": "containers of Slurm are not supported; start the container in the script",
    "exclude": "nodes cannot be chosen by name",
    "export-file": "files of variables are not supported; use --export",
    "gid": "jobs run as the user who submits them",
    "gpus-per-socket": "sockets cannot be requested; use --gpus",
    "het-group": "heterogeneous jobs are not supported",
    "licenses": "licenses are not supported",
    "mincpus": "state the processors with --cpus-per-task",
    "mpi": "MPI over several nodes is not supported",
    "nodefile": "nodes cannot be chosen by name",
    "nodelist": "nodes cannot be chosen by name",
    "ntasks-per-gpu": "state the number of tasks with --ntasks",
    "ntasks-per-tres": "state the number of tasks with --ntasks",
    "reservation": "reservations are not supported",
    "tmp": "disk space cannot be requested",
    "uid": "jobs run as the user who submits them",
}
"""Options that change what a job gets, each with the reason of its refusal."""

_NO_GRES = "Invalid generic resource (gres) specification"
UNAVAILABLE = {
    "constraint": "Batch job submission failed: Invalid feature specification",
    "cpus-per-gpu": _NO_GRES,
    "gpus": _NO_GRES,
    "gpus-per-node": _NO_GRES,
    "gpus-per-task": _NO_GRES,
    "gres": _NO_GRES,
    "mem-per-gpu": _NO_GRES,
}
"""Options that request what no node has: vgrads assigns no GPUs, and its nodes have no features.
Each with what Slurm prints where its own nodes have none."""

ALIASES = {"workdir": "chdir", "tasks-per-node": "ntasks-per-node"}

VARIABLES = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_COMMENT": "comment",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_CONTAINER": "container",
    "SBATCH_CPUS_PER_GPU": "cpus-per-gpu",
    "SBATCH_DEADLINE": "deadline",
    "SBATCH_EXCLUSIVE": "exclusive",
    "SBATCH_EXPORT": "export",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_PARTITION": "partition",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_WAIT": "wait",
}
"""Input variables that have an effect, and their options; other ``SBATCH_*`` are ignored.
Slurm has none for ``deadline``."""

ALTERNATIVES = (
    ("mem", "mem-per-cpu", "mem-per-gpu"),
    ("requeue", "no-requeue"),
)
"""Options of which the one from the stronger source replaces the others."""

"""What a task finds in its environment: what its owner may see, nothing of vgrads' own, no keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from execmgr.engine import TaskOrder

_KEYS = re.compile(
    r"VGRADS_.*|AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|SECURITY_TOKEN|SHARED_CREDENTIALS_FILE)"
    r"|EC2_(ACCESS_KEY|SECRET_KEY|PRIVATE_KEY|CERT)|EUCA.*|S3_SECRET.*|PGPASSWORD|PGPASSFILE"
)
"""Never passed on: settings and secrets of vgrads, keys of clouds, passwords of its database."""
_HARMLESS = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TERM|HOSTNAME|TMPDIR|LD_LIBRARY_PATH|MANPATH"
    r"|(MODULE|LMOD|__LMOD|LOADEDMODULES|_LMFILES_|BASH_FUNC_|CONDA|MAMBA|VIRTUAL_ENV|SPACK|EASYBUILD|NIX)\w*(%%)?"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR|KMP|GOMP|MPI|MPICH|OMPI|I_MPI|UCX|FI|CUDA|ROCR|HIP|GPU|NVIDIA)_\w*"
    r"|XDG_RUNTIME_DIR|DOCKER_HOST|CONTAINERS_(STORAGE_)?CONF|(APPTAINER|SINGULARITY)_(CACHEDIR|TMPDIR|BIND|BINDPATH)"
    r"|(SLURM|PBS|SGE|LSB|PALS|PMI)_\w*|JOB_ID|JOB_NAME|NSLOTS|NHOSTS|NQUEUES|PE|PE_HOSTFILE|QUEUE|TASK_ID"
)
"""All that is passed on where the tasks are not those of whoever started vgrads: services, nodes of sites."""


def passed_on(around: Mapping[str, str], own: bool) -> dict[str, str]:
    """What of an environment a task may see. ``own``: the tasks belong to whoever set it up."""
    return {n: v for n, v in around.items() if not _KEYS.fullmatch(n) and (own or _HARMLESS.fullmatch(n))}  # fmt: skip


def environment_for(
    order: TaskOrder, kept: Mapping[str, str], mark: tuple[str, str], folder: Path
) -> dict[str, str]:
    """The environment of a task. ``kept``: what it is passed on; ``mark``: name, value;
    ``folder``: its own."""
    told = {
        "VGRADS_WORKFLOW": order.key[0], "VGRADS_TASK": order.key[1], "VGRADS_SLOT": order.slot,
        "VGRADS_PROCS": str(order.procs), "OMP_NUM_THREADS": str(order.procs),
        "VGRADS_FOLDER": str(folder),
    }  # fmt: skip
    return {**kept, **told, **dict(order.manner.env), mark[0]: mark[1]}

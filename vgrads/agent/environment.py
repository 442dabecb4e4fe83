"""The variables of an environment that a task may see: those its owner may see, none of vgrads'
own, no secrets.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import re
from typing import Collection, Mapping

_OWN = "VGRADS_"
_SECRET = re.compile(
    r"AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|SECURITY_TOKEN|SHARED_CREDENTIALS_FILE)"
    r"|EC2_(ACCESS_KEY|SECRET_KEY|PRIVATE_KEY|CERT)|EUCA.*|S3_SECRET.*|PGPASSWORD|PGPASSFILE|MYSQL_PWD|SLURM_JWT"
    r"|(.*_)?(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|APIKEY)(_.*)?"
    r"|.*_(API|ACCESS|SECRET|PRIVATE|SIGNING|ENCRYPTION|ACCOUNT)_KEY(_.*)?|.*_(DSN|CONNECTION_STRING)|DATABASE_URL",
    re.IGNORECASE,
)
"""Names of secrets: cloud keys, tokens, passwords."""
_HARMLESS = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TERM|HOSTNAME|TMPDIR|LD_LIBRARY_PATH|MANPATH"
    r"|(MODULE|LMOD|__LMOD|LOADEDMODULES|_LMFILES_|BASH_FUNC_|CONDA|MAMBA|VIRTUAL_ENV|SPACK|EASYBUILD|NIX)\w*(%%)?"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR|KMP|GOMP|MPI|MPICH|OMPI|I_MPI|UCX|FI|CUDA|ROCR|HIP|GPU|NVIDIA)_\w*"
    r"|XDG_RUNTIME_DIR|DOCKER_HOST|CONTAINERS_(STORAGE_)?CONF|(APPTAINER|SINGULARITY)_(CACHEDIR|TMPDIR|BIND|BINDPATH)"
    r"|(SLURM|PBS|SGE|LSB|PALS|PMI)_\w*|JOB_ID|JOB_NAME|NSLOTS|NHOSTS|NQUEUES|PE|PE_HOSTFILE|QUEUE|TASK_ID"
)
"""Variables that are passed where the tasks do not belong to the user who started vgrads: services,
nodes of sites."""


def is_secret(name: str) -> bool:
    """Return True for a variable that is passed only on request by name."""
    return _SECRET.fullmatch(name) is not None


def pass_environment(
    environment: Mapping[str, str],
    own: bool,
    requested: Collection[str] = (),
    allowed: Collection[str] = (),
) -> tuple[dict[str, str], list[str]]:
    """Return (variables that a task sees, names of requested ones that it does not see).

    ``own``: the tasks belong to the user who set up the environment; ``requested``: names that the
    tasks' owner requests (``pass_env`` of a set or bag), effective only with ``own``; ``allowed``:
    names that the site passes to all users (``pass_env`` of a site).
    """
    passed = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_OWN)
        and (
            name in allowed
            or (own and name in requested)
            or (not is_secret(name) and (own or _HARMLESS.fullmatch(name)))
        )
    }
    return passed, [name for name in requested if name not in passed]


def withheld(environment: Mapping[str, str], passed: Collection[str]) -> list[str]:
    """Return the names of secrets of an environment that are not passed."""
    return sorted(
        name
        for name in environment
        if is_secret(name) and name not in passed and not name.startswith(_OWN)
    )


def refusal(names: Collection[str]) -> str:
    """Return the line of a task's log that lists the requested variables it does not see; empty
    where there are none."""
    if not names:
        return ""
    listed = ", ".join(sorted(set(names)))
    return (
        f"vgrads: not passed to this task: {listed} (see pass_env of the bag or set, and of "
        "the site)"
    )

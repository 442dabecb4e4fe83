"""Files of batch systems that look like a history and are none that can be read, and the command
that writes one."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SACCT = (
    "write one with 'sacct --allusers --allocations --parsable2 "
    "--format=JobID,User,Partition,Submit,Eligible,Start,End,State,Timelimit,AllocCPUS,ReqCPUS "
    "--starttime=2026-01-01'"
)
_PBS = "use the accounting files of the server, in PBS_HOME/server_priv/accounting"
_GRID_ENGINE = "use the file itself, $SGE_ROOT/$SGE_CELL/common/accounting"
_LSF = "use the file lsb.acct in LSB_SHAREDIR/CLUSTER/logdir"
_CONDOR = "write one with 'condor_history -long' or 'condor_history -json'"
_OAR = "OAR keeps its jobs in a database: export them as a table with the columns of sacct"

_FORMS: Sequence[tuple[str, str, str]] = (
    (r"JobId=\d+ UserId=", "Slurm's job completion file, which lacks fields of jobs", _SACCT),
    (r"JobId=\d+ (ArrayJobId=\d+ .*)?JobName=", "the output of 'scontrol show job'", _SACCT),
    (r"\s*JOBID\s+PARTITION\s+NAME\s+USER", "the output of squeue, the queue of now", _SACCT),
    (r"={20,}\s*\nqname\s", "the output of 'qacct -j'", _GRID_ENGINE),
    (r"job-ID\s+prior\s+name", "the output of Grid Engine's qstat, the queue of now", _GRID_ENGINE),
    (r"OWNER\s+WALLCLOCK\s+UTIME", "a summary of qacct", _GRID_ENGINE),
    (r"Job Id: ", "the output of 'qstat -f', which lacks ended jobs", _PBS),
    (r"<Data><Job><Job_Id>", "the output of 'qstat -x', which lacks ended jobs", _PBS),
    (r"(?s)\s*\{.*\"pbs_version\"", "the output of 'qstat -F json', which lacks ended jobs", _PBS),
    (r"Job: \S+\s*\n\s*\n?\d\d/\d\d/\d{4}", "the output of tracejob, of one job", _PBS),
    (r"\s*JOBID\s+USER\s+(STAT|JOB_NAME)\s", "the output of bjobs or bhist", _LSF),
    (
        r"(?s)(Accounting information about jobs that are|.*\nJob <\d+>)",
        "the output of bacct",
        _LSF,
    ),
    (r"Job <\d+>", "the output of 'bjobs -l' or 'bhist -l'", _LSF),
    (r'"JOB_(NEW|START|STATUS)"', "LSF's lsb.events", _LSF),
    (r"(?s)<\?xml.*<classads>", "the output of 'condor_history -xml'", _CONDOR),
    (r"\s*ID\s+OWNER\s+SUBMITTED\s", "a table of condor_history", _CONDOR),
    (r"\d{3} \(\d+\.\d+\.\d+\) ", "a log of events of HTCondor's jobs", _CONDOR),
    (r"(?s)(Job id\s+Name\s+User\s+Submission Date|.*\binsert into `?jobs`?)", "of OAR", _OAR),
    (r"Job_Id: \d+\n\s+", "the output of 'oarstat -f'", _OAR),
)


def describe_foreign(head: str) -> tuple[str, str] | None:
    """Return what a text is by its beginning, and how to get a history from that system; None if it
    is none of the known ones."""
    text = head.lstrip("\ufeff").lstrip("\n")
    for form, what, fix in _FORMS:
        if re.match(form, text, re.IGNORECASE):
            return what, fix
    if re.search(r"^ +\d+ +.*\d\d:\d\d", text) and "|" not in text:
        return "columns without a header", _SACCT
    return None

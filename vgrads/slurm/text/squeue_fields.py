"""The fields of squeue, by letter (``-o``) and by name (``-O``).

Source: squeue(1) of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vgrads.slurm.job import Job, JobState
from vgrads.slurm.limits import format_memory, format_short
from vgrads.slurm.text.formats import TableField
from vgrads.slurm.text.job_texts import JobTexts

_NULL, _NONE = "(null)", "N/A"
_REASON_STATES = (
    JobState.PENDING,
    JobState.REQUEUED,
    JobState.FAILED,
    JobState.TIMEOUT,
    JobState.OUT_OF_MEMORY,
    JobState.DEADLINE,
)
JobField = TableField[Job]


def reason_or_nodes(job: Job) -> str:
    """Return the reason in parentheses, or the nodes: the field NODELIST(REASON)."""
    return f"({job.reason})" if job.state in _REASON_STATES else job.node_list


def _format_left(job: Job, now_s: float) -> str:
    if job.limit_s is None:
        return "UNLIMITED"
    return format_short(job.limit_s - int(job.elapsed_s(now_s)))


def _format_array_index(job: Job) -> str:
    if job.array_index is not None:
        return str(job.array_index)
    return job.pending_indices or _NONE


def _make_constant(value: str) -> Callable[[Job], str]:
    return lambda job: value  # noqa: ARG005 a field of every job


_CONSTANT = {
    "allocnodes": JobField("ALLOC_NODES", _make_constant("localhost")),
    "batchflag": JobField("BATCH_FLAG", _make_constant("1")),
    "contiguous": JobField("CONTIGUOUS", _make_constant("0")),
    "cores": JobField("CORES_PER_SOCKET", _make_constant("*")),
    "corespec": JobField("CORE_SPEC", _make_constant(_NONE)),
    "derivedec": JobField("DERIVED_EC", _make_constant("0")),
    "licenses": JobField("LICENSES", _make_constant(_NULL)),
    "mintmpdisk": JobField("MIN_TMP_DISK", _make_constant("0")),
    "network": JobField("NETWORK", _make_constant(_NULL)),
    "nice": JobField("NICE", _make_constant("0")),
    "ntpernode": JobField("NTASKS_PER_NODE", _make_constant("0")),
    "feature": JobField("FEATURES", _make_constant(_NULL)),
    "gres": JobField("TRES_PER_NODE", _make_constant(_NONE)),
    "oversubscribe": JobField("OVER_SUBSCRIBE", _make_constant("OK")),
    "qos": JobField("QOS", _make_constant("normal")),
    "reboot": JobField("REBOOT", _make_constant("0")),
    "reqnodes": JobField("REQ_NODES", _make_constant("")),
    "excnodes": JobField("EXC_NODES", _make_constant("")),
    "reservation": JobField("RESERVATION", _make_constant(_NULL)),
    "schednodes": JobField("SCHEDNODES", _make_constant(_NULL)),
    "sct": JobField("S:C:T", _make_constant("*:*:*")),
    "selectjobinfo": JobField("", _make_constant("")),
    "sockets": JobField("SOCKETS_PER_NODE", _make_constant("*")),
    "threads": JobField("THREADS_PER_CORE", _make_constant("*")),
    "tres-per-job": JobField("TRES_PER_JOB", _make_constant(_NONE)),
    "tres-per-node": JobField("TRES_PER_NODE", _make_constant(_NONE)),
    "tres-per-task": JobField("TRES_PER_TASK", _make_constant(_NONE)),
    "wckey": JobField("WCKEY", _make_constant(_NULL)),
}
"""Fields of what jobs here never have."""
_PLAIN = {
    "account": JobField("ACCOUNT", lambda j: j.account or _NULL),
    "arrayjobid": JobField("ARRAY_JOB_ID", lambda j: str(j.array_job_id)),
    "arraytaskid": JobField("ARRAY_TASK_ID", _format_array_index),
    "batchhost": JobField("EXEC_HOST", lambda j: j.node_list.partition(",")[0] or "n/a"),
    "command": JobField("COMMAND", lambda j: j.command or _NULL),
    "comment": JobField("COMMENT", lambda j: j.comment or _NULL),
    "cpus-per-task": JobField("CPUS_PER_TASK", lambda j: str(j.cpus_per_task)),
    "dependency": JobField("DEPENDENCY", lambda j: j.dependency or _NULL),
    "exit_code": JobField("EXIT_CODE", lambda j: str(j.exit_code)),
    "groupid": JobField("GROUP", lambda j: str(j.gid)),
    "groupname": JobField("GROUP", lambda j: j.group or j.user),
    "jobarrayid": JobField("JOBID", lambda j: j.shown_id),
    "jobid": JobField("JOBID", lambda j: str(j.id)),
    "maxcpus": JobField("MAX_CPUS", lambda j: str(j.cpus)),
    "maxnodes": JobField("MAX_NODES", lambda j: str(j.nodes)),
    "mincpus": JobField("MIN_CPUS", lambda j: str(j.cpus_per_task)),
    "minmemory": JobField("MIN_MEMORY", lambda j: format_memory(j.memory_mib)),
    "name": JobField("NAME", lambda j: j.name),
    "nodelist": JobField("NODELIST", lambda j: j.node_list),
    "numcpus": JobField("CPUS", lambda j: str(j.cpus)),
    "numnodes": JobField("NODES", lambda j: str(j.nodes)),
    "numtasks": JobField("TASKS", lambda j: str(j.tasks)),
    "partition": JobField("PARTITION", lambda j: j.partition),
    "reason": JobField("REASON", lambda j: j.reason),
    "reasonlist": JobField("NODELIST(REASON)", reason_or_nodes),
    "requeue": JobField("REQUEUE", lambda j: str(int(j.requeue))),
    "restartcnt": JobField("RESTART_COUNT", lambda j: str(j.restarts)),
    "state": JobField("STATE", lambda j: j.state.value),
    "statecompact": JobField("ST", lambda j: j.state.code),
    "stderr": JobField("STDERR", lambda j: j.stderr or j.stdout),
    "stdin": JobField("STDIN", lambda j: j.stdin),
    "stdout": JobField("STDOUT", lambda j: j.stdout),
    "userid": JobField("UID", lambda j: str(j.uid)),
    "username": JobField("USER", lambda j: j.user),
    "workdir": JobField("WORK_DIR", lambda j: j.folder),
}
"""Fields that need the job alone."""


def _list_fields(texts: JobTexts) -> dict[str, JobField]:
    """Return the fields by their long names, in lower case."""
    now_s = texts.now_s
    own = {
        "cluster": JobField("CLUSTER", _make_constant(texts.cluster)),
        "priority": JobField("PRIORITY", lambda j: f"{texts.priority(j) / 4294967295:.14f}"),
        "prioritylong": JobField("PRIORITY", lambda j: str(texts.priority(j))),
        "tres-alloc": JobField("TRES_ALLOC", texts.resources),
        "accruetime": JobField("ACCRUE_TIME", texts.eligible),
        "deadline": JobField("DEADLINE", lambda j: texts.instant(j.deadline_s, _NONE)),
        "delayboot": JobField("DELAY_BOOT", _make_constant("0:00")),
        "eligibletime": JobField("ELIGIBLE_TIME", texts.eligible),
        "endtime": JobField("END_TIME", texts.end),
        "lastschedeval": JobField("LAST_SCHED_EVAL", texts.submit),
        "mintime": JobField("TIME_MIN", _make_constant("0:00")),
        "pendingtime": JobField("PENDING_TIME", texts.pending_time),
        "starttime": JobField("START_TIME", texts.start),
        "submittime": JobField("SUBMIT_TIME", texts.submit),
        "timeleft": JobField("TIME_LEFT", lambda j: _format_left(j, now_s), True),
        "timelimit": JobField("TIME_LIMIT", lambda j: format_short(j.limit_s), True),
        "timeused": JobField("TIME", lambda j: format_short(j.elapsed_s(now_s)), True),
    }
    return _CONSTANT | _PLAIN | own


_LETTERS = {
    "a": "account",
    "A": "jobid",
    "b": "tres-per-node",
    "B": "batchhost",
    "c": "mincpus",
    "C": "numcpus",
    "d": "mintmpdisk",
    "D": "numnodes",
    "e": "endtime",
    "E": "dependency",
    "f": "feature",
    "F": "arrayjobid",
    "g": "groupname",
    "G": "groupid",
    "h": "oversubscribe",
    "H": "sockets",
    "i": "jobarrayid",
    "I": "cores",
    "j": "name",
    "J": "threads",
    "k": "comment",
    "K": "arraytaskid",
    "l": "timelimit",
    "L": "timeleft",
    "m": "minmemory",
    "M": "timeused",
    "n": "reqnodes",
    "N": "nodelist",
    "o": "command",
    "O": "contiguous",
    "p": "priority",
    "P": "partition",
    "q": "qos",
    "Q": "prioritylong",
    "r": "reason",
    "R": "reasonlist",
    "s": "selectjobinfo",
    "S": "starttime",
    "t": "statecompact",
    "T": "state",
    "u": "username",
    "U": "userid",
    "v": "reservation",
    "V": "submittime",
    "w": "wckey",
    "W": "licenses",
    "x": "excnodes",
    "X": "corespec",
    "y": "nice",
    "Y": "schednodes",
    "z": "sct",
    "Z": "workdir",
}


def squeue_fields(texts: JobTexts) -> tuple[Mapping[str, JobField], Mapping[str, JobField]]:
    """Return the fields by letter, and by long name in lower case."""
    long = _list_fields(texts)
    return {letter: long[name] for letter, name in _LETTERS.items()}, long

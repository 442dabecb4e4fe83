"""Jobs of a real Slurm as values of vgrads: what ``scontrol -o show job`` states."""

import re
from datetime import datetime

from vgrads.slurm.job import Job, JobState

_PAIR = re.compile(r"(?:^| )([A-Za-z/:]+)=")


def instant_of(text):
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def seconds_of(text):
    if text == "UNLIMITED":
        return None
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60.0 + seconds


def or_empty(text):
    return "" if text in ("(null)", "N/A") else text


def pairs_of(line):
    """The values of a line by their names; values may have spaces."""
    parts = _PAIR.split(line.rstrip())
    return {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=True)}


def memory_of(text):
    units = {"M": 1, "G": 1024}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def job_of(line):
    """The job of a line of ``scontrol -o show job``."""
    values = pairs_of(line)
    state = JobState[values["JobState"]]
    user, uid = re.fullmatch(r"(.*)\((\d+)\)", values["UserId"]).groups()
    code, _, number = values["ExitCode"].partition(":")
    index = values.get("ArrayTaskId", "")
    start_s, end_s = (instant_of(values[name]) for name in ("StartTime", "EndTime"))
    ran = bool(values["NodeList"])
    return Job(
        id=int(values["JobId"]),
        name=values["JobName"],
        user=user,
        uid=int(uid),
        state=state,
        submit_s=instant_of(values["SubmitTime"]),
        partition=values["Partition"],
        account=or_empty(values["Account"]),
        array_id=int(values["ArrayJobId"]) if index else None,
        array_index=int(index) if index.isdigit() and ran else None,
        pending_indices="" if ran else index,
        array_limit=int(values.get("ArrayTaskThrottle", 0)),
        reason=values["Reason"],
        exit_code=int(code),
        exit_signal=int(number),
        cancelled_by=0 if state is JobState.CANCELLED else None,
        eligible_s=instant_of(values["EligibleTime"]),
        start_s=start_s if ran else None,
        end_s=end_s if state.is_terminal else None,
        expected_start_s=start_s if state.is_pending else None,
        limit_s=seconds_of(values["TimeLimit"]),
        tasks=int(values["NumTasks"].replace("N/A", "1")),
        cpus_per_task=int(values["CPUs/Task"]),
        memory_mib=memory_of(values["MinMemoryNode"]),
        nodes=int(values["NumNodes"]),
        node_list=values["NodeList"],
        folder=values["WorkDir"],
        stdin=values["StdIn"],
        stdout=values["StdOut"],
        stderr=values["StdErr"],
        command=or_empty(values["Command"]),
        comment=values.get("Comment", ""),
        dependency=or_empty(values["Dependency"]),
        requeue=values["Requeue"] == "1",
        restarts=int(values["Restarts"]),
        deadline_s=instant_of(values["Deadline"]),
    )

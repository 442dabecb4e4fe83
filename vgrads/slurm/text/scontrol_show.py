"""The blocks of ``scontrol show``: a job, a partition, a node, the configuration.

Source: scontrol(1) of Slurm 22.05. With ``single_line`` a block is one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vgrads.slurm.job import Job, JobState, Partition
from vgrads.slurm.limits import format_long, format_memory
from vgrads.slurm.text.hostlist import fold_hostlist
from vgrads.slurm.text.job_texts import JobTexts
from vgrads.slurm.text.options import SLURM_VERSION
from vgrads.slurm.times import format_instant

_TERM = 15


def _format_block(lines: Sequence[str], single_line: bool) -> str:
    return (" " if single_line else "\n   ").join(lines) + ("\n" if single_line else "\n\n")


def job_text(job: Job, texts: JobTexts, single_line: bool = False, details: bool = False) -> str:
    """Return the block of a job."""
    lines = [
        _format_head(job),
        f"UserId={job.user}({job.uid}) GroupId={job.group or job.user}({job.gid}) MCS_label=N/A",
        f"Priority={texts.priority(job)} Nice=0 Account={job.account or '(null)'} QOS=normal",
        f"JobState={job.state.value} Reason={job.reason} Dependency={job.dependency or '(null)'}",
        f"Requeue={int(job.requeue)} Restarts={job.restarts} BatchFlag=1 Reboot=0 "
        f"ExitCode={_exit(job)}",
        *(["DerivedExitCode=0:0"] if details else []),
        *_format_times(job, texts),
        f"Partition={job.partition} AllocNode:Sid=localhost:0",
        "ReqNodeList=(null) ExcNodeList=(null)",
        f"NodeList={job.node_list}",
        *([f"BatchHost={job.node_list.partition(',')[0]}"] if job.node_list else []),
        *_format_resources(job, texts, details),
        f"Command={job.command or '(null)'}",
        f"WorkDir={job.folder}",
        *_format_comment(job),
        f"StdErr={job.stderr or job.stdout}",
        f"StdIn={job.stdin}",
        f"StdOut={job.stdout}",
        "Power=",
    ]
    return _format_block([*lines, ""], single_line)


def _format_head(job: Job) -> str:
    if job.array_id is None:
        return f"JobId={job.id} JobName={job.name}"
    index = job.pending_indices if job.array_index is None else job.array_index
    limit = f" ArrayTaskThrottle={job.array_limit}" if job.array_limit else ""
    return f"JobId={job.id} ArrayJobId={job.array_id} ArrayTaskId={index}{limit} JobName={job.name}"


def _exit(job: Job) -> str:
    ended_by_signal = job.state is JobState.TIMEOUT or (
        job.state is JobState.CANCELLED and job.start_s is not None
    )
    if ended_by_signal and not job.exit_signal:
        return f"0:{_TERM}"
    return f"{job.exit_code}:{job.exit_signal}"


def _format_times(job: Job, texts: JobTexts) -> list[str]:
    start_s = texts.start_s(job)
    # as with Slurm, a job that never started has its end as its start
    if start_s is None and job.state.is_terminal:
        start_s = job.end_s
    eligible = texts.instant(job.eligible_s, "Unknown")
    evaluated = texts.instant(job.submit_s if job.start_s is None else job.start_s, "Unknown")
    return [
        f"RunTime={format_long(job.elapsed_s(texts.now_s))} "
        f"TimeLimit={format_long(job.limit_s)} TimeMin=N/A",
        f"SubmitTime={texts.submit(job)} EligibleTime={eligible}",
        f"AccrueTime={eligible}",
        f"StartTime={texts.instant(start_s, 'Unknown')} "
        f"EndTime={texts.instant(texts.end_s(job), 'Unknown')} "
        f"Deadline={texts.instant(job.deadline_s, 'N/A')}",
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={evaluated} Scheduler=Main",
    ]


def _format_resources(job: Job, texts: JobTexts, details: bool) -> list[str]:
    tasks = "N/A" if job.state.is_terminal and job.start_s is None else str(job.tasks)
    allocated = f"  Nodes={job.node_list} CPU_IDs=0-{job.cpus - 1} Mem={job.memory_mib} GRES="
    return [
        f"NumNodes={job.nodes} NumCPUs={job.cpus} NumTasks={tasks} "
        f"CPUs/Task={job.cpus_per_task} ReqB:S:C:T=0:0:*:*",
        f"TRES={texts.resources(job)}",
        "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*",
        *(["JOB_GRES=(null)"] if details else []),
        *([allocated] if details and job.node_list else []),
        f"MinCPUsNode={job.cpus_per_task} MinMemoryNode={format_memory(job.memory_mib)} "
        "MinTmpDiskNode=0",
        "Features=(null) DelayBoot=00:00:00",
        "OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)",
    ]


def _format_comment(job: Job) -> list[str]:
    promise = "" if job.promise is None else f"Promise={job.promise:.2f}"
    lines = [f"Comment={job.comment} {promise}"] if job.comment else [promise] * bool(promise)
    return lines + [f"SystemComment={job.system_comment} "] * bool(job.system_comment)


def partition_text(partition: Partition, single_line: bool = False) -> str:
    """Return the block of a partition."""
    nodes = len(partition.nodes)
    cores, memory = partition.cores_per_node * nodes, partition.memory_mib * nodes
    limit_s = partition.default_limit_s
    lines = [
        f"PartitionName={partition.name}",
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"AllocNodes=ALL Default={'YES' if partition.default else 'NO'} QoS=N/A",
        f"DefaultTime={'NONE' if limit_s is None else format_long(limit_s)} DisableRootJobs=NO "
        "ExclusiveUser=NO GraceTime=0 Hidden=NO",
        f"MaxNodes=UNLIMITED MaxTime={format_long(partition.limit_s)} MinNodes=0 LLN=NO "
        "MaxCPUsPerNode=UNLIMITED",
        f"Nodes={fold_hostlist(partition.nodes)}",
        f"PriorityJobFactor=1 PriorityTier={partition.priority} RootOnly=NO ReqResv=NO "
        "OverSubscribe=NO",
        "OverTimeLimit=NONE PreemptMode=OFF",
        f"State={partition.state.upper()} TotalCPUs={cores} TotalNodes={nodes} "
        "SelectTypeParameters=NONE",
        "JobDefaults=(null)",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"TRES=cpu={cores},mem={memory}M,node={nodes},billing={cores}",
    ]
    return _format_block(lines, single_line)


def node_text(name: str, partitions: Sequence[Partition], single_line: bool = False) -> str:
    """Return the block of a node; its partitions are of one shape."""
    first = partitions[0]
    cores, memory = first.cores_per_node, first.memory_mib
    busy = max(partition.busy(name) for partition in partitions)
    names = ",".join(partition.name for partition in partitions)
    lines = [
        f"NodeName={name} Arch=x86_64 CoresPerSocket={cores} ",
        f"CPUAlloc={busy} CPUEfctv={cores} CPUTot={cores} CPULoad=N/A",
        "AvailableFeatures=(null)",
        "ActiveFeatures=(null)",
        "Gres=(null)",
        f"NodeAddr={name} NodeHostName={name} Version={SLURM_VERSION}",
        f"RealMemory={memory} AllocMem=0 FreeMem=N/A Sockets=1 Boards=1",
        f"State={first.node_state(name).upper()} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "
        "MCS_label=N/A",
        f"Partitions={names} ",
        f"CfgTRES=cpu={cores},mem={memory}M,billing={cores}",
        f"AllocTRES={f'cpu={busy}' if busy else ''}",
    ]
    return _format_block(lines, single_line)


_CONFIG = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AuthType": "auth/none",
    "FirstJobId": "1",
    "JobRequeue": "1",
    "KillWait": "30 sec",
    "MaxArraySize": "1000001",
    "MaxJobCount": "1000000",
    "MinJobAge": "300 sec",
    "MpiDefault": "none",
    "OverTimeLimit": "0 min",
    "PreemptMode": "OFF",
    "PriorityType": "priority/basic",
    "ProctrackType": "proctrack/linuxproc",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "SLURM_VERSION": SLURM_VERSION,
    "SlurmUser": "root(0)",
    "SlurmctldTimeout": "120 sec",
    "TaskPlugin": "task/none",
}


def config_text(values: Mapping[str, str], cluster: str, host: str, now_s: float) -> str:
    """Return the configuration: built-in values, and those of the service."""
    config = _CONFIG | {"ClusterName": cluster, "SlurmctldHost[0]": host} | dict(values)
    lines = [f"{name:<23} = {config[name]}\n" for name in sorted(config, key=str.lower)]
    head = f"Configuration data as of {format_instant(now_s)}\n"
    return f"{head}{''.join(lines)}\nSlurmctld(primary) at {host} is UP\n"

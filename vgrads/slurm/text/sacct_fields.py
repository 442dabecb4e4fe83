"""The fields of sacct with their widths, for a job and for its batch step.

Source: sacct(1) of Slurm 22.05. ``--helpformat`` lists all; those that vgrads does not measure are
empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from vgrads.slurm.job import Job, JobState
from vgrads.slurm.limits import format_cpu_time, format_long, format_memory, format_memory_as
from vgrads.slurm.text.job_texts import JobTexts

_TERM = 15


@dataclass(frozen=True)
class AccountingRow:
    """A job, or its batch step, with what its fields need."""

    job: Job
    is_step: bool
    texts: JobTexts
    units: str = ""

    @property
    def suffix(self) -> str:
        """What follows the id."""
        return ".batch" if self.is_step else ""

    @property
    def elapsed_s(self) -> int:
        """Seconds that the job ran."""
        return int(self.job.elapsed_s(self.texts.now_s))

    @property
    def has_started(self) -> bool:
        """Whether the job got its cores."""
        return self.job.start_s is not None and not self.job.state.is_pending

    @property
    def wait_s(self) -> int:
        """Seconds from eligibility to start, or to now."""
        job = self.job
        if job.eligible_s is None or (job.state.is_terminal and job.start_s is None):
            return 0
        start_s = job.start_s if self.has_started else None
        return max(0, int((self.texts.now_s if start_s is None else start_s) - job.eligible_s))

    def memory(self, kib: float | None) -> str:
        """Return an amount of memory of a step: in KiB, or in the unit of ``--units``."""
        if kib is None:
            return ""
        if self.units:
            return format_memory_as(kib / 1024, self.units)
        return f"{round(kib)}K" if kib else "0"

    def requested(self) -> str:
        """Return the requested memory."""
        mib = self.job.memory_mib
        return format_memory_as(mib, self.units) if self.units else format_memory(mib)

    def resources(self) -> str:
        """Return processors, memory and nodes in alphabetical order."""
        cpus, nodes = self.job.cpus, self.job.nodes
        billing = "" if self.is_step else f"billing={cpus},"
        return f"{billing}cpu={cpus},mem={self.requested()},node={nodes}"


def exit_text(job: Job, *, is_step: bool) -> str:
    """Return the exit code of the accounting: the signal of a time limit or a cancellation is that
    of the step alone."""
    if job.state in (JobState.TIMEOUT, JobState.CANCELLED):
        return f"0:{job.exit_signal or _TERM}" if is_step else "0:0"
    return f"{job.exit_code}:{job.exit_signal}"


def state_text(job: Job, *, is_step: bool) -> str:
    """Return the state of the accounting, as ``CANCELLED by 1000``."""
    if is_step:
        if job.state is JobState.TIMEOUT or (job.state is JobState.FAILED and job.exit_signal):
            return JobState.CANCELLED.name
        return job.state.name
    if job.state is JobState.CANCELLED and job.cancelled_by is not None:
        return f"CANCELLED by {job.cancelled_by}"
    return job.state.name


def _start(row: AccountingRow) -> str:
    job = row.job
    if row.has_started:
        return row.texts.instant(job.start_s, "Unknown")
    return "None" if job.state.is_terminal else "Unknown"


def _end(row: AccountingRow) -> str:
    return row.texts.instant(row.job.end_s if row.job.state.is_terminal else None, "Unknown")


def _limit_minutes(row: AccountingRow) -> str:
    limit_s = row.job.limit_s
    return "UNLIMITED" if limit_s is None else str(int(limit_s // 60))


def _format_cpu(row: AccountingRow) -> str:
    return format_cpu_time(row.job.cpu_s or 0.0)


def _format_reason(row: AccountingRow) -> str:
    return "None" if row.has_started else row.job.reason


Text = Callable[[AccountingRow], str]


@dataclass(frozen=True)
class AccountingField:
    """A field: its name, its width, and its text for a job and for a step (None: empty)."""

    name: str
    width: int
    job: Text | None
    step: Text | None
    left: bool = False

    def text(self, row: AccountingRow) -> str:
        """Return what a row shows."""
        render = self.step if row.is_step else self.job
        return "" if render is None else render(row)


def _make_constant(text: str) -> Text:
    return lambda row: text  # noqa: ARG005 a field of every row


_CPUS: Text = lambda r: str(r.job.cpus)  # noqa: E731 a cell of the table
_RSS: Text = lambda r: r.memory(r.job.max_rss_kib)  # noqa: E731 the same
_ELAPSED: Text = lambda r: format_long(r.elapsed_s)  # noqa: E731 the same
_CPU_S: Text = lambda r: str(r.elapsed_s * r.job.cpus)  # noqa: E731 the same
_CPU_TIME: Text = lambda r: format_long(r.elapsed_s * r.job.cpus)  # noqa: E731 the same
_EXIT: Text = lambda r: exit_text(r.job, is_step=r.is_step)  # noqa: E731 the same
_STATE: Text = lambda r: state_text(r.job, is_step=r.is_step)  # noqa: E731 the same
_NODES: Text = lambda r: r.job.node_list or "None assigned"  # noqa: E731 the same
_SUBMIT: Text = lambda r: r.texts.instant(r.job.submit_s, "Unknown")  # noqa: E731 the same
_ID: Text = lambda r: r.job.shown_id + r.suffix  # noqa: E731 the same
_RAW_ID: Text = lambda r: str(r.job.id) + r.suffix  # noqa: E731 the same
_ALLOCATED: Text = lambda r: r.resources() if r.has_started else ""  # noqa: E731 the same
_ENERGY: Text = lambda r: "" if r.has_started else "0"  # noqa: E731 the same
_FREQUENCY = (_make_constant("Unknown"), _make_constant("0"))

_TEXTS: dict[str, tuple[Text | None, Text | None]] = {
    "Account": (lambda r: r.job.account, lambda r: r.job.account),
    "AllocCPUS": (_CPUS, _CPUS),
    "AllocNodes": (lambda r: str(r.job.nodes if r.has_started else 0), _make_constant("1")),
    "AllocTRES": (_ALLOCATED, _ALLOCATED),
    "AssocID": (_make_constant("2"), _make_constant("2")),
    "AveCPU": (None, lambda r: "" if r.job.cpu_s is None else format_long(r.job.cpu_s)),
    "AveCPUFreq": (None, _make_constant("0")),
    "AveRSS": (None, _RSS),
    "Cluster": (lambda r: r.texts.cluster, lambda r: r.texts.cluster),
    "Comment": (lambda r: r.job.comment, None),
    "ConsumedEnergy": (_ENERGY, _make_constant("0")),
    "ConsumedEnergyRaw": (_ENERGY, _make_constant("0")),
    "CPUTime": (_CPU_TIME, _CPU_TIME),
    "CPUTimeRAW": (_CPU_S, _CPU_S),
    "DBIndex": (lambda r: str(r.job.id), lambda r: str(r.job.id)),
    "DerivedExitCode": (_make_constant("0:0"), None),
    "Elapsed": (_ELAPSED, _ELAPSED),
    "ElapsedRaw": (lambda r: str(r.elapsed_s), lambda r: str(r.elapsed_s)),
    "Eligible": (lambda r: r.texts.instant(r.job.eligible_s, "Unknown"), _start),
    "End": (_end, _end),
    "ExitCode": (_EXIT, _EXIT),
    "Flags": (lambda r: "SchedMain,StartRecieved" if r.has_started else "StartRecieved", None),
    "GID": (lambda r: str(r.job.gid), None),
    "Group": (lambda r: r.job.group or r.job.user, None),
    "JobID": (_ID, _ID),
    "JobIDRaw": (_RAW_ID, _RAW_ID),
    "JobName": (lambda r: r.job.name, _make_constant("batch")),
    "Layout": (None, _make_constant("Unknown")),
    "MaxRSS": (None, _RSS),
    "MaxRSSNode": (None, lambda r: "" if r.job.max_rss_kib is None else r.job.node_list),
    "MaxRSSTask": (None, lambda r: "" if r.job.max_rss_kib is None else "0"),
    "NCPUS": (_CPUS, _CPUS),
    "NNodes": (lambda r: str(r.job.nodes), _make_constant("1")),
    "NodeList": (_NODES, _NODES),
    "NTasks": (None, _make_constant("1")),
    "Partition": (lambda r: r.job.partition, None),
    "Priority": (lambda r: str(r.texts.priority(r.job)), None),
    "QOS": (_make_constant("normal"), None),
    "QOSRAW": (_make_constant("1"), None),
    "Reason": (_format_reason, None),
    "ReqCPUFreq": _FREQUENCY,
    "ReqCPUFreqGov": _FREQUENCY,
    "ReqCPUFreqMax": _FREQUENCY,
    "ReqCPUFreqMin": _FREQUENCY,
    "ReqCPUS": (_CPUS, _CPUS),
    "ReqMem": (lambda r: r.requested(), None),
    "ReqNodes": (lambda r: str(r.job.nodes), _make_constant("1")),
    "ReqTRES": (lambda r: r.resources(), None),
    "Reserved": (lambda r: format_long(r.wait_s), None),
    "ResvCPU": (lambda r: format_long(r.wait_s * r.job.cpus), None),
    "ResvCPURAW": (lambda r: str(r.wait_s * r.job.cpus), None),
    "Start": (_start, _start),
    "State": (_STATE, _STATE),
    "Submit": (_SUBMIT, _start),
    "SubmitLine": (lambda r: f"sbatch {r.job.command}".strip(), None),
    "Suspended": (_make_constant("00:00:00"), _make_constant("00:00:00")),
    "SystemComment": (lambda r: r.job.system_comment, None),
    "SystemCPU": (_make_constant("00:00:00"), _make_constant("00:00:00")),
    "Timelimit": (lambda r: format_long(r.job.limit_s), None),
    "TimelimitRaw": (_limit_minutes, None),
    "TotalCPU": (_format_cpu, _format_cpu),
    "UID": (lambda r: str(r.job.uid), None),
    "User": (lambda r: r.job.user, None),
    "UserCPU": (_format_cpu, _format_cpu),
    "WCKeyID": (_make_constant("0"), None),
    "WorkDir": (lambda r: r.job.folder, None),
}
_LEFT = ("JobID", "JobIDRaw")
_WIDTHS = """
Account 10 AdminComment 15 AllocCPUS 10 AllocNodes 10 AllocTRES 10 AssocID 7 AveCPU 10
AveCPUFreq 10 AveDiskRead 14 AveDiskWrite 14 AvePages 10 AveRSS 10 AveVMSize 10 BlockID 16
Cluster 10 Comment 14 Constraints 19 ConsumedEnergy 14 ConsumedEnergyRaw 17 Container 19
CPUTime 10 CPUTimeRAW 10 DBIndex 10 DerivedExitCode 15 Elapsed 10 ElapsedRaw 10 Eligible 19
End 19 ExitCode 8 Flags 19 GID 6 Group 9 JobID 12 JobIDRaw 12 JobName 10 Layout 9
MaxDiskRead 12 MaxDiskReadNode 15 MaxDiskReadTask 15 MaxDiskWrite 12 MaxDiskWriteNode 16
MaxDiskWriteTask 16 MaxPages 8 MaxPagesNode 12 MaxPagesTask 14 MaxRSS 10 MaxRSSNode 10
MaxRSSTask 10 MaxVMSize 10 MaxVMSizeNode 14 MaxVMSizeTask 14 McsLabel 12 MinCPU 10
MinCPUNode 10 MinCPUTask 10 NCPUS 10 NNodes 8 NodeList 15 NTasks 8 Partition 10 Priority 10
QOS 10 QOSRAW 6 Reason 22 ReqCPUFreq 10 ReqCPUFreqGov 13 ReqCPUFreqMax 13 ReqCPUFreqMin 13
ReqCPUS 8 ReqMem 10 ReqNodes 8 ReqTRES 10 Reservation 20 ReservationId 8 Reserved 10 ResvCPU 10
ResvCPURAW 10 Start 19 State 10 Submit 19 SubmitLine 20 Suspended 10 SystemComment 15
SystemCPU 10 Timelimit 10 TimelimitRaw 10 TotalCPU 10 TRESUsageInAve 14 TRESUsageInMax 14
TRESUsageInMaxNode 18 TRESUsageInMaxTask 18 TRESUsageInMin 14 TRESUsageInMinNode 18
TRESUsageInMinTask 18 TRESUsageInTot 14 TRESUsageOutAve 15 TRESUsageOutMax 15
TRESUsageOutMaxNode 19 TRESUsageOutMaxTask 19 TRESUsageOutMin 15 TRESUsageOutMinNode 19
TRESUsageOutMinTask 19 TRESUsageOutTot 15 UID 6 User 9 UserCPU 10 WCKey 10 WCKeyID 10 WorkDir 20
"""
FIELDS = tuple(
    AccountingField(name, int(width), *_TEXTS.get(name, (None, None)), left=name in _LEFT)
    for name, width in re.findall(r"(\w+) (\d+)", _WIDTHS)
)
"""All fields in the order of ``--helpformat``."""
DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"
LONG = (
    "JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,"
    "MaxRSSNode,MaxRSSTask,AveRSS,MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,"
    "MinCPUTask,AveCPU,NTasks,AllocCPUS,Elapsed,State,ExitCode,AveCPUFreq,ReqCPUFreqMin,"
    "ReqCPUFreqMax,ReqCPUFreqGov,ReqMem,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,"
    "MaxDiskReadTask,AveDiskRead,MaxDiskWrite,MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite,"
    "ReqTRES,AllocTRES,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,"
    "TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutMax,"
    "TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutAve,TRESUsageOutTot"
)

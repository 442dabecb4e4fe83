"""scancel: jobs to cancel or to signal.

Source: scancel(1) of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.slurm.errors import Reply, SlurmError, command_error
from vgrads.slurm.job import Job, JobState
from vgrads.slurm.text.options import CommandOptions, information, listed, options, scan
from vgrads.slurm.text.sbatch_values import parse_signal_name
from vgrads.slurm.text.selection import JobIds, parse_ids, parse_states

_COMMAND = CommandOptions(
    "scancel",
    options(
        """
        account/A= batch/b clusters/M= ctld cron full/f help hurry/H interactive/i jobname/n= me
        name= nodelist/w= partition/p= qos/q= quiet/Q reservation/R= sibling= signal/s= state/t=
        usage user/u= verbose/v version/V wckey=
        """
    ),
)
_STATES = (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED)


@dataclass(frozen=True)
class CancelRequest:
    """Which jobs scancel means, and the signal (None: cancel).

    Empty selections select everything, but one of them is stated. ``batch`` signals the batch
    shell alone, ``full`` it and its children; without both, the steps of ``srun`` are signalled and
    nothing else. ``reply`` answers ``--version`` and ``--help``.
    """

    ids: JobIds = field(default_factory=JobIds)
    names: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    states: frozenset[JobState] | None = None
    partitions: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    signal: int | None = None
    batch: bool = False
    full: bool = False
    quiet: bool = False
    verbose: bool = False
    reply: Reply | None = None

    @property
    def receivers(self) -> str:
        """What of a job gets the signal: its ``batch`` shell, ``all`` its processes, or its
        ``steps``."""
        if self.full:
            return "all"
        return "batch" if self.batch else "steps"

    def selects(self, job: Job) -> bool:
        """Whether an unfinished job is meant, apart from its id."""
        return (
            not job.state.is_terminal
            and (self.states is None or job.state in self.states)
            and (not self.users or job.user in self.users or str(job.uid) in self.users)
            and (not self.names or job.name in self.names)
            and (not self.partitions or job.partition in self.partitions)
            and (not self.accounts or job.account in self.accounts)
        )

    def select(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that are meant; stated tasks among an array's pending ones get rows of
        their own."""
        candidates = self.ids.select(jobs) if self.ids else list(jobs)
        return [job for job in candidates if self.selects(job)]


def parse_scancel(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, user: str = ""
) -> CancelRequest:
    """Parse the command line of scancel; ``user`` is who calls, for ``--me``.

    Raises SlurmError with the words of scancel.
    """
    variables = environment or {}
    parsed, words = scan(_COMMAND, arguments)
    reply = information(_COMMAND, parsed, "[OPTIONS] [job_id[_array_id][.step_id]]")
    if reply is not None:
        return CancelRequest(reply=reply)
    options = {"jobname" if name == "name" else name: value or "" for name, value in parsed}
    if "interactive" in options:
        raise command_error("scancel", "--interactive is not supported by vgrads")
    users = {user} if "me" in options else set(listed(options.get("user")))
    request = CancelRequest(
        ids=_parse_ids(words),
        names=frozenset(listed(options.get("jobname", variables.get("SCANCEL_NAME")))),
        users=frozenset(users),
        states=_parse_states(options.get("state")),
        partitions=frozenset(listed(options.get("partition"))),
        accounts=frozenset(listed(options.get("account"))),
        signal=_signal(options.get("signal")),
        batch="batch" in options,
        full="full" in options,
        quiet="quiet" in options,
        verbose="verbose" in options,
    )
    selective = ("jobname", "me", "user", "state", "partition", "account", "qos", "nodelist")
    if not request.ids and not any(name in options for name in selective):
        raise command_error("scancel", "No job identification provided")
    if not request.ids and words:
        raise command_error("scancel", f"Invalid job id {words[0]}")
    return request


def _parse_ids(words: Sequence[str]) -> JobIds:
    try:
        ids = parse_ids(words)
    except ValueError as error:
        raise command_error("scancel", f"Invalid job id {error}") from error
    for step in ids.steps:
        if not step.endswith((".batch", ".extern")):
            raise command_error(
                "scancel",
                f"Kill job error on job step id {step}: Invalid job id specified",
            )
    return ids


def _parse_states(text: str | None) -> frozenset[JobState] | None:
    if text is None:
        return None
    try:
        states = parse_states(text)
        if states is None or not states <= set(_STATES) or not states:
            raise ValueError(text)
    except ValueError as error:
        raise SlurmError(
            f"Invalid job state specified: {text}\n"
            "Valid job states are PENDING, RUNNING, and SUSPENDED"
        ) from error
    return states


def _signal(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_signal_name(text)
    except ValueError as error:
        raise SlurmError(f"Unknown job signal: {text}") from error


def render_scancel(request: CancelRequest, jobs: Iterable[Job]) -> Reply:
    """Return the reply. ``jobs`` are those that may be selected, in whatever state; as with Slurm,
    unknown ids are mentioned with ``-v`` alone and are no failure."""
    if request.reply is not None:
        return request.reply
    if not request.verbose:
        return Reply()
    rows = list(jobs)
    lines = []
    verb = "Terminating" if request.signal is None else f"Signal {request.signal} to"
    for text in request.ids.texts:
        lines.append(f"scancel: {verb} job {text}\n")
        if not parse_ids([text]).select(rows):
            message = "Invalid job id specified"
            lines.append(f"scancel: error: Kill job error on job id {text}: {message}\n")
    if not request.ids:
        lines = [f"scancel: {verb} job {job.shown_id}\n" for job in request.select(rows)]
    return Reply("", "".join(lines))

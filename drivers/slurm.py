"""Commands of Slurm and the parsing of their output.

Explicit columns between bars, not ``--json``: its documents change with every release and, before
23.02, ignore the filters (decision 0010). States: the list under JOB STATE CODES in squeue(1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from vgrads.drivers.api import (
    QueuedJob,
    QueueLimits,
    SiteAccess,
    SiteFacts,
    SlotSpec,
    SlotState,
    Survey,
)
from vgrads.drivers.dialect import (
    Dialect,
    JobReport,
    JobSubmission,
    list_own_reservations,
    refuse_unread,
)
from vgrads.drivers.every_node import SRUN, Launch, by_environment
from vgrads.drivers.machines import expand_hosts
from vgrads.drivers.pilot import write_pilot_command
from vgrads.drivers.reservations import (
    NOW,
    NodeReservation,
    SiteClock,
    find_closures_by_queue,
    read_clock,
)
from vgrads.drivers.shell import quote
from vgrads.kernel.closures import MAINTENANCE, WEEK_S, Closure

STATES = {
    "PENDING": SlotState.QUEUED,
    "REQUEUED": SlotState.QUEUED,
    "REQUEUE_HOLD": SlotState.QUEUED,
    "REQUEUE_FED": SlotState.QUEUED,
    "RESV_DEL_HOLD": SlotState.QUEUED,
    "SPECIAL_EXIT": SlotState.QUEUED,
    "CONFIGURING": SlotState.GRANTED,
    "RUNNING": SlotState.GRANTED,
    "SUSPENDED": SlotState.GRANTED,
    "STOPPED": SlotState.GRANTED,
    "SIGNALING": SlotState.GRANTED,
    "RESIZING": SlotState.GRANTED,
    "STAGE_OUT": SlotState.GRANTED,
    "COMPLETING": SlotState.GRANTED,
    "COMPLETED": SlotState.RELEASED,
    "TIMEOUT": SlotState.EXPIRED,
    "CANCELLED": SlotState.FAILED,
    "FAILED": SlotState.FAILED,
    "NODE_FAIL": SlotState.FAILED,
    "BOOT_FAIL": SlotState.FAILED,
    "PREEMPTED": SlotState.FAILED,
    "OUT_OF_MEMORY": SlotState.FAILED,
    "DEADLINE": SlotState.FAILED,
    "REVOKED": SlotState.FAILED,
    "LAUNCH_FAILED": SlotState.FAILED,
    "RECONFIG_FAIL": SlotState.FAILED,
}
_WORDS = {
    "CANCELLED": "cancelled at the site",
    "NODE_FAIL": "a node failed",
    "PREEMPTED": "preempted",
    "DEADLINE": "could not have ended by its deadline",
    "TIMEOUT": "reached its end",
    "OUT_OF_MEMORY": "out of memory",
}
_NO_ANSWER = re.compile(
    r"unable to contact|connection (refused|timed out|reset)|socket timed out"
    r"|zero bytes were transmitted"
    r"|temporarily (unable|unavailable)|protocol authentication error"
    r"|communication connection failure|slurmctld.*not respond",
    re.IGNORECASE,
)
_FORECAST = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_COLUMNS = (
    "JobIDRaw",
    "User",
    "Account",
    "Partition",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "State",
    "Timelimit",
    "NNodes",
    "NCPUS",
    "ReqCPUS",
)
_ACCOUNTING = "--accounting--"
_PRIVATE = "scontrol show config 2>/dev/null | sed -n 's/^PrivateData *= */private /p'"
_NODES = "--nodes--"
_FIELD = re.compile(r"(\w+)=(\S*)")
_EVERY_S = {"DAILY": 86400.0, "WEEKLY": WEEK_S}
_QUEUE_FIELDS = "%P|%u|%T|%C|%l|%L|%V|%r"
_INELIGIBLE = ("Dependency", "JobHeld", "BeginTime", "Deadline")
"""Beginnings of the reasons for which a job cannot start, whatever is free: JOB REASON CODES in
squeue(1). A limit of the user or of an array is none: the job takes part in the scheduling."""


def _compute_deadline_in_s(order: JobSubmission, end_in_s: float, minutes: int) -> int:
    """Return the deadline of a job: the end by which it must be over, or somewhat later if only its
    whole minutes do not fit before that, since such a job would never start."""
    fits = order.walltime_s <= end_in_s - order.begin_in_s
    least = round(order.begin_in_s) + 60 * minutes if fits else 1
    return max(round(end_in_s), least)


class Slurm(Dialect):
    """Dialect of Slurm 20.11 and later."""

    def submit(self, order: JobSubmission, access: SiteAccess) -> str:
        """Times are relative to now by the controller's clock, so zone and skew do not matter."""
        # Slurm counts time limits in minutes
        minutes = max(1, math.ceil(order.walltime_s / 60))
        options = [
            "--parsable",
            # a slot starts once: a requeued job would find its mark and end
            "--no-requeue",
            f"--job-name={order.name}",
            f"--comment={order.slot}",
            f"--ntasks={order.procs}",
            f"--nodes={order.nodes}",
            f"--time={minutes}",
            # the script itself keeps what its pilot prints, in the folder of the marks
            "--output=/dev/null",
            "--error=/dev/null",
        ]
        # Slurm knows only one number of tasks for all nodes
        if order.every_node and order.procs % order.nodes == 0:
            options.append(f"--ntasks-per-node={order.procs // order.nodes}")
        options += [f"--partition={order.queue}"] if order.queue else []
        options += [f"--begin=now+{round(order.begin_in_s)}"] if order.begin_in_s >= 1 else []
        if order.end_in_s is not None:
            options.append(
                f"--deadline=now+{_compute_deadline_in_s(order, order.end_in_s, minutes)}"
            )
        options += [f"--account={access.account}"] if access.account else []
        options += [f"--reservation={access.reservation}"] if access.reservation else []
        return " ".join(map(quote, ["sbatch", *options, *access.options]))

    def job_id(self, printed: str) -> str:
        """Parse ``id`` or ``id;cluster``."""
        return printed.strip().splitlines()[-1].partition(";")[0]

    def launch(self, spec: SlotSpec, exports: str) -> Launch:  # noqa: ARG002 srun hands them on
        return by_environment(SRUN, "SLURM_NODEID", write_pilot_command(spec), spec.nodes)

    def listing(self) -> str:
        """List the controller's jobs; ended ones remain for MinJobAge."""
        return 'squeue --noheader --states=all --user="$(id -un)" --format="%i|%j|%T|%M|%r|%k"'

    def jobs(self, printed: str) -> list[JobReport]:
        """Parse one job per line."""
        results = []
        for line in printed.splitlines():
            # the comment, which may contain bars, comes last
            fields = line.split("|", 5)
            if len(fields) == 6:
                job, name, word, ran, reason, comment = fields
                results.append(_report((job, name, comment), word, ran, reason))
        return results

    def past(self, names: Sequence[str]) -> str:
        """Query the accounting for jobs that the controller has forgotten."""
        columns = "JobIDRaw,JobName,State,ElapsedRaw,Reason,Comment"
        return (
            "sacct --noheader --parsable2 --allocations --duplicates --starttime=now-30days "
            f"--format={columns} --name={quote(','.join(names))}"
        )

    def past_jobs(self, printed: str) -> list[JobReport]:
        """Parse lines like the controller's, but with seconds and ``CANCELLED by 1000``."""
        results = []
        for line in printed.splitlines():
            fields = line.split("|", 5)
            if len(fields) == 6:
                job, name, word, ran, reason, comment = fields
                report = _report((job, name, comment), word.partition(" ")[0], "", reason)
                results.append(replace(report, ran_s=float(ran) if ran.isdigit() else None))
        return results

    def cancel(self, jobs: Sequence[str]) -> str:
        """Ended jobs are no error."""
        return f"scancel --quiet {' '.join(map(quote, jobs))}"

    def transient(self, text: str) -> bool:
        return bool(_NO_ANSWER.search(text))

    def survey(self, access: SiteAccess) -> str:
        """``sacct`` fails if no accounting is configured; that is reported, not an error."""
        account = f"--account={quote(access.account)} " if access.account else ""
        return (
            f"sinfo --version && {self.node_lists()} || exit $?\n"
            f"sbatch --test-only {account}--ntasks=1 --time=1 --wrap=true 2>&1 | tail -n 1\n"
            f"echo {_ACCOUNTING}\n"
            "sacct --noheader --parsable2 --allocations --starttime=now-1minute >/dev/null "
            "2>&1 && echo yes\ntrue"
        )

    def surveyed(self, printed: str) -> Survey:
        head, _, accounting = printed.partition(_ACCOUNTING)
        lines = head.splitlines()
        queues = self.listed(head)
        works, problems = ["submit, list, cancel"], []
        test = lines[-1] if lines else ""
        if _FORECAST.search(test):
            works.append("forecast of starts (--test-only)")
        elif "error" in test or "fail" in test:
            problems.append(f"a test submission is refused: {test.removeprefix('sbatch: ')}")
        if "yes" in accounting:
            works.append("history (sacct)")
        else:
            problems.append("no history: accounting is not configured (sacct fails)")
        return Survey(
            version=lines[0] if lines else "?",
            queues=queues,
            works=tuple(works),
            problems=tuple(problems),
        )

    def facts(self) -> str:
        """``PrivateData`` names what users see of others; an operator sees all in spite of it."""
        return f"id -un && {{ {_PRIVATE}; {self.node_lists()}; }}"

    def listed_facts(self, printed: str) -> SiteFacts:
        user, _, rest = printed.partition("\n")
        private, _, lines = rest.partition("\n") if rest.startswith("private ") else ("", "", rest)
        return SiteFacts(
            user=user.strip(),
            hides_jobs="jobs" in private.removeprefix("private ").lower().split(","),
            queues=self.listed(lines),
        )

    def node_lists(self) -> str:
        return 'sinfo --noheader --format="%R|%a|%l|%C|%N"'

    def listed(self, printed: str) -> tuple[QueueLimits, ...]:
        """Parse one partition per line; others are ignored."""
        return tuple(queue for queue in map(_parse_queue, printed.splitlines()) if queue)

    def accounting(self, from_ago_s: float, until_ago_s: float) -> str:
        """``sacct`` selects jobs that were in any state in that time, so jobs that waited before
        are repeated."""
        return (
            "SLURM_TIME_FORMAT=%s sacct --parsable2 --allusers --allocations --duplicates --format="
            f"{','.join(_COLUMNS)} --starttime=now-{round(from_ago_s)}seconds "
            f"--endtime=now-{round(until_ago_s)}seconds"
        )

    @property
    def accounting_header(self) -> str:
        return "|".join(_COLUMNS)

    def accounted(self, line: str) -> tuple[str, str] | None:
        fields = line.split("|")
        if fields[0] == _COLUMNS[0] or len(fields) != len(_COLUMNS):
            return None
        # numbers that were given twice (--duplicates) are distinguished by their submission
        return f"{fields[0]}@{fields[4]}", fields[3]

    def everybody(self) -> str:
        """Each pending task of an array, which squeue otherwise shows as one job. Relative times
        only; submission in seconds since 1970 if the version supports the format."""
        return (
            f'date +%s && SLURM_TIME_FORMAT=%s squeue --noheader --array --format="{_QUEUE_FIELDS}"'
        )

    def listed_jobs(self, printed: str) -> list[QueuedJob]:
        return _parse_queued_jobs(printed.splitlines())

    def closures_command(self) -> str:
        """Reservations, and the nodes of each partition where there are any."""
        return (
            f"{NOW} && SLURM_TIME_FORMAT=%s scontrol show reservation --oneliner || exit $?\n"
            f'echo {_NODES}\nsinfo --noheader --Node --format="%N|%R|%c"'
        )

    def closures(self, printed: str, now_s: float, access: SiteAccess) -> tuple[Closure, ...]:
        """Jobs that do not name a reservation cannot run on its nodes, even if it is one of their
        account."""
        head, _, listed = printed.partition(_NODES)
        first, _, lines = head.partition("\n")
        clock = read_clock(first, "slurm")
        ours = list_own_reservations(access)
        stated = [
            _parse_reservation(dict(_FIELD.findall(line)), clock) for line in lines.splitlines()
        ]
        others = [r for name, r in filter(None, stated) if name not in ours]
        queues: dict[str, dict[str, int]] = {}
        for line in listed.splitlines():
            node, _, rest = line.partition("|")
            queue, _, procs = rest.partition("|")
            if procs.isdigit():
                queues.setdefault(queue, {})[node] = int(procs)
        return find_closures_by_queue(others, queues, now_s)

    def forecast(self, order: JobSubmission, access: SiteAccess) -> str:
        """Print now and the start that ``--test-only`` announces, by the site's own clock; it
        appears on standard error."""
        test = self.submit(order, access).replace("sbatch ", "sbatch --test-only ", 1)
        return (
            f"date +%s\nsaid=$(echo '#!/bin/sh' | {test} 2>&1)\ncode=$?\necho \"$said\"\n"
            'when=$(echo "$said" | sed -n "s/.*to start at \\([0-9T:-]*\\).*/\\1/p")\n'
            '[ -n "$when" ] && echo "at $(date -d "$when" +%s)"\nexit $code\n'
        )

    def forecast_in_s(self, printed: str) -> float | None:
        """Parse the seconds until the estimated start, both by the site's clock; None without an
        estimate."""
        first, _, rest = printed.partition("\n")
        match = _FORECAST.search(rest)
        when = re.search(r"^at (\d+)$", rest, re.MULTILINE)
        if not match or not when or not first.strip().isdigit():
            return None
        return float(when[1]) - float(first)


def _parse_reservation(
    fields: dict[str, str], clock: SiteClock
) -> tuple[str, NodeReservation] | None:
    """Return a reservation of nodes with its name; None for one of licences alone."""
    begin_s, end_s = (clock.until_s(fields.get(key, "")) for key in ("StartTime", "EndTime"))
    nodes = expand_hosts(fields.get("Nodes", ""))
    if begin_s is None or end_s is None or not nodes:
        return None
    name, flags = fields.get("ReservationName", ""), fields.get("Flags", "").split(",")
    procs = re.search(r"cpu=(\d+)", fields.get("TRES", ""))
    return name, NodeReservation(
        words=MAINTENANCE if "MAINT" in flags else f"reservation {name}",
        begin_in_s=begin_s,
        end_in_s=end_s,
        nodes=nodes,
        procs=int(procs[1]) if procs else None,
        every_s=next((s for flag, s in _EVERY_S.items() if flag in flags), 0.0),
    )


def _report(who: tuple[str, str, str], word: str, ran: str, reason: str) -> JobReport:
    job, name, comment = who
    # a state that is not known here must not end the slot
    state = STATES.get(word, SlotState.GRANTED)
    text = _WORDS.get(word, word.lower().replace("_", " ")) if state.ended else ""
    # these only repeat the state
    if text and reason not in ("None", "", "NonZeroExitCode", "TimeLimit", "DeadLine"):
        text += f" ({reason})"
    return JobReport(
        job=job,
        name=name,
        state=state,
        reason=text,
        ran_s=_parse_seconds(ran),
        slot="" if comment == "(null)" else comment,
        ending=word == "COMPLETING",
    )


def _parse_queue(line: str) -> QueueLimits | None:
    fields = line.split("|")
    if len(fields) != 5:
        return None
    name, state, limit, cores, nodes = fields
    # allocated, idle, other and total, with slashes between them
    total = cores.rsplit("/", 1)[-1]
    return QueueLimits(
        name=name,
        max_walltime_s=_parse_seconds(limit),
        max_procs=int(total) if total.isdigit() else None,
        open=state == "up",
        nodes=expand_hosts(nodes),
    )


def _parse_queued_jobs(lines: Sequence[str]) -> list[QueuedJob]:
    clock = next((n for n, line in enumerate(lines) if line.strip().isdigit()), None)
    if clock is None:  # what a login prints may stand before it
        raise ValueError("the time of the site is missing")
    jobs = [_parse_queued(line, float(lines[clock])) for line in lines[clock + 1 :]]
    results = [job for job in jobs if job is not None]
    refuse_unread(len(jobs) - len(results), len(jobs))
    return results


def _parse_queued(line: str, now_s: float) -> QueuedJob | None:
    fields = line.split("|")
    if len(fields) < _QUEUE_FIELDS.count("|") or not fields[3].isdigit():
        return None
    queue, user, word, procs, limit, left, submitted, *reasons = fields
    requested_s = _parse_seconds(limit) or -1.0
    if word == "PENDING":
        # versions that ignore the format print local time, from which no wait is computed
        waited_s = now_s - float(submitted) if submitted.isdigit() else 0.0
        return QueuedJob(
            queue=queue,
            user=user,
            procs=int(procs),
            requested_s=requested_s,
            waited_s=max(0.0, waited_s),
            eligible=not any(reason.startswith(_INELIGIBLE) for reason in reasons),
        )
    return QueuedJob(
        queue=queue,
        user=user,
        procs=int(procs),
        requested_s=requested_s,
        left_s=_parse_seconds(left) or 0.0,
    )


def _parse_seconds(text: str) -> float | None:
    """Parse Slurm's ``[days-][hours:]minutes:seconds``; None for unlimited and unknown."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)

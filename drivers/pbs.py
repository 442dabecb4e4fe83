"""Commands of PBS Professional, OpenPBS and Torque, and the parsing of their output.

States: the letters of qstat(1B); ``Exit_status`` below zero and above 255 as in the administrators'
guides (256 + signal). Torque has neither JSON nor ``qselect -x``; each command falls back to the
options that it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from vgrads.drivers.api import (
    QueuedJob,
    QueueLimits,
    SiteAccess,
    SiteFacts,
    SlotSpec,
    SlotState,
    Survey,
    mark,
)
from vgrads.drivers.dialect import Dialect, JobReport, JobSubmission, list_own_reservations
from vgrads.drivers.every_node import KEY, PBSDSH, Launch, by_file
from vgrads.drivers.gridengine import ignore_errors, write_local_time
from vgrads.drivers.reservations import (
    NOW,
    NodeReservation,
    SiteClock,
    find_closures_by_queue,
    read_clock,
)
from vgrads.drivers.shell import quote
from vgrads.kernel.closures import MAINTENANCE, Closure
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import parse_duration
from vgrads.traces.array_tasks import count_tasks
from vgrads.traces.pbs_processors import processors_of

STATES = {
    "Q": SlotState.QUEUED,
    "H": SlotState.QUEUED,
    "W": SlotState.QUEUED,
    "T": SlotState.QUEUED,
    "M": SlotState.QUEUED,
    "R": SlotState.GRANTED,
    "B": SlotState.GRANTED,
    "S": SlotState.GRANTED,
    "U": SlotState.GRANTED,
    "E": SlotState.GRANTED,
}
_ENDED = "FCX"
_INELIGIBLE = "HW"
"""Waiting jobs that cannot start: held by somebody or by other jobs, or before their begin time."""
_NUMBERS = re.compile(r"(\w+):(\d+)")
# killed at the limit: OpenPBS JOB_EXEC_KILL_WALLTIME, Torque JOB_EXEC_OVERLIMIT
_TIME_OVER = (-29, -11)
_NO_ANSWER = re.compile(
    r"connection refused|cannot connect|could not connect|no route to host"
    r"|timed? ?out|server.*(down|not running|unavailable)|end of file",
    re.IGNORECASE,
)
_GONE = '*"Unknown Job"* | *"has finished"* | *"invalid state"*'
_NEXT = "--vgrads-next--"
_CONFIRMED = ("CONFIRMED", "RUNNING", "TIME_TO_RUN", "DEGRADED", "BEING_ALTERED", "IN_CONFLICT")

Fields = Mapping[str, Any]


class Pbs(Dialect):
    """Dialect of the PBS family."""

    def submit(self, order: JobSubmission, access: SiteAccess) -> str:
        """All three understand ``nodes=…:ppn=…``, but not ``select``."""
        each = -(-order.procs // order.nodes)
        options = [
            "-N",
            order.name,
            # a slot starts once: a job that ran again would find its mark and end
            "-r",
            "n",
            "-j",
            "oe",
            "-o",
            "/dev/null",
            "-S",
            "/bin/sh",
            "-l",
            f"nodes={order.nodes}:ppn={each}",
            "-l",
            f"walltime={_format_clock(order.walltime_s)}",
        ]
        options += ["-q", order.queue] if order.queue else []
        options += ["-A", access.account] if access.account else []
        options += ["-W", f"x=advres:{access.reservation}"] if access.reservation else []
        # not quoted, since the site's shell computes the instant
        begin = f" -a {write_local_time(order.begin_in_s)}" if order.begin_in_s >= 1 else ""
        return " ".join(map(quote, ["qsub", *options, *access.options])) + begin

    def job_id(self, printed: str) -> str:
        return printed.strip().splitlines()[-1]

    def launch(self, spec: SlotSpec, exports: str) -> Launch:
        key = spec.environment.get(KEY, "")
        return by_file(PBSDSH, exports, spec.pilot, mark(spec.id), key)

    def listing(self) -> str:
        """OpenPBS keeps ended jobs in its history, Torque for ``keep_completed`` seconds."""
        return (
            'u=$(id -un); ids=$(qselect -x -u "$u" 2>/dev/null || qselect -u "$u") && '
            '{ [ -z "$ids" ] || { said=$(qstat -x -f -F json $ids 2>/dev/null); '
            'case "$said" in "{"*) echo "$said";; *) qstat -f $ids;; esac; }; }'
        )

    def jobs(self, printed: str) -> list[JobReport]:
        return [_report(job, fields) for job, fields in _parse(printed).items()]

    def past(self, names: Sequence[str]) -> str:  # noqa: ARG002 the protocol's
        """The listing is complete."""
        return ""

    def past_jobs(self, printed: str) -> list[JobReport]:  # noqa: ARG002 the protocol's
        return []

    def cancel(self, jobs: Sequence[str]) -> str:
        return ignore_errors(f"qdel {' '.join(map(quote, jobs))}", _GONE)

    def transient(self, text: str) -> bool:
        return bool(_NO_ANSWER.search(text))

    def survey(self, access: SiteAccess) -> str:  # noqa: ARG002 the protocol's
        return f"qstat --version 2>&1 | head -n 1; echo {_NEXT}; qstat -Q -f"

    def surveyed(self, printed: str) -> Survey:
        version, _, queues = printed.partition(_NEXT)
        return Survey(
            version=version.strip(),
            queues=_parse_limits(queues),
            works=("submit, list, cancel",),
            problems=(
                "history: the accounting files are on the server; add one with 'vgrads sites add'",
            ),
        )

    def facts(self) -> str:
        """``query_other_jobs`` of the server says whether users see jobs of others."""
        return (
            "id -un && { qstat -B -f 2>/dev/null | grep -i 'query_other_jobs *= *false'; "
            f"echo {_NEXT}; qstat -Q -f; }}"
        )

    def listed_facts(self, printed: str) -> SiteFacts:
        head, _, queues = printed.partition(_NEXT)
        user, _, private = head.partition("\n")
        return SiteFacts(user=user, hides_jobs=bool(private.strip()), queues=_parse_limits(queues))

    def node_lists(self) -> str:
        """Not supported: queues are bound to nodes by rules, which no command expands."""
        return ""

    def listed(self, printed: str) -> tuple[QueueLimits, ...]:  # noqa: ARG002 the protocol's
        return ()

    def accounting(self, from_ago_s: float, until_ago_s: float) -> str:  # noqa: ARG002 the protocol's
        """Not supported: the files are on the server, unreadable for users."""
        return ""

    @property
    def accounting_header(self) -> str:
        return ""

    def accounted(self, line: str) -> tuple[str, str] | None:  # noqa: ARG002 the protocol's
        return None

    def forecast(self, order: JobSubmission, access: SiteAccess) -> str:  # noqa: ARG002 the protocol's
        """Not supported: ``estimated.start_time`` exists for submitted jobs only."""
        return ""

    def forecast_in_s(self, printed: str) -> float | None:  # noqa: ARG002 the protocol's
        return None

    def closures_command(self) -> str:
        """The reservations, and the nodes where there are any. Torque has no reservations."""
        return (
            # names of days and months are parsed, so they must be those of the C locale
            f"{NOW}; command -v pbs_rstat >/dev/null || exit 0\n"
            f"LC_ALL=C pbs_rstat -f || exit $?\necho {_NEXT}\npbsnodes -a"
        )

    def closures(self, printed: str, now_s: float, access: SiteAccess) -> tuple[Closure, ...]:
        """Reservations take processors of nodes, of which jobs of any queue may run on the others:
        queues are bound to nodes by rules, which no command expands."""
        head, _, listed = printed.partition(_NEXT)
        first, _, described = head.partition("\n")
        clock = read_clock(first, "pbs")
        ours = list_own_reservations(access)
        stated = [
            _parse_reservation(name, fields, clock)
            for name, fields in _parse_blocks(described, "Resv ID").items()
            if not {name, name.partition(".")[0], fields.get("queue", "")} & ours
        ]
        nodes = {
            name: int(fields.get("resources_available.ncpus", fields.get("pcpus", 0)))
            for name, fields in _parse_paragraphs(listed).items()
        }
        return find_closures_by_queue([r for r in stated if r], {"": nodes}, now_s)

    def everybody(self) -> str:
        """With ``-t`` the tasks of arrays are listed one by one, where that is supported."""
        return (
            "date +%s; said=$(qstat -t -f -F json 2>/dev/null); "
            'case "$said" in "{"*) echo "$said";; *) qstat -t -f 2>/dev/null || qstat -f;; esac'
        )

    def listed_jobs(self, printed: str) -> list[QueuedJob]:
        _, _, rest = printed.partition("\n")
        jobs = _parse(rest)
        # '7[3]' is a task and '7[]' its array, which counts only where its tasks are not listed
        listed = {_find_array(job) for job in jobs if not job.partition("[")[2].startswith("]")}
        return [
            job
            for name, fields in jobs.items()
            if str(fields.get("job_state")) not in _ENDED
            for job in _list_queued(name, fields, listed)
        ]


def _parse(text: str) -> dict[str, Fields]:
    """Parse jobs by id from JSON or from plain ``qstat -f``."""
    text = text.strip()
    if not text.startswith("{"):
        return _parse_blocks(text, "Job Id")
    try:
        # not strict: values may contain control characters that are not escaped
        jobs = json.loads(text, strict=False).get("Jobs", {})
    except json.JSONDecodeError as error:
        raise SiteError(
            f"qstat printed broken JSON: {error}", site="pbs", transient=True
        ) from error
    return {job: _flatten_fields(fields) for job, fields in jobs.items()}


def _flatten_fields(fields: Fields) -> Fields:
    """Flatten ``{"Resource_List": {"walltime": …}}`` to the dotted names of plain ``qstat -f``."""
    flat: dict[str, Any] = {}
    for key, value in fields.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            flat[key] = value
    return flat


def _parse_blocks(text: str, title: str) -> dict[str, Fields]:
    """Parse ``Title: name`` followed by indented ``key = value`` lines; a tab continues the
    previous value."""
    jobs: dict[str, Fields] = {}
    current: dict[str, Any] = {}
    key = ""
    for line in text.splitlines():
        if line.startswith(f"{title}: "):
            current = {}
            jobs[line.partition(": ")[2].strip()] = current
        elif line.startswith("\t") and key:
            current[key] += line.strip()
        elif " = " in line:
            name, _, value = line.partition(" = ")
            key = name.strip()
            current[key] = value.strip()
    return jobs


def _parse_reservation(name: str, fields: Fields, clock: SiteClock) -> NodeReservation | None:
    """Return a confirmed reservation; None for another."""
    times = []
    for key in ("reserve_start", "reserve_end"):
        try:
            when = datetime.strptime(str(fields.get(key)), "%a %b %d %H:%M:%S %Y")
        except ValueError:
            return None
        times.append((when - clock.local).total_seconds())
    if str(fields.get("reserve_state", "")).partition("RESV_")[2] not in _CONFIRMED:
        return None
    taken = [chunk.strip("()") for chunk in str(fields.get("resv_nodes", "")).split("+")]
    names = frozenset(chunk.partition(":")[0] for chunk in taken) - {""}
    procs = sum(int(n) for chunk in taken for n in re.findall(r"ncpus=(\d+)", chunk))
    short = name.partition(".")[0]
    return NodeReservation(
        # numbers of maintenance reservations begin with M, those of users with R or S
        words=MAINTENANCE if short.startswith("M") else f"reservation {short}",
        begin_in_s=times[0],
        end_in_s=times[1],
        nodes=names,
        procs=procs or None,
    )


def _parse_paragraphs(text: str) -> dict[str, Fields]:
    """Parse nodes: a name on a line, followed by indented ``key = value`` lines."""
    nodes: dict[str, Fields] = {}
    current: dict[str, Any] = {}
    for line in text.splitlines():
        if line.strip() and not line[0].isspace():
            current = {}
            nodes[line.strip()] = current
        elif " = " in line:
            key, _, value = line.partition(" = ")
            current[key.strip()] = value.strip()
    return nodes


def _report(job: str, fields: Fields) -> JobReport:
    letter, name = str(fields.get("job_state", "Q")), str(fields.get("Job_Name", ""))
    ran_s = _parse_seconds(fields.get("resources_used.walltime"))
    if letter not in _ENDED:
        state = STATES.get(letter, SlotState.QUEUED)
        return JobReport(job=job, name=name, state=state, ran_s=ran_s)
    code = fields.get("Exit_status")
    state, reason = _parse_outcome(None if code is None else int(code))
    return JobReport(job=job, name=name, state=state, reason=reason, ran_s=ran_s)


def _parse_outcome(code: int | None) -> tuple[SlotState, str]:
    if code is None:
        return SlotState.FAILED, "removed before it ran"
    if code == 0:
        return SlotState.RELEASED, "the pilot ended"
    if code in _TIME_OVER:
        return SlotState.EXPIRED, "reached its end"
    if code > 255:
        return SlotState.FAILED, f"killed by signal {code - 256}"
    return SlotState.FAILED, f"exit code {code}"


def _parse_limits(printed: str) -> tuple[QueueLimits, ...]:
    return tuple(
        _parse_queue(name, fields) for name, fields in _parse_blocks(printed, "Queue").items()
    )


def _parse_queue(name: str, fields: Fields) -> QueueLimits:
    # Torque limits processors as procct
    procs = str(fields.get("resources_max.ncpus", fields.get("resources_max.procct", "")))
    is_open = fields.get("enabled", "True") == "True" and fields.get("started", "True") == "True"
    return QueueLimits(
        name=name,
        max_walltime_s=_parse_seconds(fields.get("resources_max.walltime")),
        max_procs=int(procs) if procs.isdigit() else None,
        open=is_open,
    )


def _find_array(job: str) -> str:
    """Return the number of the array of a job or task; empty for other jobs."""
    number, mark, _ = job.partition("[")
    return number if mark else ""


def _list_queued(name: str, fields: Fields, listed: Collection[str]) -> list[QueuedJob]:
    """Return a job, or each task of an array whose tasks are not listed themselves."""
    states = _NUMBERS.findall(str(fields.get("array_state_count", "")))
    running = sum(int(count) for state, count in states if state in ("Running", "Exiting"))
    if "[]" not in name:
        return [_parse_queued_job(fields, str(fields.get("job_state")))]
    if _find_array(name) in listed:
        return []
    state = str(fields.get("job_state"))
    remaining = fields.get("array_indices_remaining", fields.get("job_array_request", ""))
    waiting = 0 if str(remaining) in ("", "-") else count_tasks(str(remaining))
    waiting_job = _parse_queued_job(fields, "Q" if state == "B" else state)
    return [waiting_job] * waiting + [_parse_queued_job(fields, "R")] * running


def _parse_queued_job(fields: Fields, state: str) -> QueuedJob:
    requested_s = _parse_seconds(fields.get("Resource_List.walltime"))
    used_s = _parse_seconds(fields.get("resources_used.walltime")) or 0.0
    runs = state in ("R", "E", "S", "B")
    waited_s = _parse_seconds(fields.get("eligible_time"))
    return QueuedJob(
        queue=str(fields.get("queue", "")),
        user=str(fields.get("Job_Owner", "")).partition("@")[0],
        procs=max(1, processors_of(fields)),
        requested_s=-1.0 if requested_s is None else requested_s,
        waited_s=None if runs else waited_s or 0.0,
        left_s=max(0.0, (requested_s or 0.0) - used_s) if runs else None,
        eligible=state not in _INELIGIBLE,
    )


def _parse_seconds(value: object) -> float | None:
    return None if value in (None, "") else parse_duration(str(value))


def _format_clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"

"""Commands of Grid Engine (SGE 6.2, Son of Grid Engine, Univa, Open Cluster Scheduler) and the
parsing of their output.

States: the letters of qstat(1), where ``E`` marks an error and ``d`` a job that is being removed.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import datetime

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
from vgrads.drivers.calendars import find_calendar_closures, read_calendar
from vgrads.drivers.dialect import Dialect, JobReport, JobSubmission
from vgrads.drivers.every_node import KEY, QRSH, Launch, by_file
from vgrads.drivers.reservations import NOW, read_clock
from vgrads.drivers.shell import quote
from vgrads.kernel.closures import Closure
from vgrads.kernel.errors import SiteError
from vgrads.traces.array_tasks import count_tasks

_NO_ANSWER = re.compile(
    r"unable to contact|can't connect|commlib error|connection refused|got (send"
    r"|select|read) error|timeout|qmaster.*not.*(running|respond)",
    re.IGNORECASE,
)
_INELIGIBLE = "hE"  # letters of waiting jobs that are held, also by other jobs, or in error
_GONE = '*"does not exist"*'
_NEXT = "--vgrads-next--"
_QUEUES = (
    "queues=$(qconf -sql) || exit $?\n"
    'for q in $queues; do qconf -sq "$q" | grep -E "^(qname|h_rt|slots|pe_list|state) "; done\n'
)
_LIMIT_ENFORCED = "37"  # accounting(5), failed: the execution daemon killed it at h_rt


class GridEngine(Dialect):
    """Dialect of Grid Engine."""

    def submit(self, order: JobSubmission, access: SiteAccess) -> str:
        """``-w e`` rejects at submission a job that no queue could ever run; ``-R y`` reserves for
        wide jobs."""
        options = [
            "-terse",
            "-N",
            # a slot starts once: a job that ran again would find its mark and end
            order.name,
            "-r",
            "n",
            "-R",
            "y",
            "-w",
            "e",
            "-S",
            "/bin/sh",
            "-o",
            "/dev/null",
            "-j",
            "y",
            "-l",
            f"h_rt={round(order.walltime_s)}",
        ]
        if order.procs > 1:
            options += ["-pe", access.parallel_environment, str(order.procs)]
        options += ["-q", order.queue] if order.queue else []
        options += ["-A", access.account] if access.account else []
        options += ["-ar", access.reservation] if access.reservation else []
        # not quoted, since the site's shell computes the instant
        begin = f" -a {write_local_time(order.begin_in_s)}" if order.begin_in_s >= 1 else ""
        return " ".join(map(quote, ["qsub", *options, *access.options])) + begin

    def job_id(self, printed: str) -> str:
        """Parse the number on the last line; warnings may precede it."""
        return printed.strip().splitlines()[-1]

    def launch(self, spec: SlotSpec, exports: str) -> Launch:
        key = spec.environment.get(KEY, "")
        return by_file(QRSH, exports, spec.pilot, mark(spec.id), key)

    def listing(self) -> str:
        return 'qstat -xml -u "$(id -un)"'

    def jobs(self, printed: str) -> list[JobReport]:
        """Parse the waiting and running jobs; ended ones are in the accounting."""
        return [_report(element) for element in _parse(printed).iter("job_list")]

    def past(self, names: Sequence[str]) -> str:
        """Query each name: ``qacct`` accepts no list. A name without a job is no error."""
        asks = [f"qacct -j {quote(name)} 2>/dev/null" for name in names]
        return "\n".join([*asks, "true"])

    def past_jobs(self, printed: str) -> list[JobReport]:
        """Parse blocks of ``key value`` lines between double rules."""
        blocks = re.split(r"^=+$", printed, flags=re.MULTILINE)
        records = [dict(_PAIR.findall(block)) for block in blocks]
        return [_parse_ended(record) for record in records if "jobnumber" in record]

    def cancel(self, jobs: Sequence[str]) -> str:
        return ignore_errors(f"qdel {' '.join(map(quote, jobs))}", _GONE)

    def transient(self, text: str) -> bool:
        return bool(_NO_ANSWER.search(text))

    def survey(self, access: SiteAccess) -> str:
        environment = quote(access.parallel_environment)
        return (
            f"qstat -help 2>&1 | head -n 1; {_QUEUES}"
            f"echo {_NEXT}\nqconf -sp {environment} >/dev/null 2>&1 && echo environment\n"
            f"echo {_NEXT}\nqacct -b 197001010000 -slots >/dev/null 2>&1 && echo accounting\ntrue"
        )

    def surveyed(self, printed: str) -> Survey:
        described, environment, accounting = printed.split(_NEXT)
        version, _, queues = described.partition("\n")
        works, problems = ["submit, list, cancel"], []
        if "environment" in environment:
            works.append("several processors in one slot")
        else:
            problems.append(
                "the parallel environment does not exist: set access.parallel_environment to "
                "an existing one (qconf -spl)"
            )
        if "accounting" in accounting:
            works.append("history (qacct)")
        else:
            problems.append("no history: the accounting file cannot be read here")
        return Survey(
            version=version.strip(),
            queues=_parse_limits(queues),
            works=tuple(works),
            problems=tuple(problems),
        )

    def facts(self) -> str:
        return f"id -un && {_QUEUES}"

    def listed_facts(self, printed: str) -> SiteFacts:
        user, _, queues = printed.partition("\n")
        return SiteFacts(user=user, queues=_parse_limits(queues))

    def node_lists(self) -> str:
        """Not supported: queues are bound to nodes by rules, which no command expands."""
        return ""

    def listed(self, printed: str) -> tuple[QueueLimits, ...]:  # noqa: ARG002 the protocol's
        return ()

    def accounting(self, from_ago_s: float, until_ago_s: float) -> str:
        """Select lines of the accounting file by the time of the end, which newer versions write in
        milliseconds."""
        return (
            f"now=$(date +%s); from=$((now - {round(from_ago_s)})); until=$((now - "
            f"{round(until_ago_s)}))\n"
            "awk -F: -v from=$from -v until=$until '/^#/ {next} {end = $11 > 1e11 ? $11 / "
            "1000 : $11} "
            "end == 0 || (end >= from && end <= until)' "
            '"$SGE_ROOT/${SGE_CELL:-default}/common/accounting"'
        )

    @property
    def accounting_header(self) -> str:
        return ""

    def accounted(self, line: str) -> tuple[str, str] | None:
        fields = line.split(":")
        if len(fields) < 36:
            return None
        # job number, task number and submission: numbers begin again after some time
        # (accounting(5))
        return f"{fields[5]}.{fields[35]}.{fields[8]}", fields[0]

    def forecast(self, order: JobSubmission, access: SiteAccess) -> str:  # noqa: ARG002 the protocol's
        """Not supported by Grid Engine."""
        return ""

    def forecast_in_s(self, printed: str) -> float | None:  # noqa: ARG002 the protocol's
        return None

    def closures_command(self) -> str:
        """The calendars that queues name, if any do."""
        return (
            f"{NOW}; queues=$(qconf -sql) || exit $?\n"
            'for q in $queues; do qconf -sq "$q" | grep -E "^(qname|calendar) "; done\n'
            f"echo {_NEXT}\n"
            'for c in $(qconf -scall 2>/dev/null); do qconf -scal "$c"; done\ntrue'
        )

    def closures(self, printed: str, now_s: float, access: SiteAccess) -> tuple[Closure, ...]:  # noqa: ARG002 the protocol's
        """The calendar of a queue; calendars of single hosts are left aside."""
        # qconf breaks long lines by a backslash
        head, _, described = printed.replace("\\\n", " ").partition(_NEXT)
        first, _, queues = head.partition("\n")
        clock = read_clock(first, "gridengine")
        blocks: list[dict[str, str]] = []
        for key, value in _PAIR.findall(described):
            if key == "calendar_name":
                blocks.append({})
            if blocks:
                blocks[-1][key] = value
        calendars = {c.name: c for c in map(read_calendar, blocks)}
        named = [
            (block["qname"], calendars[name])
            for block in _split_queue_blocks(queues)
            if (name := block.get("calendar", "").split(",")[0]) in calendars
        ]
        unread = [f"{c.name}: {rule}" for _, c in named for rule in c.unread]
        if unread:
            raise SiteError(
                f"rules of calendars are not understood: {', '.join(unread)}",
                site="gridengine",
                transient=False,
                fix="state these windows in closed",
            )
        return find_calendar_closures(named, clock, now_s)

    def everybody(self) -> str:
        return "date +%Y-%m-%dT%H:%M:%S && qstat -xml -r -u '*'"

    def listed_jobs(self, printed: str) -> list[QueuedJob]:
        now, _, rest = printed.partition("\n")
        at = datetime.fromisoformat(now.strip())
        return [
            job
            for element in _parse(rest).iter("job_list")
            for job in [_parse_queued(element, at)] * count_tasks(element.findtext("tasks") or "")
        ]


_PAIR = re.compile(r"^(\w+)[ \t]+(.*?)[ \t]*$", re.MULTILINE)


def write_local_time(in_s: float) -> str:
    """Return the instant ``in_s`` seconds ahead by the site's own clock and zone, in the format of
    ``qsub -a``."""
    return f"\"$(date -d '+{round(in_s)} seconds' +%Y%m%d%H%M.%S)\""


def ignore_errors(command: str, pattern: str) -> str:
    """Return a command that ignores error messages that match ``pattern``, such as jobs that no
    longer exist."""
    return (
        f"said=$({command} 2>&1); code=$?\n"
        f'[ $code -eq 0 ] || case "$said" in {pattern}) code=0;; *) echo "$said" >&2;; '
        "esac\nexit $code"
    )


def _parse(text: str) -> ET.Element:
    try:
        # what a login prints may stand before the document
        return ET.fromstring(text[text.index("<") :])
    except (ET.ParseError, ValueError) as error:
        raise SiteError(
            f"qstat printed no XML: {text[:80]!r}", site="gridengine", transient=True
        ) from error


def _report(element: ET.Element) -> JobReport:
    letters = element.findtext("state", "")
    state = (
        SlotState.GRANTED
        if set(letters) & set("rtsST") and "q" not in letters
        else SlotState.QUEUED
    )
    reason = ""
    if "E" in letters:  # it never starts without help
        state, reason = SlotState.FAILED, "in error state at the site (see qstat -j)"
    return JobReport(
        job=element.findtext("JB_job_number", ""),
        name=element.findtext("JB_name", ""),
        state=state,
        reason=reason,
        ending="d" in letters,
    )


def _parse_ended(record: dict[str, str]) -> JobReport:
    failed, code = record.get("failed", "0"), record.get("exit_status", "0")
    number = failed.split()[0]
    if number == _LIMIT_ENFORCED:
        state, reason = SlotState.EXPIRED, "reached its end"
    elif number != "0":
        state, reason = SlotState.FAILED, f"failed: {failed}"
    elif code == "0":
        state, reason = SlotState.RELEASED, "the pilot ended"
    else:
        state, reason = SlotState.FAILED, f"exit code {code}"
    return JobReport(job=record["jobnumber"], name=record["jobname"], state=state, reason=reason)


def _split_queue_blocks(text: str) -> list[dict[str, str]]:
    blocks: list[dict[str, str]] = []
    for key, value in _PAIR.findall(text):
        if key == "qname":
            blocks.append({})
        if blocks:
            blocks[-1][key] = value
    return blocks


def _parse_limits(printed: str) -> tuple[QueueLimits, ...]:
    return tuple(map(_parse_queue, _split_queue_blocks(printed)))


def _parse_queue(block: dict[str, str]) -> QueueLimits:
    limit = block.get("h_rt", "INFINITY").split(",")[0]
    return QueueLimits(name=block["qname"], max_walltime_s=_parse_clock_s(limit))


def _parse_clock_s(text: str) -> float | None:
    if text == "INFINITY":
        return None
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + float(part or 0)
    return seconds


def _parse_queued(element: ET.Element, now: datetime) -> QueuedJob:
    limits = [e.text for e in element.findall("hard_request") if e.get("name") == "h_rt"]
    requested_s = float(limits[0] or -1) if limits else -1.0
    procs = int(element.findtext("slots", "1"))
    wide = element.find("requested_pe")
    # a waiting job has its processors in the request alone
    if wide is not None and (wide.text or "").isdigit():
        procs = int(wide.text or 1)
    common = {"user": element.findtext("JB_owner", ""), "procs": procs, "requested_s": requested_s}
    began = element.findtext("JAT_start_time")
    if began:
        left_s = requested_s - (now - datetime.fromisoformat(began)).total_seconds()
        queue = element.findtext("queue_name", "").partition("@")[0]
        return QueuedJob(queue=queue, left_s=max(0.0, left_s), **common)  # type: ignore[arg-type]
    submitted = element.findtext("JB_submission_time")
    waited_s = (now - datetime.fromisoformat(submitted)).total_seconds() if submitted else 0.0
    return QueuedJob(
        queue=element.findtext("hard_req_queue", ""),
        waited_s=max(0.0, waited_s),
        eligible=not set(element.findtext("state") or "") & set(_INELIGIBLE),
        **common,  # type: ignore[arg-type]
    )

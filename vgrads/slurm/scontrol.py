"""scontrol: the details of jobs and partitions, and changes of jobs.

Source: scontrol(1) of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vgrads.slurm.errors import Reply, SlurmError, command_error
from vgrads.slurm.job import Job, Partition
from vgrads.slurm.limits import parse_limit
from vgrads.slurm.text.hostlist import expand_hostlist, fold_hostlist
from vgrads.slurm.text.job_texts import JobTexts
from vgrads.slurm.text.options import SLURM_VERSION, CommandOptions, information, options, scan
from vgrads.slurm.text.scontrol_show import config_text, job_text, node_text, partition_text
from vgrads.slurm.text.selection import JobIds, parse_ids
from vgrads.slurm.times import instant_format, parse_instant

INVALID_ID = "Invalid job id specified"
FINISHED = "Job has already finished"
IS_PENDING = "Job is pending execution"
DISABLED = "Requested operation is presently disabled"
_COMMAND = CommandOptions(
    "scontrol",
    options(
        """
        all/a cluster/M= clusters= details/d federation future/F help/h hide json=? local
        oneliner/o quiet/Q sibling uid/u= usage verbose/v version/V yaml=?
        """
    ),
)
_ACTIONS = ("hold", "ping", "release", "requeue", "show", "uhold", "update", "version", "write")
_ENTITIES = (
    "config",
    "hostlist",
    "hostlistsorted",
    "hostnames",
    "jobs",
    "jobid",
    "nodes",
    "partitions",
    "reservations",
)
_JOB_ACTIONS = ("hold", "release", "requeue", "uhold")


@dataclass(frozen=True)
class LimitChange:
    """A new time limit in seconds (None: UNLIMITED), or, with a ``sign``, an addition to it."""

    seconds: float | None
    sign: int = 0


@dataclass(frozen=True)
class JobChanges:
    """What ``scontrol update`` changes of a job; None is no change."""

    limit: LimitChange | None = None
    least_limit: LimitChange | None = None
    name: str | None = None
    comment: str | None = None
    partition: str | None = None
    account: str | None = None
    dependency: str | None = None
    begin_s: float | None = None
    deadline_s: float | None = None
    requeue: bool | None = None
    array_limit: int | None = None
    priority: int | None = None


@dataclass(frozen=True)
class ControlQuery:
    """What scontrol shall do: an action (``show``, ``hold``, ``release``, ``requeue``, ``update``,
    ``write``), what it concerns, and the names or ids (all without any).

    ``show_names`` are names of partitions, nodes or hosts. ``job_name`` selects jobs by name.
    ``reply`` answers what needs no jobs.
    """

    action: str = ""
    entity: str = ""
    ids: JobIds = field(default_factory=JobIds)
    show_names: tuple[str, ...] = ()
    job_name: str = ""
    changes: JobChanges = field(default_factory=JobChanges)
    single_line: bool = False
    details: bool = False
    quiet: bool = False
    time_format: str = ""
    reply: Reply | None = None


def parse_scontrol(
    arguments: Sequence[str], now_s: float, environment: Mapping[str, str] | None = None
) -> ControlQuery:
    """Parse the command line of scontrol. Raises SlurmError with the words of scontrol."""
    variables = environment or {}
    parsed, words = scan(_COMMAND, arguments)
    names = {name for name, _ in parsed}
    reply = information(_COMMAND, parsed, "[<OPTION>] [<COMMAND>]")
    if reply is not None:
        return ControlQuery(reply=reply)
    if not words:
        raise command_error("scontrol", "commands from standard input are not supported by vgrads")
    if names & {"json", "yaml"}:
        raise command_error("scontrol", "--json and --yaml are not supported by vgrads")
    action = _find_action(words[0])
    form = {
        "single_line": "oneliner" in names,
        "details": "details" in names,
        "quiet": "quiet" in names,
        "time_format": variables.get("SLURM_TIME_FORMAT", ""),
    }
    rest = words[1:]
    if action == "version":
        return ControlQuery(reply=Reply(f"slurm-wlm {SLURM_VERSION}\n"))
    if action == "show":
        return _show(rest, variables, form)
    if action == "update":
        return _update(rest, now_s, form)
    if action in _JOB_ACTIONS:
        return _act_on_jobs(action, rest, form)
    return _other(action, rest, form)


def _find_action(word: str) -> str:
    lower = word.lower()
    if lower in _ACTIONS:
        return lower
    for action in ("release", "requeue", "show", "update", "ping", "version"):
        if len(lower) >= 3 and action.startswith(lower):
            return action
    raise SlurmError(f"invalid keyword: {word}")


def _other(action: str, words: Sequence[str], form: Mapping[str, Any]) -> ControlQuery:
    if action == "ping":
        return ControlQuery(action=action, **form)
    if len(words) < 2 or words[0].lower() != "batch_script":
        raise SlurmError(f"too few arguments for keyword:{action}")
    return ControlQuery(action, "batch_script", _parse_ids(words[1]), tuple(words[2:3]), **form)


def _show(
    words: Sequence[str], variables: Mapping[str, str], form: Mapping[str, Any]
) -> ControlQuery:
    if not words:
        raise SlurmError("too few arguments for keyword:show")
    tag, equals, value = words[0].partition("=")
    entity = next((e for e in _ENTITIES if e.startswith(tag.lower())), "") if tag else ""
    if tag.lower().startswith("jobid"):
        entity = "jobs"
    if not entity:
        raise SlurmError(f"invalid entity:{words[0]} for keyword:show ")
    names = [value, *words[1:]] if equals else list(words[1:])
    if len(names) > 1 and entity != "config":
        raise SlurmError("too many arguments for keyword:show")
    if entity.startswith("host"):
        return ControlQuery(reply=_list_hosts(entity, names, variables))
    if entity in ("jobs", "jobid"):
        return ControlQuery("show", "jobs", _format_ids(names), **form)
    return ControlQuery("show", entity, show_names=tuple(names), **form)


def _format_ids(names: Sequence[str]) -> JobIds:
    try:
        return parse_ids(names)
    except ValueError as error:
        raise SlurmError(f"scontrol_print_job error: {INVALID_ID}") from error


def _list_hosts(entity: str, names: Sequence[str], variables: Mapping[str, str]) -> Reply:
    if entity == "hostnames":
        text = names[0] if names else variables.get("SLURM_JOB_NODELIST", "")
        text = text or variables.get("SLURM_NODELIST", "")
        if not text:
            return Reply("", "scontrol: error: host list is empty\n")
        return Reply("".join(f"{name}\n" for name in expand_hostlist(text)))
    if not names:
        return Reply("", "invalid encode argument\n", 1)
    hosts = expand_hostlist(names[0])
    return Reply(fold_hostlist(sorted(hosts) if entity == "hostlistsorted" else hosts) + "\n")


def _act_on_jobs(action: str, words: Sequence[str], form: Mapping[str, Any]) -> ControlQuery:
    if not words:
        raise SlurmError(f"too few arguments for keyword:{action}")
    tag, equals, value = words[0].partition("=")
    if equals and tag.lower() in ("name", "jobname"):
        return ControlQuery(action, "jobs", job_name=value, **form)
    texts = [word.partition("=")[2] if "=" in word else word for word in words]
    return ControlQuery(action, "jobs", _parse_ids(*texts), **form)


def _parse_ids(*texts: str) -> JobIds:
    try:
        ids = parse_ids(texts)
    except ValueError as error:
        raise SlurmError(f"{INVALID_ID} for job {error}") from error
    if not ids:
        raise SlurmError(f"{INVALID_ID} for job {','.join(texts)}")
    return ids


def _update(words: Sequence[str], now_s: float, form: Mapping[str, Any]) -> ControlQuery:
    if not words:
        raise SlurmError("too few arguments for update keyword")
    pairs = list(words)
    # `update job 5 …` names the job without an equals sign
    if pairs[0].lower() in ("job", "jobid") and len(pairs) > 1:
        pairs[:2] = [f"JobId={pairs[1]}"]
    ids = JobIds()
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        lower = key.lower()
        if lower in ("job", "jobid"):
            ids = _parse_ids(value)
        elif lower in _CHANGES:
            field_name, parse = _CHANGES[lower]
            changes[field_name] = _parse_change(key, value, now_s, parse)
        elif lower in _FIXED:
            message = f"{key} of a job cannot be changed by vgrads; cancel it and submit it again"
            raise command_error("scontrol", message)
        elif lower not in _IGNORED_CHANGES:
            raise SlurmError(f"Update of this parameter is not supported: {pair}\nRequest aborted")
    if not ids:
        raise SlurmError(
            "No valid entity in update command\nInput line must include "
            '"NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"'
        )
    if len(pairs) == 1:
        raise SlurmError("No changes specified")
    return ControlQuery("update", "jobs", ids, changes=JobChanges(**changes), **form)


def _parse_change(
    key: str, value: str, now_s: float, parse: Callable[[str, float], object]
) -> object:
    try:
        return parse(value, now_s)
    except (ValueError, OverflowError) as error:
        raise command_error("scontrol", f"Invalid {key} value") from error


def _limit(value: str, _now_s: float) -> LimitChange:
    sign = {"+": 1, "-": -1}.get(value[:1], 0)
    # no subtraction, but another word for UNLIMITED
    if value == "-1":
        return LimitChange(None)
    return LimitChange(parse_limit(value[1:] if sign else value), sign)


def _parse_text(value: str, _now_s: float) -> str:
    return value


def _parse_number(value: str, _now_s: float) -> int:
    return int(value)


def _parse_truth(value: str, _now_s: float) -> bool:
    if value.lower() not in ("0", "1", "yes", "no"):
        raise ValueError(value)
    return value.lower() in ("1", "yes")


_CHANGES: dict[str, tuple[str, Callable[[str, float], Any]]] = {
    "timelimit": ("limit", _limit),
    "jobname": ("name", _parse_text),
    "name": ("name", _parse_text),
    "comment": ("comment", _parse_text),
    "partition": ("partition", _parse_text),
    "partitionname": ("partition", _parse_text),
    "account": ("account", _parse_text),
    "dependency": ("dependency", _parse_text),
    "timemin": ("least_limit", _limit),
    "starttime": ("begin_s", parse_instant),
    "eligibletime": ("begin_s", parse_instant),
    "earlieststarttime": ("begin_s", parse_instant),
    "deadline": ("deadline_s", parse_instant),
    "requeue": ("requeue", _parse_truth),
    "arraytaskthrottle": ("array_limit", _parse_number),
    "priority": ("priority", _parse_number),
}
_FIXED = [
    "cpuspertask",
    "features",
    "gres",
    "mincpusnode",
    "minmemorycpu",
    "minmemorynode",
    "numcpus",
    "numnodes",
    "numtasks",
    "reqcores",
    "stderr",
    "stdout",
    "workdir",
]
"""What a submitted job needs does not change."""
_IGNORED_CHANGES = ("nice", "qos", "wckey", "mailtype", "mailuser", "admincomment")


@dataclass(frozen=True)
class ClusterView:
    """What ``scontrol show`` reads besides jobs: partitions, values of the configuration that
    differ from the built-in ones, and the host of the service."""

    partitions: Sequence[Partition] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    host: str = "localhost"
    cluster: str = "vgrads"


def render_scontrol(
    query: ControlQuery, jobs: Iterable[Job], view: ClusterView, now_s: float
) -> Reply:
    """Return the reply to ``show`` and ``ping``; ``jobs`` are those that may be shown."""
    if query.reply is not None:
        return query.reply
    if query.action == "ping":
        return Reply(f"Slurmctld(primary) at {view.host} is UP\n")
    if query.entity == "config":
        return Reply(config_text(view.config, view.cluster, view.host, now_s))
    if query.entity == "reservations":
        return Reply("No reservations in the system\n")
    if query.entity == "partitions":
        return _show_partitions(query, view)
    if query.entity == "nodes":
        return _show_nodes(query, view)
    return _show_jobs(query, list(jobs), view, now_s)


def _show_jobs(query: ControlQuery, jobs: list[Job], view: ClusterView, now_s: float) -> Reply:
    shown = query.ids.select(jobs) if query.ids else jobs
    if not shown:
        return _report_no_job(query, jobs)
    shown.sort(key=lambda j: (j.array_job_id, not j.pending_indices, j.array_index or 0))
    texts = JobTexts(now_s, instant_format(query.time_format), view.cluster)
    return Reply("".join(job_text(job, texts, query.single_line, query.details) for job in shown))


def _report_no_job(query: ControlQuery, jobs: list[Job]) -> Reply:
    if not query.ids:
        return Reply("No jobs in the system\n")
    array_exists = any(job.array_job_id in query.ids.numbers for job in jobs)
    if query.ids.tasks and array_exists:
        return Reply(f"Job {query.ids.texts[0]} not found\n", "", 1)
    return Reply("", "" if query.quiet else f"slurm_load_jobs error: {INVALID_ID}\n", 1)


def _show_partitions(query: ControlQuery, view: ClusterView) -> Reply:
    shown = [p for p in view.partitions if not query.show_names or p.name in query.show_names]
    if not shown:
        name = query.show_names[0] if query.show_names else ""
        return Reply(
            f"Partition {name} not found\n" if name else "No partitions in the system\n",
            "",
            1 if name else 0,
        )
    return Reply("".join(partition_text(p, query.single_line) for p in shown))


def _show_nodes(query: ControlQuery, view: ClusterView) -> Reply:
    requested = expand_hostlist(",".join(query.show_names))
    homes: dict[str, list[Partition]] = {}
    for partition in view.partitions:
        for node in partition.nodes:
            homes.setdefault(node, []).append(partition)
    names = requested or sorted(homes)
    out, code = "", 0
    for name in names:
        if name in homes:
            out += node_text(name, homes[name], query.single_line)
        else:
            out, code = out + f"Node {name} not found\n", 1
    return Reply(out or "No nodes in the system\n", "", code)


def control_reply(query: ControlQuery, problems: Iterable[tuple[str, str]]) -> Reply:
    """Return the reply to ``hold``, ``release``, ``requeue``, ``update`` for jobs that could not be
    changed: their ids as shown, each with INVALID_ID, FINISHED or another of Slurm's messages."""
    lines: list[str] = []
    last = ""
    for shown_id, message in problems:
        lines.append(f"{message} for job {shown_id}")
        last = message
    if lines and query.action in ("hold", "release", "uhold"):
        lines.append(f"slurm_suspend error: {last}")
    err = "" if query.quiet else "".join(f"{line}\n" for line in lines)
    return Reply("", err, 1 if lines else 0)

"""squeue: a list of jobs.

Source: squeue(1) of Slurm 22.05.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vgrads.slurm.errors import Reply, SlurmError, command_error
from vgrads.slurm.job import Job, JobState
from vgrads.slurm.text.formats import TableFormat, long_format, short_format
from vgrads.slurm.text.hostlist import expand_hostlist
from vgrads.slurm.text.job_texts import JobTexts
from vgrads.slurm.text.options import CommandOptions, information, listed, options, scan
from vgrads.slurm.text.selection import OTHER_STATES, JobIds, parse_ids, parse_states, task_rows
from vgrads.slurm.text.squeue_fields import JobField, squeue_fields
from vgrads.slurm.times import instant_format

_SHORT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_DEFAULT_SORT, _START_SORT = "P,t,-p", "S,i"
_USAGE = """\
Usage: squeue [-A account] [--clusters names] [-i seconds] [--job jobid]
              [-n name] [-o format] [-p partitions] [--qos qos]
              [--reservation reservation] [--sort fields] [--start]
              [--step step_id] [-t states] [-u user_name] [--usage]
              [-L licenses] [-w nodes] [--federation] [--local] [--sibling]
\t      [-ahjlrsv]
"""
_COMMAND = CommandOptions(
    "squeue",
    options(
        """
        account/A= all/a array/r array-unique clusters/M= federation format/o= Format/O= help
        hide iterate/i= job/j= jobs/j= json licenses/L= local long/l me name/n= noconvert
        nodelist/w= nodes/w= noheader/h only-job-state partition/p= priority/P qos/q=
        reservation/R= sibling sort/S= start state/t= states/t= steps/s=? usage user/u= users/u=
        verbose/v version/V yaml
        """
    ),
)
_ALIASES = {"jobs": "job", "states": "state", "users": "user", "nodes": "nodelist"}
_UNSUPPORTED = ("json", "yaml", "steps", "iterate")
_VARIABLES = {
    "SQUEUE_ACCOUNT": "account",
    "SQUEUE_ARRAY": "array",
    "SQUEUE_FORMAT": "format",
    "SQUEUE_FORMAT2": "Format",
    "SQUEUE_NAMES": "name",
    "SQUEUE_PARTITION": "partition",
    "SQUEUE_QOS": "qos",
    "SQUEUE_SORT": "sort",
    "SQUEUE_STATES": "state",
    "SQUEUE_USERS": "user",
}
_DEFAULT_STATES = frozenset(s for s in JobState if s.is_pending or s.is_active)


@dataclass(frozen=True)
class SqueueQuery:
    """Which jobs squeue lists, and how. Empty selections select everything; ``states`` None is all.

    ``reply`` answers ``--version`` and ``--help``.
    """

    ids: JobIds = field(default_factory=JobIds)
    has_ids: bool = False
    names: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    states: frozenset[JobState] | None = _DEFAULT_STATES
    partitions: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    format: str = _SHORT
    is_long_format: bool = False
    header: bool = True
    array: bool = False
    start: bool = False
    long: bool = False
    sort: str = _DEFAULT_SORT
    time_format: str = ""
    reply: Reply | None = None

    def selects(self, job: Job) -> bool:
        """Whether a job is listed, apart from its id."""
        return (
            (self.states is None or job.state in self.states)
            and (not self.users or job.user in self.users or str(job.uid) in self.users)
            and (not self.names or job.name in self.names)
            and (not self.partitions or job.partition in self.partitions)
            and (not self.accounts or job.account in self.accounts)
            and (not self.nodes or bool(self.nodes & set(expand_hostlist(job.node_list))))
            and (not self.start or job.state.is_pending)
        )


def parse_squeue(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, user: str = ""
) -> SqueueQuery:
    """Parse the command line of squeue; ``user`` is who calls, for ``--me``.

    Raises SlurmError with the words of squeue.
    """
    variables = environment or {}
    parsed, words = scan(_COMMAND, arguments)
    reply = information(_COMMAND, parsed, "[OPTIONS]")
    if reply is not None:
        return SqueueQuery(reply=reply)
    if words:
        error = f"squeue: error: Unrecognized option: {words[0]}\n"
        return SqueueQuery(reply=Reply(_USAGE, error, 1))
    options = {_ALIASES.get(name, name): value or "" for name, value in parsed}
    for name in _UNSUPPORTED:
        if name in options:
            raise command_error("squeue", f"--{name} is not supported by vgrads")
    if "long" in options and ("format" in options or "Format" in options):
        raise SlurmError(
            "squeue: fatal: Options -o(--format) and -l(--long) are mutually exclusive. "
            "Please remove one and retry."
        )
    # a format on the command line replaces all formats of the environment
    has_format = bool({"format", "Format", "long", "start"} & options.keys())
    for name, option in _VARIABLES.items():
        is_format = option in ("format", "Format")
        if name in variables and option not in options and not (is_format and has_format):
            options[option] = variables[name]
    return _make_query(options, variables, user)


def _make_query(options: Mapping[str, str], variables: Mapping[str, str], user: str) -> SqueueQuery:
    users = set(listed(options.get("user")))
    if "me" in options:
        users = {user}
    return SqueueQuery(
        ids=_parse_ids(options.get("job", "")),
        has_ids=bool(options.get("job")),
        names=frozenset(listed(options.get("name"))),
        users=frozenset(users),
        states=_parse_states(options.get("state")),
        partitions=frozenset(listed(options.get("partition"))),
        accounts=frozenset(listed(options.get("account"))),
        nodes=frozenset(expand_hostlist(options.get("nodelist", ""))),
        format=_format(options),
        is_long_format="Format" in options,
        header="noheader" not in options,
        array="array" in options or "array-unique" in options,
        start="start" in options,
        long="long" in options,
        sort=_sort(options),
        time_format=variables.get("SLURM_TIME_FORMAT", ""),
    )


def _format(options: Mapping[str, str]) -> str:
    if "Format" in options:
        return options["Format"]
    if "format" in options:
        return options["format"]
    if "start" in options:
        return _START
    return _LONG if "long" in options else _SHORT


def _sort(options: Mapping[str, str]) -> str:
    sort = options.get("sort", _START_SORT if "start" in options else _DEFAULT_SORT)
    letters, _ = squeue_fields(JobTexts(0.0))
    for part in listed(sort):
        for letter in part.lstrip("+-#"):
            if letter not in letters:
                raise command_error("squeue", f"Invalid sort specification: {letter}")
    return sort


def _parse_ids(text: str) -> JobIds:
    try:
        return parse_ids([text])
    except ValueError as error:
        raise command_error("squeue", f"Invalid job id: {error}") from error


def _parse_states(text: str | None) -> frozenset[JobState] | None:
    if not text:
        return _DEFAULT_STATES
    try:
        return parse_states(text)
    except ValueError as error:
        word = next(w for w in listed(text) if w.upper() == str(error))
        valid = ",".join(
            [s.value for s in JobState if s is not JobState.REQUEUED]
            + ["RESIZING", "RESV_DEL_HOLD", "REQUEUED"]
            + [name for name in OTHER_STATES if name not in ("RESIZING", "RESV_DEL_HOLD")]
        )
        raise command_error(
            "squeue", f"Invalid job state specified: {word}", f"Valid job states include: {valid}\n"
        ) from error


def render_squeue(
    query: SqueueQuery, jobs: Iterable[Job], now_s: float, cluster: str = "vgrads"
) -> Reply:
    """Return the list. ``jobs`` are those that may be selected; where ids were stated, they
    contain each existing job of these ids in whatever state."""
    if query.reply is not None:
        return query.reply
    candidates = list(jobs)
    if query.has_ids:
        candidates = query.ids.select(candidates)
        if not candidates and len(query.ids.texts) == 1:
            return Reply("", "slurm_load_jobs error: Invalid job id specified\n", 1)
    rows = [job for job in candidates if query.selects(job)]
    if query.array:
        rows = [row for job in rows for row in task_rows(job)]
    texts = JobTexts(now_s, instant_format(query.time_format), cluster)
    table = _make_table(query, texts)
    err = "".join(
        f"squeue: error: Invalid job format specification: {name}\n" for name in table.problems
    )
    date = time.strftime("%a %b %d %H:%M:%S %Y\n", time.localtime(now_s)) if query.long else ""
    out = table.render(_sort_rows(rows, query.sort, texts), header=query.header)
    return Reply((date if query.header else "") + out, err)


def _make_table(query: SqueueQuery, texts: JobTexts) -> TableFormat[Job]:
    letters, names = squeue_fields(texts)
    if query.is_long_format:
        return long_format(query.format, names)
    return short_format(query.format, letters)


def _sort_rows(rows: list[Job], sort: str, texts: JobTexts) -> list[Job]:
    letters, _ = squeue_fields(texts)
    rows = sorted(rows, key=_make_id_key)
    # the last key first: each sort keeps the order of what is equal by it
    for part in reversed(listed(sort)):
        descending = part.startswith("-")
        for letter in reversed(part.lstrip("+-#")):
            rows.sort(key=_make_key(letter, letters[letter], texts), reverse=descending)
    return rows


def _make_id_key(job: Job) -> tuple[int, bool, int]:
    return job.array_job_id, bool(job.pending_indices), job.array_index or 0


def _make_key(letter: str, job_field: JobField, texts: JobTexts) -> Callable[[Job], Any]:
    """Return what a field is sorted by: numbers as numbers, unknown instants last."""
    late = float("inf")

    def or_late(value: float | None) -> float:
        return late if value is None else value

    keys: dict[str, Callable[[Job], Any]] = {
        "i": _make_id_key,
        "A": lambda j: j.id,
        "C": lambda j: j.cpus,
        "D": lambda j: j.nodes,
        "e": lambda j: or_late(texts.end_s(j)),
        "l": lambda j: or_late(j.limit_s),
        "m": lambda j: j.memory_mib,
        "M": lambda j: j.elapsed_s(texts.now_s),
        "p": texts.priority,
        "Q": texts.priority,
        "S": lambda j: or_late(texts.start_s(j)),
        "U": lambda j: j.uid,
        "V": lambda j: j.submit_s,
    }
    return keys.get(letter, job_field.text)

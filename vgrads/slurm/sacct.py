"""sacct: the accounting of jobs.

Source: sacct(1) of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from vgrads.slurm.errors import Reply, SlurmError, command_error
from vgrads.slurm.job import Job, JobState
from vgrads.slurm.text.hostlist import expand_hostlist
from vgrads.slurm.text.job_texts import JobTexts
from vgrads.slurm.text.options import (
    CommandOptions,
    Parsed,
    information,
    listed,
    options,
    scan,
)
from vgrads.slurm.text.padded import PARSABLE, PARSABLE2, PaddedColumn, PaddedTable, split_width
from vgrads.slurm.text.sacct_fields import (
    BRIEF,
    DEFAULT,
    FIELDS,
    LONG,
    AccountingField,
    AccountingRow,
)
from vgrads.slurm.text.selection import JobIds, parse_ids, parse_states, task_rows
from vgrads.slurm.times import instant_format, parse_instant

_COMMAND = CommandOptions(
    "sacct",
    options(
        """
        accounts/A= allclusters/L allocations/X allusers/a array associations/x= batch-script/B
        brief/b cluster/M= clusters/M= completion/c constraints/C= delimiter= duplicates/D
        endtime/E= env-vars federation file/f= flags/F= format/o= gid/g= group/g= help/h
        helpformat/e jobs/j= json=? local long/l name= ncpus/I= nnodes/i= nodelist/N= noconvert
        noheader/n parsable/p parsable2/P partition/r= qos/q= reason/R= starttime/S= state/s=
        timelimit-max/K= timelimit-min/k= truncate/T uid/u= units= usage use-local-uid user/u=
        verbose/v version/V wckeys/W= whole-hetjob=? yaml=?
        """
    ),
    hint=False,
)
_ALIASES = {"cluster": "clusters", "uid": "user", "gid": "group"}
_UNSUPPORTED = ("json", "yaml", "batch-script", "env-vars", "file")
_PER_LINE = 4


@dataclass(frozen=True)
class ShownField:
    """A field and its width (negative: on the left)."""

    field: AccountingField
    width: int

    @property
    def column(self) -> PaddedColumn:
        """The column of the field."""
        left = self.field.left if self.width == self.field.width else self.width < 0
        return PaddedColumn(self.field.name, abs(self.width), left)


@dataclass(frozen=True)
class AccountingQuery:
    """Which jobs sacct lists, and how. Empty selections select everything; ``states`` None is all.

    Jobs that were eligible before ``end_s`` and had not ended before ``start_s`` are listed; with
    ids, times are not looked at unless they are stated. ``duplicates``: also the earlier attempts
    of requeued jobs. ``reply`` answers ``--version``, ``--help`` and ``--helpformat``.
    """

    ids: JobIds = field(default_factory=JobIds)
    has_ids: bool = False
    names: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    states: frozenset[JobState] | None = None
    start_s: float | None = None
    end_s: float | None = None
    fields: tuple[ShownField, ...] = ()
    allocations: bool = False
    array: bool = False
    duplicates: bool = False
    header: bool = True
    style: str = ""
    delimiter: str = "|"
    units: str = ""
    time_format: str = ""
    reply: Reply | None = None

    def selects(self, job: Job) -> bool:
        """Whether a job is listed, apart from its id."""
        return (
            (self.states is None or job.state in self.states)
            and (not self.names or job.name in self.names)
            and (not self.users or job.user in self.users or str(job.uid) in self.users)
            and (not self.accounts or job.account in self.accounts)
            and (not self.partitions or job.partition in self.partitions)
            and (not self.nodes or bool(self.nodes & set(expand_hostlist(job.node_list))))
            and self._in_window(job)
        )

    def _in_window(self, job: Job) -> bool:
        if self.start_s is None or self.end_s is None:
            return True
        begin_s = job.start_s if job.eligible_s is None else job.eligible_s
        if begin_s is None or begin_s > self.end_s:
            return False
        return job.end_s is None or not job.state.is_terminal or job.end_s >= self.start_s


def parse_sacct(
    arguments: Sequence[str],
    now_s: float,
    environment: Mapping[str, str] | None = None,
) -> AccountingQuery:
    """Parse the command line of sacct. Raises SlurmError with the words of sacct."""
    variables = environment or {}
    parsed, words = scan(_COMMAND, arguments)
    reply = information(_COMMAND, parsed, "[OPTION]")
    options = {_ALIASES.get(name, name): value or "" for name, value in parsed}
    if reply is None and "helpformat" in options:
        reply = Reply(_format_help())
    if reply is not None:
        return AccountingQuery(reply=reply)
    if words:
        raise SlurmError(
            "\n".join(["sacct: error: Unknown arguments:", *(f"sacct: error:  {w}" for w in words)])
        )
    if "completion" in options:
        raise SlurmError("Slurm job completion is disabled")
    for name in _UNSUPPORTED:
        if name in options:
            raise command_error("sacct", f"--{name} is not supported by vgrads")
    return _make_query(options, parsed, variables, now_s)


def _make_query(
    options: Mapping[str, str], parsed: Parsed, variables: Mapping[str, str], now_s: float
) -> AccountingQuery:
    texts = [value or "" for name, value in parsed if name == "jobs"]
    style = PARSABLE if "parsable" in options else ""
    start_s, end_s = _find_window(options, now_s)
    return AccountingQuery(
        ids=_parse_ids(texts),
        has_ids=any(texts),
        names=frozenset(listed(options.get("name"))),
        users=frozenset() if "allusers" in options else frozenset(listed(options.get("user"))),
        accounts=frozenset(listed(options.get("accounts"))),
        partitions=frozenset(listed(options.get("partition"))),
        nodes=frozenset(expand_hostlist(options.get("nodelist", ""))),
        states=_parse_states(options.get("state")),
        start_s=start_s,
        end_s=end_s,
        fields=_parse_fields(_format(options, parsed, variables)),
        allocations="allocations" in options,
        array="array" in options,
        duplicates="duplicates" in options,
        header="noheader" not in options,
        style=PARSABLE2 if "parsable2" in options else style,
        delimiter=options.get("delimiter", "|"),
        units=options.get("units", "").upper()[:1],
        time_format=variables.get("SLURM_TIME_FORMAT", ""),
    )


def _format(options: Mapping[str, str], parsed: Parsed, variables: Mapping[str, str]) -> str:
    formats = [value or "" for name, value in parsed if name == "format"]
    if formats:
        return ",".join(formats)
    if "long" in options:
        return LONG
    return BRIEF if "brief" in options else variables.get("SACCT_FORMAT", DEFAULT)


def _parse_fields(text: str) -> tuple[ShownField, ...]:
    result: list[ShownField] = []
    for word in listed(text):
        if word.lower() == "all":
            result += [ShownField(every, every.width) for every in FIELDS]
            continue
        try:
            name, width = split_width(word)
        except ValueError as error:
            raise _make_invalid_field(word) from error
        # a field may be named by its beginning, but its whole name goes first
        exact = [f for f in FIELDS if f.name.lower() == name.lower()]
        matches = exact or [f for f in FIELDS if f.name.lower().startswith(name.lower())]
        if not matches:
            raise _make_invalid_field(name)
        result.append(ShownField(matches[0], width or matches[0].width))
    return tuple(result)


def _make_invalid_field(name: str) -> SlurmError:
    return command_error("sacct", f'Invalid field requested: "{name}"')


def _parse_ids(texts: Sequence[str]) -> JobIds:
    try:
        return parse_ids(texts)
    except ValueError as error:
        raise SlurmError(f"sacct: fatal: Bad job/step specified: {error}") from error


def _parse_states(text: str | None) -> frozenset[JobState] | None:
    if not text:
        return None
    try:
        return parse_states(text)
    except ValueError as error:
        word = next(w for w in listed(text) if w.upper() == str(error))
        raise SlurmError(f"sacct: fatal: unrecognized job state value '{word}'") from error


def _find_window(options: Mapping[str, str], now_s: float) -> tuple[float | None, float | None]:
    """Return the window of the jobs: today by default, now with states, all with ids."""
    has_times = "starttime" in options or "endtime" in options
    if "jobs" in options and not has_times:
        return None, None
    end_s = parse_instant(options["endtime"], now_s, past=True) if "endtime" in options else now_s
    if "starttime" in options:
        start_s = parse_instant(options["starttime"], now_s, past=True)
    elif "jobs" in options:
        start_s = 0.0
    elif "state" in options:
        start_s = end_s
    else:
        start_s = datetime.fromtimestamp(now_s).replace(hour=0, minute=0, second=0).timestamp()
    if start_s > end_s:
        formatted = instant_format("")
        raise command_error(
            "sacct",
            f"Start time ({formatted(start_s, '')}) requested is after end time "
            f"({formatted(end_s, '')}).",
        )
    return start_s, end_s


def _format_help() -> str:
    names = [f"{f.name:<19}" for f in FIELDS]
    rows = [names[n : n + _PER_LINE] for n in range(0, len(names), _PER_LINE)]
    return "".join(" ".join(row) + "\n" for row in rows)


def render_sacct(
    query: AccountingQuery, jobs: Iterable[Job], now_s: float, cluster: str = "vgrads"
) -> Reply:
    """Return the list; ``jobs`` are those that may be selected."""
    if query.reply is not None:
        return query.reply
    candidates = query.ids.select(jobs) if query.has_ids else list(jobs)
    selected = [job for job in candidates if query.selects(job)]
    if query.array:
        selected = [row for job in selected for row in task_rows(job)]
    selected.sort(key=lambda job: (bool(job.pending_indices), job.id, job.restarts))
    texts = JobTexts(now_s, instant_format(query.time_format), cluster)
    rows = [row for job in selected for row in _make_rows(query, job, texts)]
    table = PaddedTable(
        [shown.column for shown in query.fields], query.style, query.delimiter, query.header
    )
    return Reply(table.render([s.field.text(row) for s in query.fields] for row in rows))


def _make_rows(query: AccountingQuery, job: Job, texts: JobTexts) -> list[AccountingRow]:
    allocation = AccountingRow(job, False, texts, query.units)
    step = AccountingRow(job, True, texts, query.units)
    if query.ids.steps and len(query.ids.steps) == len(query.ids.texts):
        return [step] if step.has_started else []
    if query.allocations or not allocation.has_started:
        return [allocation]
    return [allocation, step]

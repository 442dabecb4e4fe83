"""sinfo: partitions and their nodes.

Source: sinfo(1) of Slurm 22.05.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vgrads.slurm.errors import Reply, command_error
from vgrads.slurm.job import Partition
from vgrads.slurm.limits import format_short
from vgrads.slurm.text.formats import (
    TableColumn,
    TableField,
    TableFormat,
    long_format,
    short_format,
)
from vgrads.slurm.text.hostlist import expand_hostlist, fold_hostlist
from vgrads.slurm.text.options import (
    SLURM_VERSION,
    CommandOptions,
    information,
    listed,
    options,
    scan,
)

_COMMAND = CommandOptions(
    "sinfo",
    options(
        """
        all/a clusters/M= cluster= dead/d exact/e federation format/o= Format/O= future/F help
        hide iterate/i= json=? list-reasons/R local long/l Node/N nodes/n= noconvert noheader/h
        partition/p= reservation/T responding/r sort/S= state/t= states= summarize/s usage
        verbose/v version/V yaml=?
        """
    ),
)
_UNSUPPORTED = ("json", "yaml", "iterate")
_STATES = {
    "idle": ("idle", "idle"),
    "mix": ("mixed", "mix"),
    "mixed": ("mixed", "mix"),
    "alloc": ("allocated", "alloc"),
    "allocated": ("allocated", "alloc"),
    "down": ("down", "down"),
}
_OTHER_STATES = (
    "unknown",
    "future",
    "drain",
    "drained",
    "draining",
    "no_respond",
    "reserved",
    "cloud",
    "completing",
    "comp",
    "drng",
    "fail",
    "maint",
    "planned",
    "plnd",
    "powered_down",
    "powering_down",
    "powering_up",
    "reboot",
    "resv",
    "all",
)
_LONGEST_NAME = 9


@dataclass(frozen=True)
class NodesRow:
    """Nodes of a partition that are in one state."""

    partition: Partition
    state: str
    nodes: tuple[str, ...]

    def cores(self) -> tuple[int, int, int, int]:
        """Return allocated, idle, other and all cores."""
        total = self.partition.cores_per_node * len(self.nodes)
        busy = sum(self.partition.busy(node) for node in self.nodes)
        if self.state == "down":
            return 0, 0, total, total
        return busy, total - busy, 0, total

    def counts(self) -> tuple[int, int, int, int]:
        """Return allocated, idle, other and all nodes."""
        states = [self.partition.node_state(node) for node in self.nodes]
        busy = sum(state in ("mixed", "allocated") for state in states)
        idle = states.count("idle")
        return busy, idle, len(states) - busy - idle, len(states)


@dataclass(frozen=True)
class InfoQuery:
    """Which partitions and nodes sinfo lists, and how. Empty selections select everything.

    ``reply`` answers ``--version`` and ``--help``.
    """

    partitions: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    format: str = ""
    is_long_format: bool = False
    header: bool = True
    by_node: bool = False
    long: bool = False
    summarize: bool = False
    reasons: bool = False
    reply: Reply | None = None


def parse_sinfo(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> InfoQuery:
    """Parse the command line of sinfo. Raises SlurmError with the words of sinfo."""
    variables = environment or {}
    parsed, _ = scan(_COMMAND, arguments)
    reply = information(_COMMAND, parsed, "[OPTIONS]")
    if reply is not None:
        return InfoQuery(reply=reply)
    options = {name: value or "" for name, value in parsed}
    for name in _UNSUPPORTED:
        if name in options:
            raise command_error("sinfo", f"--{name} is not supported by vgrads")
    # an option that chooses the columns is stronger than the variable
    if not {"format", "Format", "long", "summarize", "Node", "list-reasons"} & options.keys():
        options |= {"format": variables["SINFO_FORMAT"]} if "SINFO_FORMAT" in variables else {}
    partition = options.get("partition", variables.get("SINFO_PARTITION", ""))
    return InfoQuery(
        partitions=frozenset(listed(partition)),
        nodes=frozenset(expand_hostlist(options.get("nodes", ""))),
        states=_parse_states(options.get("state", options.get("states", ""))),
        format=options.get("Format", options.get("format", "")),
        is_long_format="Format" in options,
        header="noheader" not in options,
        by_node="Node" in options,
        long="long" in options,
        summarize="summarize" in options,
        reasons="list-reasons" in options,
    )


def _parse_states(text: str) -> frozenset[str]:
    result: set[str] = set()
    for word in listed(text):
        lower = word.lower()
        if lower in _STATES:
            result.add(_STATES[lower][0])
        elif lower not in _OTHER_STATES:
            valid = "unknown,down,idle,allocated,mixed," + ",".join(_OTHER_STATES[1:])
            raise command_error("sinfo", f'Bad state string: "{word}"', f"valid states: {valid}")
        else:
            result.add(lower)
    return frozenset() if "all" in result else frozenset(result)


def render_sinfo(query: InfoQuery, partitions: Sequence[Partition], now_s: float) -> Reply:
    """Return the list."""
    if query.reply is not None:
        return query.reply
    # no node here is down with a reason: the list is empty
    if query.reasons:
        title = "REASON               USER      TIMESTAMP           NODELIST\n"
        return Reply(title if query.header else "")
    table = _make_table(query, partitions)
    problems = "".join(
        f"sinfo: error: Invalid job format specification: {name}\n"
        if query.is_long_format
        else f"Invalid node format specification: {name}\n"
        for name in table.problems
    )
    rows = [row for p in partitions for row in _make_rows(query, p)]
    if query.by_node:
        rows.sort(key=lambda row: row.nodes)
    date = time.strftime("%a %b %d %H:%M:%S %Y\n", time.localtime(now_s))
    out = table.render(rows, header=query.header)
    return Reply((date if query.long and query.header else "") + out, problems)


def _make_rows(query: InfoQuery, partition: Partition) -> list[NodesRow]:
    if query.partitions and partition.name not in query.partitions:
        return []
    nodes = [node for node in partition.nodes if not query.nodes or node in query.nodes]
    states = {node: partition.node_state(node) for node in nodes}
    nodes = [node for node in nodes if not query.states or states[node] in query.states]
    if query.by_node:
        return [NodesRow(partition, states[node], (node,)) for node in nodes]
    if not nodes or not _splits_by_state(query):
        state = states[nodes[0]] if nodes else "n/a"
        return [NodesRow(partition, state, tuple(nodes))]
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(states[node], []).append(node)
    return [NodesRow(partition, state, tuple(names)) for state, names in groups.items()]


def _splits_by_state(query: InfoQuery) -> bool:
    if query.is_long_format:
        return "state" in query.format.lower()
    if query.format:
        # nodes in different states share a row where no column shows the state
        return any(f.field in (_FIELDS["t"], _FIELDS["T"]) for f in _make_columns(query.format))
    return not query.summarize


def _make_columns(text: str) -> tuple[TableColumn[NodesRow], ...]:
    return short_format(text, _FIELDS).columns


def _make_table(query: InfoQuery, partitions: Sequence[Partition]) -> TableFormat[NodesRow]:
    if query.is_long_format:
        return long_format(query.format, _NAMES)
    if query.format:
        return short_format(query.format, _FIELDS)
    width = max([_LONGEST_NAME, *(len(_name(p)) for p in partitions)])
    nodes = max([_LONGEST_NAME, *(len(node) for p in partitions for node in p.nodes)])
    if query.summarize:
        text = f"%{width}P %.5a %.10l %.16F %N"
    elif query.by_node and query.long:
        text = f"%{nodes}N %.6D %.{width}P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
    elif query.by_node:
        text = f"%{nodes}N %.6D %.{width}P %6t"
    elif query.long:
        text = f"%{width}P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
    else:
        text = f"%{width}P %.5a %.10l %.6D %.6t %N"
    return short_format(text, _FIELDS)


def _name(partition: Partition) -> str:
    return partition.name + ("*" if partition.default else "")


def _limit(seconds: float | None) -> str:
    return "infinite" if seconds is None else format_short(seconds)


def _format_default_limit(row: NodesRow) -> str:
    partition = row.partition
    return _limit(
        partition.limit_s if partition.default_limit_s is None else partition.default_limit_s
    )


def _make_slashes(*numbers: int) -> str:
    return "/".join(map(str, numbers))


def _shorten_state(row: NodesRow) -> str:
    return _STATES.get(row.state, (row.state, row.state))[1]


def _make_constant(text: str) -> Callable[[NodesRow], str]:
    return lambda row: text  # noqa: ARG005 a field of every row


NodeField = TableField[NodesRow]
_FIELDS: dict[str, NodeField] = {
    "a": NodeField("AVAIL", lambda r: r.partition.state),
    "A": NodeField("NODES(A/I)", lambda r: _make_slashes(*r.counts()[:2])),
    "B": NodeField("MAX_CPUS_PER_NODE", _make_constant("UNLIMITED")),
    "c": NodeField("CPUS", lambda r: str(r.partition.cores_per_node)),
    "C": NodeField("CPUS(A/I/O/T)", lambda r: _make_slashes(*r.cores())),
    "d": NodeField("TMP_DISK", _make_constant("0")),
    "D": NodeField("NODES", lambda r: str(len(r.nodes))),
    "e": NodeField("FREE_MEM", _make_constant("N/A")),
    "E": NodeField("REASON", _make_constant("none")),
    "f": NodeField("AVAIL_FEATURES", _make_constant("(null)")),
    "b": NodeField("ACTIVE_FEATURES", _make_constant("(null)")),
    "F": NodeField("NODES(A/I/O/T)", lambda r: _make_slashes(*r.counts())),
    "g": NodeField("GROUPS", _make_constant("all")),
    "G": NodeField("GRES", _make_constant("(null)")),
    "h": NodeField("OVERSUBSCRIBE", _make_constant("NO")),
    "I": NodeField("PRIO_JOB_FACTOR", _make_constant("1")),
    "l": NodeField("TIMELIMIT", lambda r: _limit(r.partition.limit_s)),
    "L": NodeField("DEFAULTTIME", _format_default_limit),
    "m": NodeField("MEMORY", lambda r: str(r.partition.memory_mib)),
    "n": NodeField("HOSTNAMES", lambda r: ",".join(r.nodes)),
    "N": NodeField("NODELIST", lambda r: fold_hostlist(r.nodes)),
    "o": NodeField("NODE_ADDR", lambda r: ",".join(r.nodes)),
    "O": NodeField("CPU_LOAD", _make_constant("N/A")),
    "p": NodeField("PRIO_TIER", lambda r: str(r.partition.priority)),
    "P": NodeField("PARTITION", lambda r: _name(r.partition)),
    "r": NodeField("ROOT", _make_constant("no")),
    "R": NodeField("PARTITION", lambda r: r.partition.name),
    "s": NodeField("JOB_SIZE", _make_constant("1")),
    "S": NodeField("ALLOCNODES", _make_constant("all")),
    "t": NodeField("STATE", _shorten_state),
    "T": NodeField("STATE", lambda r: r.state),
    "u": NodeField("USER", _make_constant("Unknown")),
    "v": NodeField("VERSION", _make_constant(SLURM_VERSION)),
    "w": NodeField("WEIGHT", _make_constant("1")),
    "X": NodeField("SOCKETS", _make_constant("1")),
    "Y": NodeField("CORES", lambda r: str(r.partition.cores_per_node)),
    "z": NodeField("S:C:T", lambda r: f"1:{r.partition.cores_per_node}:1"),
    "Z": NodeField("THREADS", _make_constant("1")),
}
_NAMES = {
    "available": _FIELDS["a"],
    "cpus": _FIELDS["c"],
    "cpusstate": _FIELDS["C"],
    "cpusload": _FIELDS["O"],
    "cores": _FIELDS["Y"],
    "defaulttime": _FIELDS["L"],
    "features": _FIELDS["f"],
    "features_act": _FIELDS["b"],
    "freemem": _FIELDS["e"],
    "gres": _FIELDS["G"],
    "memory": _FIELDS["m"],
    "nodeai": _FIELDS["A"],
    "nodeaiot": _FIELDS["F"],
    "nodehost": _FIELDS["n"],
    "nodelist": _FIELDS["N"],
    "nodes": _FIELDS["D"],
    "partition": _FIELDS["P"],
    "partitionname": _FIELDS["R"],
    "prioritytier": _FIELDS["p"],
    "size": _FIELDS["s"],
    "socketcorethread": _FIELDS["z"],
    "statecompact": _FIELDS["t"],
    "statelong": _FIELDS["T"],
    "time": _FIELDS["l"],
    "version": _FIELDS["v"],
    "weight": _FIELDS["w"],
}

"""HTCondor DAGMan ``.dag`` files, with the files that they name: splices, sub-DAGs, inclusions and
submit descriptions.

Run times come from the set's ``runtimes``, by node, submit description or program. docs/formats.md
has what each command means here; what would change the graph and cannot be represented is refused
with its line. https://htcondor.readthedocs.io/en/latest/automated-workflows/dagman-reference.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path

from vgrads.kernel.errors import InputError, NothingToDo
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.condor_submit import SubmitDescription, parse_submit
from vgrads.workflows.formats.dagman_commands import (
    NODES,
    NOT_HONOURED,
    UNUSED,
    DagCommand,
    parse_count,
    read_commands,
    take_words,
    unquote,
)
from vgrads.workflows.formats.dagman_nodes import DagNode, NodeTasks
from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.runtimes import Runtimes
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import PLAIN, ErrorRule, TaskEnvironment

_BEFORE = (*NODES, "SUBDAG", "SPLICE", "SUBMIT_DESCRIPTION", "REJECT")
"""Commands that define what others name, wherever they stand."""
_ALL = "ALL_NODES"
_VARIABLE = re.compile(r"""([^\s="']+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\S+)""")
_MOST_RETRIES = 100  # of a rule (vgrads/workflows/task_environment_document.py)
_GENERATED = ".condor.sub"


@dataclass(slots=True)
class _Group:
    """The nodes of one file, or of a single node: those without parents and without children in
    it, and the pins of a splice by number."""

    first: Sequence[str] = ()
    last: Sequence[str] = ()
    names: list[str] = field(default_factory=list)
    pins: dict[str, dict[int, list[str]]] | None = None
    is_splice: bool = False
    is_subdag: bool = False


@dataclass(slots=True)
class _Scope:
    """Names in one file: nodes, splices and sub-DAGs (None for those that are not run), submit
    descriptions, and the whole name of its FINAL node."""

    prefix: str
    folder: Path
    whole: _Group = field(default_factory=_Group)
    groups: dict[str, _Group | None] = field(default_factory=dict)
    descriptions: dict[str, SubmitDescription] = field(default_factory=dict)
    final: str | None = None


def read_dagman(text: str, runtimes: Runtimes, reading: Reading) -> Workflow:
    """Read the workflow of a ``.dag`` file; InputError names the wrong line."""
    where = str(reading.path)
    reader = _DagReader(runtimes, reading)
    reader.read_whole(text, reading.path, reading.path.parent, "")
    tasks = reader.tasks()
    # DAGMan itself would continue from its newest rescue file
    for file in sorted(reading.path.parent.glob(f"{escape(reading.path.name)}.rescue???"))[-1:]:
        reading.list("not used", file.name)
    if not tasks and reader.completed:
        raise NothingToDo("nothing to do: all nodes are done", where=where)
    return make_workflow(reading.path.stem, tasks, where=where)


def read_dag_tasks(
    text: str, path: Path, prefix: str, runtimes: Runtimes, reading: Reading
) -> list[Task]:
    """Return the tasks of a ``.dag`` file that is a part of another workflow; none if all nodes
    are done. Their names begin with ``prefix``."""
    reader = _DagReader(runtimes, reading)
    reader.read_whole(text, path, path.parent, prefix)
    return reader.tasks()


class _DagGraph:
    """The nodes of one workflow by their whole names, and the commands on them."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.nodes: dict[str, DagNode] = {}
        self._edges = 0

    def add(self, node: DagNode) -> _Group:
        """Add a node, and return it as a group; InputError for one too many, or a second one."""
        self._reading.limit(len(self.nodes) + 1, 0, node.place)
        if node.name in self.nodes:
            raise InputError(f"two nodes are named '{node.name}'", where=node.place)
        self.nodes[node.name] = node
        return _Group([node.name], [node.name], [node.name])

    def apply(self, statement: DagCommand, scope: _Scope) -> None:
        """Read a command on nodes that are defined."""
        command = statement.command
        read = {
            "PARENT": self._depend,
            "WEAK": self._depend,
            "CONNECT": self._connect_pins,
            "PIN_IN": self._add_pin,
            "PIN_OUT": self._add_pin,
            "VARS": self._set_variables,
            "RETRY": self._set_retries,
            "DONE": self._mark_done,
        }.get(command)
        if read is not None:
            read(statement, scope)
        elif command == "SCRIPT":
            self._reading.count("script", "are", "not run")
        elif command in NOT_HONOURED:
            self._reading.list("not honoured", command.replace("ABORT_DAG_ON", "ABORT-DAG-ON"))
        elif command in UNUSED:
            self._reading.list("not used", command)
        else:
            raise InputError(
                f"'{command}' is not a known command of DAGMan",
                where=statement.place,
                fix=(
                    "if this is a DAGMan file at all, remove the line, unless it changes the graph"
                ),
            )

    def _mark_done(self, statement: DagCommand, scope: _Scope) -> None:
        (name,) = take_words(statement, 1, "DONE node")
        for own in self._named(name, scope, statement.place).names:
            self.nodes[own].done = True

    def _add_pin(self, statement: DagCommand, scope: _Scope) -> None:
        name, number = take_words(statement, 2, f"{statement.command} node number")
        scope.whole.pins = scope.whole.pins or {"PIN_IN": {}, "PIN_OUT": {}}
        pins = scope.whole.pins[statement.command]
        nodes = self._named(name, scope, statement.place)
        pins.setdefault(parse_count(number, statement.place), []).extend(nodes.first)

    def _depend(self, statement: DagCommand, scope: _Scope) -> None:
        words, place = list(statement.words), statement.place
        if statement.command == "WEAK":
            if not words or words.pop(0).upper() != "PARENT":
                raise InputError("write WEAK PARENT name… CHILD name…", where=place)
            self._reading.count("weak dependency", "are", "read as ordinary ones")
        upper = [word.upper() for word in words]
        if "CHILD" not in upper or upper.index("CHILD") in (0, len(words) - 1):
            raise InputError("write PARENT name… CHILD name…", where=place)
        middle = upper.index("CHILD")
        parents = [n for word in words[:middle] for n in self._named(word, scope, place).last]
        children = [
            n for word in words[middle + 1 :] for n in self._named(word, scope, place).first
        ]
        self.connect(parents, children, place)

    def connect(self, parents: Sequence[str], children: Sequence[str], place: str) -> None:
        """Let each of some nodes wait for all others."""
        self._edges += len(parents) * len(children)
        self._reading.limit(0, self._edges, place)
        for child in children:
            self.nodes[child].parents.update(dict.fromkeys(parents))

    def _connect_pins(self, statement: DagCommand, scope: _Scope) -> None:
        names, place = take_words(statement, 2, "CONNECT splice splice"), statement.place
        upper, lower = (self._named(name, scope, place) for name in names)
        for parents, children in _match_pins(upper, lower, names, place):
            self.connect(parents, children, place)
        loose = [name for name in lower.first if not self.nodes[name].parents]
        if loose:
            raise InputError(f"'{loose[0]}' has no parent and no PIN_IN", where=place)

    def _set_variables(self, statement: DagCommand, scope: _Scope) -> None:
        name, rest = (*statement.rest.split(maxsplit=1), "", "")[:2]
        keyword, after = (*rest.split(maxsplit=1), "", "")[:2]
        appends = keyword.upper() == "APPEND"
        if keyword.upper() in ("APPEND", "PREPEND"):
            rest = after
        pairs = {m[1].lower(): unquote(m[2]) for m in _VARIABLE.finditer(rest)}
        if not pairs:
            raise InputError('write VARS node name="value" …', where=statement.place)
        for node in self._each(name, scope, statement.place):
            if appends:
                node.after = (node.after or {}) | pairs
            else:
                node.before = (node.before or {}) | pairs

    def _set_retries(self, statement: DagCommand, scope: _Scope) -> None:
        environment = _read_retries(statement, self._reading)
        name = statement.words[0]
        group = scope.groups.get(name)
        if group is not None and (group.is_subdag or scope.prefix + name == scope.final):
            self._reading.list("not honoured", f"RETRY of {name}")
            return
        for node in self._each(name, scope, statement.place):
            node.environment = environment

    def _named(self, name: str, scope: _Scope, place: str) -> _Group:
        """Return a node, splice or sub-DAG by its name in a file."""
        if name in scope.groups:
            group = scope.groups[name]
            if group is None or scope.prefix + name == scope.final:
                raise InputError(
                    f"'{name}' is a FINAL, SERVICE or PROVISIONER node, which has no dependencies",
                    where=place,
                )
            return group
        whole = scope.prefix + name
        if whole in self.nodes:  # a node within a splice
            return _Group([whole], [whole], [whole])
        raise InputError(f"'{name}' is the name of no node", where=place)

    def _each(self, name: str, scope: _Scope, place: str) -> Iterator[DagNode]:
        """Return the nodes that a command is for; of all nodes, those of this file itself."""
        if name.upper() == _ALL:
            groups = scope.groups.items()
            # nodes within splices have longer names
            names = [n for own, g in groups if g for n in g.names if n == scope.prefix + own]
        elif scope.groups.get(name, _Group()) is None:
            names = []
        elif scope.prefix + name == scope.final:
            names = [scope.final]
        else:
            group = self._named(name, scope, place)
            if group.is_splice:
                raise InputError(f"'{name}' is a splice, not a node", where=place)
            names = [] if group.is_subdag else group.names
        for each in names:
            yield self.nodes[each]


class _DagReader:
    """Reads one workflow from its files; all nodes by their whole names."""

    def __init__(self, runtimes: Runtimes, reading: Reading) -> None:
        self._runtimes, self._reading = runtimes, reading
        self._graph = _DagGraph(reading)
        self.completed = False
        self._statements: dict[Path, list[DagCommand]] = {}

    def tasks(self) -> list[Task]:
        """Return the tasks of all nodes, in the order of the files."""
        return list(NodeTasks(self._runtimes, self._reading).tasks(self._graph.nodes))

    def read_whole(self, text: str, path: Path, folder: Path, prefix: str) -> _Group:
        """Read a DAG that is run by itself: the outermost, or a sub-DAG. Completed nodes are left
        out, and its FINAL node follows all others."""
        group, final = self._read(text, path, folder, prefix)
        done = {name for name in group.names if self._graph.nodes[name].done}
        group.names = [name for name in group.names if name not in done]
        for name in group.names:
            node = self._graph.nodes[name]
            node.parents = {p: None for p in node.parents if p not in done}
        for name in done:
            del self._graph.nodes[name]
        if done:
            self.completed = True
            self._reading.count("node", "are", "done and left out", len(done))
        _find_ends(group, self._graph.nodes)
        if final is not None:
            self._graph.connect(group.last, [final], self._graph.nodes[final].place)
            group.names.append(final)
            group.first, group.last = group.first or [final], [final]
            self._reading.list("run last, and not after a failure", final)
        return group

    def _read(self, text: str, path: Path, folder: Path, prefix: str) -> tuple[_Group, str | None]:
        """Read the nodes and dependencies of a file, and return its FINAL node."""
        # a file may be spliced many times
        if path not in self._statements:
            self._statements[path] = list(read_commands(text, str(path)))
        statements = [
            inner
            for statement in self._statements[path]
            for inner in _include_file(statement, folder, self._reading)
        ]
        scope = _Scope(prefix, folder)
        for statement in statements:
            # definitions first: a command may name what is defined further down
            if statement.command in _BEFORE:
                self._define(statement, scope)
        for statement in statements:
            if statement.command not in _BEFORE:
                self._graph.apply(statement, scope)
        _find_ends(scope.whole, self._graph.nodes)
        return scope.whole, scope.final

    def _define(self, statement: DagCommand, scope: _Scope) -> None:
        """Read a command that defines a node, a group of nodes, or a submit description."""
        command, place = statement.command, statement.place
        if command == "REJECT":
            raise InputError("is marked with REJECT: DAGMan does not run it", where=place)
        if command == "SUBMIT_DESCRIPTION":
            if statement.inline is None:
                raise InputError("write SUBMIT-DESCRIPTION name { … }", where=place)
            scope.descriptions[statement.words[0]] = parse_submit(statement.inline, "", place)
            return
        node = _read_node(statement, scope)
        if command in ("SERVICE", "PROVISIONER"):
            scope.groups[node.own] = None
            self._reading.count(f"{command.lower()} node", "are", "not run")
            return
        group = scope.groups[node.own] = self._group_of(node, command, scope)
        if command != "FINAL":
            scope.whole.names += group.names
        elif scope.final is not None or len(group.names) != 1:
            raise InputError("FINAL must be one node", where=place)
        else:
            scope.final = group.names[0]

    def _group_of(self, node: DagNode, command: str, scope: _Scope) -> _Group:
        """Return the nodes that one node stands for: those of its file, or itself."""
        # a submit file of this name is what condor_submit_dag writes for a .dag file
        is_file = command == "SUBDAG" or node.submit.endswith(_GENERATED)
        if command == "SPLICE" or (is_file and not (node.noop or node.done)):
            return self._follow(node, command == "SPLICE")
        if node.description is None:
            node.description = scope.descriptions.get(node.submit)
        return self._graph.add(node)

    def _follow(self, node: DagNode, splice: bool) -> _Group:
        """Read the file of a splice or a sub-DAG into the same workflow."""
        source, prefix = node.submit.removesuffix(_GENERATED), f"{node.name}+"
        path = node.folder / source
        with self._reading.follow(path, node.place) as text:
            if splice:
                group, final = self._read(text, path, node.folder, prefix)
                if final is not None:
                    raise InputError(
                        f"the spliced file {source} has a FINAL node, which DAGMan does not permit",
                        where=node.place,
                    )
            else:
                group = self.read_whole(text, path, node.folder, prefix)
        if not splice and not group.names:  # what follows it waits for what precedes it
            node.noop = True
            group = self._graph.add(node)
        group.is_splice, group.is_subdag = splice, not splice
        return group


def _include_file(statement: DagCommand, folder: Path, reading: Reading) -> Iterator[DagCommand]:
    """Return a command, or those of the file that it includes."""
    if statement.command != "INCLUDE":
        yield statement
        return
    (name,) = take_words(statement, 1, "INCLUDE file")
    path = folder / name
    with reading.follow(path, statement.place) as text:
        for inner in read_commands(text, str(path)):
            yield from _include_file(inner, folder, reading)


def _match_pins(
    upper: _Group, lower: _Group, names: Sequence[str], place: str
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Return the nodes of two splices that pins connect."""
    if not upper.is_splice or not lower.is_splice:
        raise InputError("CONNECT joins splices only", where=place)
    outs, ins = (upper.pins or {}).get("PIN_OUT", {}), (lower.pins or {}).get("PIN_IN", {})
    if not outs or sorted(outs) != sorted(ins) or sorted(outs) != list(range(1, len(outs) + 1)):
        raise InputError(
            f"the pins of '{names[0]}' (PIN_OUT {sorted(outs)}) and '{names[1]}' (PIN_IN "
            f"{sorted(ins)}) do not match",
            where=place,
        )
    return ((nodes, ins[number]) for number, nodes in outs.items())


def _read_retries(statement: DagCommand, reading: Reading) -> TaskEnvironment:
    """Return the rules for failures that a RETRY command states."""
    words, place = statement.words, statement.place
    says_unless = len(words) == 4 and words[2].upper().replace("_", "-") == "UNLESS-EXIT"
    if len(words) != 2 and not says_unless:
        raise InputError("write RETRY node number [UNLESS-EXIT number]", where=place)
    retries = parse_count(words[1], place)
    if not retries:
        return PLAIN
    rules = [ErrorRule(retries=min(retries, _MOST_RETRIES))]
    if retries > _MOST_RETRIES:
        reading.say(f"RETRY {retries} is read as {_MOST_RETRIES}")
    if says_unless and words[3].isdecimal() and 0 < int(words[3]) < 256:
        # the first rule that fits a failure counts
        rules.insert(0, ErrorRule(exits=(int(words[3]),), retries=0))
    elif says_unless:
        reading.list("not honoured", f"UNLESS-EXIT {words[3]}")
    return TaskEnvironment(errors=tuple(rules))


def _read_node(statement: DagCommand, scope: _Scope) -> DagNode:
    """Read the command of a node, a splice or a sub-DAG."""
    command, words, place = statement.command, list(statement.words), statement.place
    if command == "SUBDAG" and (not words or words.pop(0).upper() != "EXTERNAL"):
        raise InputError("write SUBDAG EXTERNAL name file", where=place)
    if len(words) < 2:
        what = "file" if command in ("SUBDAG", "SPLICE") else "submit description"
        raise InputError(f"{command} needs a name and a {what}", where=place)
    name = words[0]
    if name in scope.groups or name.upper() in ("PARENT", "CHILD", _ALL):
        raise InputError(f"'{name}' is defined already, or a reserved word", where=place)
    node = DagNode(scope.prefix + name, name, place, scope.folder, words[1])
    if statement.inline is not None:
        node.description = parse_submit(statement.inline, "", place)
    _read_options(node, words[2:], command)
    return node


def _read_options(node: DagNode, words: Iterable[str], command: str) -> None:
    """Read DIR, NOOP and DONE after a node's submit description."""
    left = iter(words)
    for word in left:
        option = word.upper()
        if option == "DIR":
            folder = next(left, "")
            if not folder:
                raise InputError("DIR names no folder", where=node.place)
            node.folder /= folder
        elif option in ("NOOP", "DONE") and command != "SPLICE":
            node.noop, node.done = node.noop or option == "NOOP", node.done or option == "DONE"
        else:
            raise InputError(f"'{word}' is not an option of {command}", where=node.place)
    if command == "FINAL":
        node.done = False  # as DAGMan, which warns


def _find_ends(group: _Group, nodes: Mapping[str, DagNode]) -> None:
    """Find the nodes of a group without parents, and those without children."""
    with_children = {parent for name in group.names for parent in nodes[name].parents}
    group.first = [name for name in group.names if not nodes[name].parents]
    group.last = [name for name in group.names if name not in with_children]

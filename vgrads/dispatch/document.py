"""A bag as a user writes it: a command template and its parameters, or a list of commands
(docs/dispatch.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from vgrads.bags.bag import TASK, Axis, BagSpec, Listed, TaskCommands, Template, split_template
from vgrads.dispatch.axes import MOST_TASKS, expand_range, read_table
from vgrads.dispatch.functions_document import VALUE, FunctionsDocument
from vgrads.dispatch.goal_document import GoalDocument
from vgrads.dispatch.parameters import FileLines, FileRows, GrowingCommands, plain
from vgrads.dispatch.templates import PARAMETER, check_template
from vgrads.kernel.documents import (
    Document,
    NotNegative,
    Seconds,
    Variable,
    as_value_error,
    load_mapping,
    validate,
)
from vgrads.kernel.errors import InputError
from vgrads.kernel.problems import Sourced
from vgrads.kernel.units import format_count, parse_duration
from vgrads.kernel.user_files import read_user_file
from vgrads.policies.policy import SLOTS, Policy, read_policy

OPEN = "commands.ndjson"
"""File in the folder of an open bag: the commands received so far, each as a JSON string on a line.
"""
_MOST_LOOKED_AT = 1_000_000


SILENCE_S, LEAST_SILENCE_S = 600.0, 5.0


class RangeDocument(Document):
    """``start``, ``stop`` (excluded), ``step``."""

    range: Annotated[tuple[int | float, ...], Field(min_length=1, max_length=3)]

    @field_validator("range", mode="before")
    @classmethod
    def _list(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            # the value of 'range: 5' or of a wrong type is turned into an example that would be
            # accepted
            return value
        stop = value if isinstance(value, int | float) else 10
        raise ValueError(
            f"must be a list, e.g. [{stop}] for 0, 1, … below {stop}, or [start, stop, step]"
        )


class LinesDocument(Document):
    """A file with one value per line."""

    lines: Annotated[str, Field(min_length=1)]


Value = Annotated[str, Field(strict=True), StringConstraints(strip_whitespace=False)] | float | int


def _find_kind(parameter: object) -> str:
    """Return which form of a parameter is meant, so that errors concern that form alone."""
    if isinstance(parameter, dict):
        return "[range]" if "range" in parameter else "[lines]"
    if isinstance(parameter, RangeDocument):
        return "[range]"
    return "[lines]" if isinstance(parameter, LinesDocument) else "[list]"


Parameter = Annotated[
    Annotated[tuple[Value, ...], Tag("[list]")]
    | Annotated[RangeDocument, Tag("[range]")]
    | Annotated[LinesDocument, Tag("[lines]")],
    Discriminator(_find_kind),
]


class HostsDocument(Document):
    """Number of nodes, how they are requested and when they are released. ``procs``: of one node;
    ``longest``: of a request.

    ``guests``: ad-hoc agents may join (``vgrads bags invite BAG``), they are at the site ``guest``;
    ``idle``: idle time after which a node is released; ``patience``: for ``release: look-ahead``,
    how many idle seconds of a node a second of waiting is worth.
    """

    most: Annotated[int, Field(ge=1, le=100_000)] = 32
    least: Annotated[int, Field(ge=0, le=100_000)] = 0
    procs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    longest: str | float = 3600.0
    idle: str | float = 60.0
    acquire: str = "all-at-once"
    release: str = "distributed"
    guests: bool = False
    patience: Annotated[float, Field(ge=0, le=1e6)] = 3.0

    @field_validator("longest", "idle")
    @classmethod
    def _duration(cls, value: str | float) -> float:
        return as_value_error(lambda: parse_duration(value, ""))


class BagDocument(GoalDocument):
    """A bag of tasks. ``silence``: an open bag is closed when its client has sent nothing for this
    long; default: ten minutes at a service, else never."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f/]+$")]
    command: str | None = None
    commands: tuple[str, ...] | None = None
    commands_file: str | None = None
    parameters: Mapping[str, Parameter] = {}
    table: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    procs: Annotated[int, Field(ge=1, le=100_000)] = 1
    memory_mib: NotNegative = 0.0
    runtime_s: Seconds | None = None
    limit: str | float | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    owner: Annotated[str, Field(max_length=200)] = ""
    account: Annotated[int, Field(ge=0, lt=2**31)] = 0
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    sites: tuple[str, ...] = ()
    hosts: HostsDocument = HostsDocument()
    env: Mapping[str, str] = {}
    pass_env: Annotated[tuple[Variable, ...], Field(max_length=100)] = ()
    output_bytes: Annotated[int, Field(ge=0, le=2**20)] = 4096
    open: bool = False
    functions: FunctionsDocument | None = None
    silence: str | float | None = None
    policy: str | Mapping[str, str | int | float | bool] | None = None
    policy_file: str | None = None
    copies: Literal["never", "learned"] = "never"
    most_copies: Annotated[int, Field(ge=2, le=16)] = 4
    tail_below: Annotated[int, Field(ge=0, le=10**9)] | None = None
    tail_latched: bool = True
    failover: tuple[str, ...] = ()

    @field_validator("env")
    @classmethod
    def _env(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name in value:
            if not PARAMETER.fullmatch(name) or name.startswith("VGRADS_"):
                raise ValueError(f"'{name}' cannot be set for tasks")
        return value

    @field_validator("silence")
    @classmethod
    def _silence(cls, value: str | float | None) -> float | None:
        silence_s = None if value is None else as_value_error(lambda: parse_duration(value, ""))
        if silence_s is not None and silence_s < LEAST_SILENCE_S:
            raise ValueError(f"must be at least {LEAST_SILENCE_S:g} s")
        return silence_s

    @field_validator("limit")
    @classmethod
    def _duration(cls, value: str | float | None) -> float | None:
        return None if value is None else as_value_error(lambda: parse_duration(value, ""))

    @field_validator("inputs", "outputs")
    @classmethod
    def _inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not name or name.startswith("/") or ".." in Path(name).parts:
                raise ValueError(f"'{name}' is not inside the bag's folder")
        return value

    @model_validator(mode="after")
    def _check_source(self) -> BagDocument:
        values = [self.command, self.commands, self.commands_file]
        if self.functions and (not self.open or self.inputs or self.outputs):
            raise ValueError("'functions' need 'open: true', without 'inputs' and 'outputs'")
        if self.open and values != [None, None, None]:
            raise ValueError("the commands of an open bag are submitted later, one by one")
        if not self.open and sum(source is not None for source in values) != 1:
            raise ValueError("give one of 'command', 'commands' and 'commands_file'")
        if self.command is None and (self.parameters or self.table):
            raise ValueError("'parameters' and 'table' need a 'command'")
        if self.policy is not None and self.policy_file is not None:
            raise ValueError("give 'policy' or 'policy_file', not both")
        if self.sites and not set(self.failover) <= set(self.sites):
            raise ValueError("'failover' names a site that is not among 'sites'")
        for name in self.parameters:
            if not PARAMETER.fullmatch(name) or name == TASK:
                raise ValueError(f"'{name}' cannot be the name of a parameter")
        return self


def load_bag(path: Path, changes: Mapping[str, Any] | None = None) -> tuple[BagDocument, BagSpec]:
    """Read the bag in a YAML or JSON file; ``changes``: fields that are stated elsewhere instead.
    Raise InputError with the field, the file or the line."""
    written = restore_written_parameters(load_mapping(path))
    if changes and isinstance(written, Sourced):
        written = written.replaced(**changes)
    elif changes:
        written = {**written, **changes}
    document = validate(BagDocument, written, str(path))
    try:
        return document, build_bag(document, path.resolve().parent)
    except InputError as error:
        raise error.within(str(path)) from None


def restore_written_parameters(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document with the original text of parameter values, where it is available."""
    parameters = document.get("parameters")
    if not isinstance(document, Sourced) or not isinstance(parameters, dict):
        return document
    written = document.as_written("parameters")
    fields = {
        name: _format_as_written(
            values, written.get(str(name)) if isinstance(written, dict) else None
        )
        for name, values in parameters.items()
    }
    return document.replaced(parameters=fields)


def _format_as_written(values: object, written: object) -> Any:
    if not isinstance(values, list) or not isinstance(written, list):
        return values
    if len(written) != len(values) or any(value is None for value in values):
        return values
    return [
        {True: "true", False: "false"}[text] if isinstance(text, bool) else text for text in written
    ]


def find_missing_bag_inputs(bag: BagSpec, folder: Path) -> list[str]:
    """Return inputs of a bag that are not files in a folder, each once: of the first million
    tasks."""
    used: dict[str, bool] = {}
    differ = any(name for text in bag.inputs for _, name, _ in split_template(text))
    # without a placeholder all tasks read the same files
    for task in range(min(len(bag.commands), _MOST_LOOKED_AT if differ else 1)):
        for name in bag.commands.filled(bag.inputs, task):
            if name not in used:
                used[name] = (folder / name).is_file()
    return [name for name, present in used.items() if not present]


def refuse_missing_inputs(bag: BagSpec, folder: Path) -> None:
    """Raise InputError with the name where an input of a bag does not exist."""
    missing = find_missing_bag_inputs(bag, folder)
    if missing:
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        names = ", ".join(f"'{name}'" for name in missing[:3])
        raise InputError(
            f"no such file: {names}{more}",
            where="inputs",
            fix=f"inputs are files in the folder of the bag, {folder}",
        )


class _Lists:
    """Reads lists of values from files, and notes what is left out there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.notes: list[str] = []

    def read(self, name: str, where: str) -> FileLines:
        """Read the values of a file. Raise InputError with the line."""
        lines = FileLines(self._folder / name, where)
        if lines.ignored:
            count = format_count(lines.ignored, "line")
            self.notes.append(f"{name}: {count} without a value left out (blank, or a # comment)")
        return lines


def build_bag(document: BagDocument, folder: Path) -> BagSpec:
    """Build the bag of a document; its files are searched in ``folder``."""
    lists = _Lists(folder)
    commands = _read_commands(document, folder, lists)
    if not len(commands) and not document.open:
        raise InputError(
            "has no tasks", fix="give parameters, commands, or a file that is not empty"
        )
    if document.at_least is not None and document.at_least > len(commands) and not document.open:
        raise InputError(
            f"is {document.at_least:,}, the bag has {format_count(len(commands), 'task')}",
            where="at_least",
        )
    if len(commands) > MOST_TASKS:
        raise InputError(
            f"has {format_count(len(commands), 'task')}; at most {MOST_TASKS:,} are accepted"
        )
    _check_files(document, commands)
    return BagSpec(
        name=document.name,
        commands=commands,
        owner=document.owner,
        weight=document.weight,
        procs=document.procs,
        memory_mib=document.memory_mib,
        limit_s=float(document.limit or 0.0),
        retries=document.retries,
        estimate_s=document.runtime_s,
        deadline_s=document.deadline_s,
        goal=document.goal,
        sites=document.sites,
        inputs=document.inputs,
        outputs=(VALUE,) if document.functions else document.outputs,
        env=dict(document.env),
        pass_env=document.pass_env,
        output_bytes=document.output_bytes,
        policy=_read_policy(document, folder),
        learns=document.copies == "learned",
        most_replicas=document.most_copies,
        tail_below=document.tail_below,
        tail_latched=document.tail_latched,
        failover=document.failover,
        account=document.account,
        python=document.functions.python if document.functions else None,
        notes=tuple(lists.notes),
    )


def _read_policy(document: BagDocument, folder: Path) -> Policy | None:
    policy = None
    if document.policy is not None:
        policy = read_policy(document.policy, "policy")
    elif document.policy_file is not None:
        try:
            text = _read_text(folder / document.policy_file)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot be read: {reason}", where="policy_file") from error
        policy = read_policy(text, document.policy_file)
    if policy is not None and not any(map(policy.has, SLOTS)):
        raise InputError("is empty", where="policy", fix=f"give at least one of {', '.join(SLOTS)}")
    if (
        policy is not None
        and document.copies == "learned"
        and policy.has("ReplicationRequirements")
    ):
        raise InputError(
            "is learned, but the policy has ReplicationRequirements too",
            where="copies",
            fix="remove one of them",
        )
    return policy


def _read_text(path: Path) -> str:
    """Return a file's text without the byte order mark that some editors add; anything but a file
    (a pipe never ends) is rejected."""
    return read_user_file(path).decode("utf-8-sig")


def _read_commands(document: BagDocument, folder: Path, lists: _Lists) -> TaskCommands:
    if document.open:
        return Listed(GrowingCommands(folder / OPEN))
    if document.commands is not None:
        return Listed(document.commands)
    if document.commands_file is not None:
        return Listed(lists.read(document.commands_file, "commands_file"))
    axes = ([read_table(folder / document.table)] if document.table else []) + [
        _read_axis(name, parameter, lists) for name, parameter in document.parameters.items()
    ]
    names = [name for axis in axes for name in axis.names]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"is given twice: '{name}'", where="parameters")
    template = Template(document.command or "", tuple(axes))
    check_template(template.text, names, "command")
    for field in ("inputs", "outputs"):
        for text in getattr(document, field):
            check_template(text, names, field)
    return template


def _check_files(document: BagDocument, commands: TaskCommands) -> None:
    for text in document.outputs:
        if len(commands) > 1 and not any(name for _, name, _ in split_template(text)):
            raise InputError(
                f"every task would write '{text}'",
                where="outputs",
                fix="put {task} or a parameter into its name",
            )


def _read_axis(name: str, values: Any, lists: _Lists) -> Axis:
    where = f"parameters.{name}"
    if isinstance(values, LinesDocument):
        return Axis((name,), FileRows(lists.read(values.lines, where)))
    if isinstance(values, RangeDocument):
        return Axis((name,), expand_range(values.range, where))
    return Axis((name,), [(plain(value),) for value in values])

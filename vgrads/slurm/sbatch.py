"""A submission: the arguments of sbatch, ``#SBATCH`` lines and input variables, as one record.

Sources: sbatch(1). An option of the command line is stronger than one of the environment, which
is stronger than one of the script.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.slurm.arrays import ArraySpec
from vgrads.slurm.dependencies import Dependency
from vgrads.slurm.environment import Export
from vgrads.slurm.errors import Reply, SlurmError, command_error
from vgrads.slurm.text.options import CommandOptions, Parsed, information, listed, scan
from vgrads.slurm.text.sbatch_options import (
    ALIASES,
    ALTERNATIVES,
    IGNORED,
    OPTIONS,
    VARIABLES,
)
from vgrads.slurm.text.sbatch_values import Chosen, SignalRequest
from vgrads.slurm.text.script import check_script, script_lines, wrapped
from vgrads.slurm.times import format_instant

UNKNOWN_OPTION = 1
"""Exit status after an option that sbatch does not have (Slurm 22.05 itself: 255)."""
DEFAULT_MAX_ARRAY_SIZE = 1_000_001


@dataclass(frozen=True)
class Arguments:
    """The command line: options in order, the script and its arguments, or the wrapped command.

    ``script`` is a path, ``-`` for standard input, or None with ``wrap``. ``reply`` answers
    ``--version`` and ``--help``; nothing is submitted then. ``ignored`` are names of options that
    the environment lists in VGRADS_SLURM_IGNORE.
    """

    options: tuple[tuple[str, str | None], ...]
    script: str | None
    script_arguments: tuple[str, ...] = ()
    wrap: str | None = None
    reply: Reply | None = None
    ignored: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether the command line states an option."""
        return any(option == name for option, _ in self.options)

    @property
    def partition(self) -> str | None:
        """The partition of the command line, before the script is read."""
        values = [value for name, value in self.options if name == "partition"]
        return values[-1] if values else None


@dataclass(frozen=True)
class BatchSubmission:
    """A batch job as it was requested. Times are Unix seconds, durations seconds, memory MiB.

    ``memory_mib`` is for the whole job; None if unset, 0 for all memory of a node. ``limit_s`` is
    None where no limit was stated and where it is UNLIMITED (``unlimited`` tells them apart).
    ``least_limit_s`` (``--time-min``) counts for the deadline alone.
    Patterns of files are as stated, None for the default. ``requeue`` is None if unset.
    ``command`` is the path of the script and its arguments, empty for a wrapped command.
    """

    script: str
    name: str
    folder: str
    script_arguments: tuple[str, ...] = ()
    command: str = ""
    partition: str = ""
    account: str = ""
    tasks: int = 1
    cpus_per_task: int = 1
    nodes: int = 1
    memory_mib: int | None = None
    memory_per_cpu_mib: int | None = None
    limit_s: float | None = None
    unlimited: bool = False
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    open_mode: str = ""
    export: Export = field(default_factory=Export)
    hold: bool = False
    requeue: bool | None = None
    signal: SignalRequest | None = None
    array: ArraySpec | None = None
    dependency: Dependency = field(default_factory=Dependency)
    kill_on_invalid_dependency: bool | None = None
    comment: str = ""
    exclusive: bool = False
    deadline_s: float | None = None
    least_limit_s: float | None = None
    begin_s: float | None = None
    test_only: bool = False
    parsable: bool = False
    quiet: bool = False
    verbose: bool = False
    wait: bool = False

    @property
    def cpus(self) -> int:
        """Processors of all tasks."""
        return self.tasks * self.cpus_per_task


@dataclass(frozen=True)
class SubmissionContext:
    """Where and when a job is submitted: folder, instant, and the largest index of arrays + 1."""

    folder: str
    now_s: float
    max_array_size: int = DEFAULT_MAX_ARRAY_SIZE


def parse_arguments(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> Arguments:
    """Parse the command line of sbatch; of the environment VGRADS_SLURM_IGNORE is used.

    Raises SlurmError with the words of sbatch.
    """
    ignored = frozenset(listed((environment or {}).get("VGRADS_SLURM_IGNORE")))
    command = _make_command(ignored)
    parsed, words = scan(command, arguments)
    reply = information(command, parsed, "[OPTIONS...] script [args...]")
    chosen = dict(parsed)
    wrap = chosen.get("wrap")
    # a colon separates the components of a heterogeneous job
    if reply is None and ":" in words[:1]:
        raise command_error("sbatch", "heterogeneous jobs are not supported")
    if wrap is not None and words:
        raise command_error("sbatch", "Script arguments not permitted with --wrap option")
    script = None if wrap is not None else (words[0] if words else "-")
    return Arguments(tuple(parsed), script, tuple(words[1:]), wrap, reply, ignored)


def batch_submission(
    arguments: Arguments,
    script: str,
    environment: Mapping[str, str],
    context: SubmissionContext,
) -> BatchSubmission:
    """Return what was requested; ``script`` is the text of the script, unused with ``--wrap``.

    Raises SlurmError with the words of sbatch.
    """
    text = script if arguments.wrap is None else wrapped(arguments.wrap)
    check_script(text)
    values = Chosen(_merge(arguments, text, environment), context.now_s)
    values.refuse()
    nodes = values.nodes()
    folder = posixpath.normpath(posixpath.join(context.folder, values.text("chdir")))
    tasks = values.tasks(nodes)
    cpus_per_task = values.count("cpus-per-task")
    limit_s = values.limit_s("time")
    return BatchSubmission(
        script=text,
        script_arguments=arguments.script_arguments,
        command=_format_command(arguments, context.folder),
        name=values.text("job-name", _choose_default_name(arguments)),
        folder=folder,
        partition=values.text("partition"),
        account=values.text("account"),
        tasks=tasks,
        cpus_per_task=cpus_per_task,
        nodes=nodes,
        memory_mib=values.memory_mib(tasks * cpus_per_task),
        memory_per_cpu_mib=values.memory("mem-per-cpu"),
        limit_s=limit_s,
        unlimited=values.has("time") and limit_s is None,
        stdin=values.optional("input"),
        stdout=values.optional("output"),
        stderr=values.optional("error"),
        open_mode=values.word("open-mode", {"a": "append", "t": "truncate"}),
        export=values.export(),
        hold=values.has("hold"),
        requeue=values.requeue(),
        signal=values.signal(),
        array=values.array(context.max_array_size),
        dependency=values.dependency(),
        kill_on_invalid_dependency=values.yes_or_no("kill-on-invalid-dep"),
        comment=values.text("comment"),
        exclusive=values.exclusive(),
        deadline_s=values.instant_s("deadline"),
        least_limit_s=values.limit_s("time-min"),
        begin_s=values.instant_s("begin"),
        test_only=values.has("test-only"),
        parsable=values.has("parsable"),
        quiet=values.has("quiet"),
        verbose=values.has("verbose"),
        wait=values.has("wait"),
    )


def submitted(request: BatchSubmission, job: int, cluster: str = "", warning: str = "") -> Reply:
    """Return the reply to a successful submission."""
    err = f"sbatch: {warning}\n" if warning else ""
    if request.parsable:
        return Reply(f"{job};{cluster}\n" if cluster else f"{job}\n", err)
    return Reply("" if request.quiet else f"Submitted batch job {job}\n", err)


def expected_start(
    request: BatchSubmission,
    job: int,
    start_s: float,
    node: str,
    latest_s: float | None = None,
) -> Reply:
    """Return the reply to ``--test-only``: when the job would start, on standard error as Slurm
    has it; ``latest_s`` adds the end of the interval (probability .95)."""
    message = (
        f"Job {job} to start at {format_instant(start_s)} using {request.cpus} processors "
        f"on nodes {node} in partition {request.partition}"
    )
    lines = [f"sbatch: {message}\n"]
    if latest_s is not None:
        lines.append(f"sbatch: in 95 of 100 cases not later than {format_instant(latest_s)}\n")
    return Reply("", "".join(lines))


def submission_error(reason: str, *details: str) -> SlurmError:
    """Return the error of a submission that the service refuses, in the words of sbatch.

    >>> submission_error("Invalid partition name specified").reply.code
    1
    """
    return command_error("sbatch", *details, f"Batch job submission failed: {reason}")


def _make_command(ignored: frozenset[str]) -> CommandOptions:
    return CommandOptions("sbatch", OPTIONS, ordered=True, code=UNKNOWN_OPTION, ignored=ignored)


def _merge(
    arguments: Arguments, script: str, environment: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the options that count, the strongest source last."""
    levels = (
        _read_script_options(arguments, script),
        [(VARIABLES[name], value) for name, value in environment.items() if name in VARIABLES],
        list(arguments.options),
    )
    result: dict[str, str | None] = {}
    for level in levels:
        options = {
            ALIASES.get(name, name): value for name, value in level if name not in arguments.ignored
        }
        _check_memory(options)
        # a stronger source replaces all alternatives, as --mem does --mem-per-cpu of the script
        for group in ALTERNATIVES:
            stated = [name for name in options if name in group]
            if stated:
                for name in group:
                    result.pop(name, None)
                for name in stated[:-1]:
                    options.pop(name)
        result |= options
    return {name: value for name, value in result.items() if name not in IGNORED}


def _check_memory(options: Mapping[str, str | None]) -> None:
    if sum(name in options for name in ALTERNATIVES[0]) > 1:
        raise SlurmError(
            "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."
        )


def _read_script_options(arguments: Arguments, script: str) -> Parsed:
    name = arguments.script or "wrap"
    result: Parsed = []
    for words in script_lines(script, "(stdin)" if name == "-" else name):
        if words in (["hetjob"], ["packjob"]):
            raise command_error("sbatch", "heterogeneous jobs are not supported")
        parsed, others = scan(_make_command(arguments.ignored), words)
        if others:
            message = f"Invalid directive found in batch script: {others[0]}"
            raise command_error("sbatch", message, code=255)
        result += [(option, value) for option, value in parsed if option != "wrap"]
    return result


def _choose_default_name(arguments: Arguments) -> str:
    if arguments.wrap is not None:
        return "wrap"
    if arguments.script in (None, "-"):
        return "sbatch"
    return posixpath.basename(str(arguments.script))


def _format_command(arguments: Arguments, folder: str) -> str:
    if arguments.script in (None, "-"):
        return ""
    path = posixpath.join(folder, str(arguments.script))
    return " ".join([posixpath.normpath(path), *arguments.script_arguments])

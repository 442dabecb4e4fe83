"""The shell text of a task: its command with setup, activation, folder and container.

All engines use this pure function of the order and the folders. Setup comes first, on the machine
itself; conda and venv are activated where the command runs, also inside a container.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.agent.commands import SHELL, shell_words
from vgrads.agent.containers import CONTAINER
from vgrads.agent.processes import MARK
from vgrads.agent.programs import staging
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.workflows.task_environment import Container, TaskEnvironment

PASSED_VARIABLES = (
    "OMP_NUM_THREADS",
    MARK,
    "VGRADS_FOLDER",
    "VGRADS_PROCS",
    "VGRADS_SLOT",
    "VGRADS_TASK",
    "VGRADS_WORKFLOW",
)
"""Variables in the environment of every task, also if a container passes no others."""
_NO_GO = 125
_MODULES = (
    'command -v module >/dev/null 2>&1 || for init in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/sh" '
    '"${MODULESHOME:-/usr/share/modules}/init/sh"; do [ ! -r "$init" ] || { . "$init"; '
    "break; }; done"
)
"""Plain shells do not define modules."""
_PREFIX = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}


def variable(name: str, rest: str = "") -> str:
    """Return a word, or a part of one, that the shell replaces by a variable where the task
    runs."""
    return f"\0{name}\0{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolders:
    """Folders and names of a task: its folder, the folders that its inputs link to, the name of its
    container, the interpreter and the program that transfer files. Each may contain a
    :func:`variable`, where only the node knows it. ``passes``: further variables for a
    container."""

    folder: str
    reads: tuple[str, ...] = ()
    name: str = variable(CONTAINER)
    python: str = "python3"
    staging: str = staging.__file__
    passes: tuple[str, ...] = ()


def command_text(order: TaskOrder, folders: TaskFolders) -> str:
    """Return the whole text for the shell, which is stored in the task's folder."""
    environment = order.environment
    before = _make_setup(environment.setup)
    inner = _make_activation(environment)
    box = environment.boxed
    if box is None and environment.workdir:
        inner.append(f"cd -- {shlex.quote(environment.workdir)} || exit {_NO_GO}")
    command = "\n".join((*inner, order.command))
    if box is not None:
        command = container_text(box, command, order.environment, folders)
    moves = join_words((folders.python, "-I", folders.staging))
    if order.fetches:
        before.append(f"{moves} fetch || exit")
    if order.sends:
        # in a shell of its own: an exit in the command must not skip the sending
        command = f"( eval {shlex.quote(command)} ) || exit\n{moves} send"
    return "\n".join((*before, command))


def preparation(environment: TaskEnvironment) -> str:
    """Return the lines of a shell that set an environment up and activate it."""
    lines = [*_make_setup(environment.setup), *_make_activation(environment)]
    return "".join(f"{line}\n" for line in lines)


def _make_setup(entries: Sequence[str]) -> list[str]:
    results = []
    if any("module" in entry.split() for entry in entries):
        results.append(_MODULES)
    for entry in filter(_does_something, entries):
        text = shlex.quote(f"vgrads: setup failed: {entry.strip()}")
        # the line break ends a comment at the end of the entry
        results.append(f"{{ {entry}\n}} || {{ echo {text} >&2; exit {_NO_GO}; }}")
    return results


def _does_something(entry: str) -> bool:
    """True if the entry has a command; empty braces are a syntax error."""
    return any(line.strip() and not line.strip().startswith("#") for line in entry.splitlines())


def _make_activation(environment: TaskEnvironment) -> list[str]:
    if environment.conda:
        failed = shlex.quote(
            f"vgrads: the conda environment {environment.conda} cannot be activated"
        )
        hook = 'eval "$("${CONDA_EXE:-conda}" shell.posix hook)"'
        return [
            (
                f"{hook} && conda activate {shlex.quote(environment.conda)} || {{ echo {failed} "
                f">&2; exit {_NO_GO}; }}"
            )
        ]
    if environment.venv:
        return [f". {shlex.quote(environment.venv + '/bin/activate')} || exit {_NO_GO}"]
    return []


def container_text(
    box: Container, command: str, environment: TaskEnvironment, folders: TaskFolders
) -> str:
    """Return the line that runs a command in a container, in the syntax of its engine."""
    names = (
        *PASSED_VARIABLES,
        *(name for name, _ in environment.env if name not in PASSED_VARIABLES),
    )
    perhaps = [name for name in folders.passes if name not in names]  # set on some nodes
    folder = environment.workdir or folders.folder
    writes = [folders.folder, *([environment.workdir] if environment.workdir else [])]
    if box.engine in _PREFIX:
        prefix = _PREFIX[box.engine]
        # what is not set on the node must not become set and empty in the container
        before = "".join(
            f'[ -z "${{{name}+x}}" ] || export {prefix}{name}="${name}"\n' for name in perhaps
        )
        passed = " ".join(f'{prefix}{name}="${name}"' for name in names)
        words = [box.engine, "exec"]
        for path, mode in (
            *((path, ":ro") for path in folders.reads),
            *((path, "") for path in writes),
        ):
            words += ["--bind", f"{_escape_path(path)}:{_escape_path(path)}{mode}"]
        words += ["--pwd", folder, *box.options, box.image, *shell_words(command)]
        return f"{before}{passed} {join_words(words)}"
    words = [
        box.engine,
        "run",
        "--rm",
        "--name",
        folders.name,
        "--network",
        "host",
    ]
    words += ["--workdir", folder]
    for path, mode in (
        *((path, ",readonly") for path in folders.reads),
        *((path, "") for path in writes),
    ):
        words += [
            "--mount",
            f"type=bind,{_escape_field('source', path)},{_escape_field('target', path)}{mode}",
        ]
    for name in (*names, *perhaps):
        words += ["--env", name]
    words += [*box.options, "--entrypoint", SHELL, box.image, *shell_words(command)[1:]]
    first = 3  # after the engine, "run" and "--rm"
    return f"{join_words(words[:first])} {_USER[box.engine]} {join_words(words[first:])}"


_USER = {
    "docker": '--user "$(id -u):$(id -g)"',
    # podman maps users by itself, unless root runs it
    "podman": '--user "$(id -u):$(id -g)" $([ "$(id -u)" = 0 ] || echo --userns keep-id) '
    "--security-opt label=disable",
}
"""Options that make files of the container belong to the user, evaluated where the task runs."""


def join_words(words: Sequence[str]) -> str:
    """Return the text of a command, with quotes where the shell needs them."""
    return " ".join(_quote_word(word) for word in words)


def _quote_word(word: str) -> str:
    parts = word.split("\0")
    if len(parts) == 1:
        return shlex.quote(word)
    return "".join(
        f'"${part}"' if number % 2 else shlex.quote(part) if part else ""
        for number, part in enumerate(parts)
    )


def _escape_path(path: str) -> str:
    """Escape a path in a list that is separated by colons and commas."""
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _escape_field(name: str, path: str) -> str:
    """Return a field of a line of comma-separated values."""
    text = f"{name}={path}"
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text

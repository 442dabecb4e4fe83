"""What the shell of a task is given: its command with setup, activation, folder and container
around it.

The one place where this is put together, whichever engine runs it: a pure function of the order and
of where it runs. Setup comes first, on the machine itself; conda and venv are activated where the
command runs, inside a container too.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vgrads.agent import staging
from vgrads.agent.commands import SHELL, shell_words
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.tasks.processes import MARK
from vgrads.workflows.manner import Container, Manner

TOLD = (
    "OMP_NUM_THREADS",
    MARK,
    "VGRADS_FOLDER",
    "VGRADS_PROCS",
    "VGRADS_SLOT",
    "VGRADS_TASK",
    "VGRADS_WORKFLOW",
)
"""What every task finds in its environment, also where a container lets nothing else in."""
_NO_GO = 125
_MODULES = (
    'command -v module >/dev/null 2>&1 || for init in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/sh" '
    '"${MODULESHOME:-/usr/share/modules}/init/sh"; do [ ! -r "$init" ] || { . "$init"; '
    "break; }; done"
)
"""Plain shells know of no modules by themselves."""
_PREFIX = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a task runs: its folder, the folders that its inputs are links into, who runs it (user,
    group), what its container is called, the interpreter that moves files."""

    folder: Path
    reads: tuple[Path, ...] = ()
    user: tuple[int, int] = (0, 0)
    name: str = ""
    python: str = "python3"


def command_text(order: TaskOrder, place: Place) -> str:
    """The whole text for the shell, which stands in the task's folder."""
    manner = order.manner
    before = _setup(manner.setup)
    inner = _activation(manner)
    box = manner.boxed
    if box is None and manner.workdir:
        inner.append(f"cd -- {shlex.quote(manner.workdir)} || exit {_NO_GO}")
    command = "\n".join((*inner, order.command))
    if box is not None:
        command = container_text(box, command, order.manner, place)
    moves = shlex.join((place.python, "-I", staging.__file__))
    if order.fetches:
        before.append(f"{moves} fetch || exit")
    if order.sends:
        command = f"( eval {shlex.quote(command)} ) || exit\n{moves} send"
    return "\n".join((*before, command))


def _setup(entries: Sequence[str]) -> list[str]:
    found = []
    if any("module" in entry.split() for entry in entries):
        found.append(_MODULES)
    for entry in filter(_does_something, entries):
        said = shlex.quote(f"vgrads: setup failed: {entry.strip()}")
        found.append(f"{{ {entry}\n}} || {{ echo {said} >&2; exit {_NO_GO}; }}")
    return found


def _does_something(entry: str) -> bool:
    """Braces around nothing are no command."""
    return any(line.strip() and not line.strip().startswith("#") for line in entry.splitlines())


def _activation(manner: Manner) -> list[str]:
    if manner.conda:
        failed = shlex.quote(f"vgrads: the conda environment {manner.conda} cannot be activated")
        hook = 'eval "$("${CONDA_EXE:-conda}" shell.posix hook)"'
        return [
            (
                f"{hook} && conda activate {shlex.quote(manner.conda)} || {{ echo {failed} "
                f">&2; exit {_NO_GO}; }}"
            )
        ]
    if manner.venv:
        return [f". {shlex.quote(manner.venv + '/bin/activate')} || exit {_NO_GO}"]
    return []


def container_text(box: Container, command: str, manner: Manner, place: Place) -> str:
    """The line that runs a command in a container, by the letter of its engine."""
    names = (*TOLD, *(name for name, _ in manner.env if name not in TOLD))
    folder = manner.workdir or str(place.folder)
    writes = [place.folder, *([Path(manner.workdir)] if manner.workdir else [])]
    if box.engine in _PREFIX:
        passed = " ".join(f'{_PREFIX[box.engine]}{name}="${name}"' for name in names)
        words = [box.engine, "exec"]
        for path, mode in (
            *((path, ":ro") for path in place.reads),
            *((path, "") for path in writes),
        ):
            words += ["--bind", f"{_escaped(path)}:{_escaped(path)}{mode}"]
        words += ["--pwd", folder, *box.options, box.image, *shell_words(command)]
        return f"{passed} {shlex.join(words)}"
    words = [
        box.engine,
        "run",
        "--rm",
        "--name",
        place.name,
        "--network",
        "host",
        *_user(box.engine, place),
    ]
    words += ["--workdir", folder]
    for path, mode in (
        *((path, ",readonly") for path in place.reads),
        *((path, "") for path in writes),
    ):
        words += ["--mount", f"type=bind,{_field('source', path)},{_field('target', path)}{mode}"]
    for name in names:
        words += ["--env", name]
    words += [*box.options, "--entrypoint", SHELL, box.image, *shell_words(command)[1:]]
    return shlex.join(words)


def _user(engine: str, place: Place) -> list[str]:
    """What a container writes belongs to whoever runs it."""
    words = ["--user", f"{place.user[0]}:{place.user[1]}"]
    if engine == "docker":
        return words
    if place.user[0]:  # podman maps users of its own, if it is not root's
        words += ["--userns", "keep-id"]
    return [*words, "--security-opt", "label=disable"]


def _escaped(path: Path) -> str:
    """A path among others with colons and commas between them."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _field(name: str, path: Path) -> str:
    """A field of a line of comma-separated values."""
    text = f"{name}={path}"
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text

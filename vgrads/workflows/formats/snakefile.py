"""A Snakefile as a workflow: Snakemake itself determines the jobs; none of them is run.

Snakemake is called in a separate process, with its own interpreter: it changes much of its process,
and often has a separate environment. A Snakefile is a program: Snakemake executes the code outside
its rules.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError, NothingToDo
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.snakemake_jobs import ABOUT, notes_of
from vgrads.workflows.runtimes import Runtimes, timed
from vgrads.workflows.task import Task

INTERPRETER = "VGRADS_SNAKEMAKE"
_CHILD = Path(__file__).with_name("snakemake_child.py")
_PATIENCE_S = 1800.0
_INSTALL = (
    "install it in a separate environment (python -m venv smk; smk/bin/pip install "
    "snakemake) and put its "
    f"'snakemake' on the PATH, or name its Python: {INTERPRETER}=smk/bin/python"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnakemakeOptions:
    """What Snakemake takes on its command line: ``targets``, files or rules, instead of the first
    rule; ``config``: values of the configuration, ``NAME=VALUE``; ``cores``: to which the threads
    of rules are limited."""

    targets: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    cores: int | None = None


NO_OPTIONS = SnakemakeOptions()


def read_snakefile(
    path: Path,
    runtimes: Runtimes,
    config: Path | None = None,
    options: SnakemakeOptions = NO_OPTIONS,
) -> Workflow:
    """Return the jobs that Snakemake would run now, as started in the Snakefile's folder, or above
    it if that is ``workflow``.

    Completed jobs are not among its tasks. ``config``: a configuration file in addition to those
    that it names. NothingToDo if all jobs are completed; InputError if there is no Snakemake, or
    with Snakemake's message if it rejects the file.
    """
    path = path.absolute()
    if config is not None and not config.is_file():
        raise InputError("no such file", where=str(config))
    folder = path.parent.parent if path.parent.name == "workflow" else path.parent
    request = {
        "snakefile": str(path),
        "configfiles": [str(config.absolute())] if config else [],
        "config": list(options.config),
        "targets": list(options.targets),
        "cores": options.cores,
    }
    # -P: modules in the project's folder must not replace those of Snakemake
    command = [_find_interpreter(str(path)), "-P", str(_CHILD), json.dumps(request)]
    tasks = _ask(command, folder, str(path))
    if not tasks:
        raise NothingToDo(
            "nothing to do: all outputs are present, or all rules are local", where=str(path)
        )
    name = folder.name if path.stem.lower() == "snakefile" else path.stem
    return make_workflow(
        name, [_make_task(task, runtimes) for task in tasks], where=str(path), notes=notes_of(tasks)
    )


def has_snakemake() -> bool:
    """Return True where Snakefiles can be read."""
    try:
        _find_interpreter("")
    except InputError:
        return False
    return True


def _find_interpreter(where: str) -> str:
    """Return the Python with Snakemake: the configured one, otherwise the one of the command
    ``snakemake``."""
    named = os.environ.get(INTERPRETER)
    if named:
        if shutil.which(named) is None:
            raise InputError(
                f"'{named}' is not an executable",
                where=INTERPRETER,
                fix="name the Python interpreter that has snakemake",
            )
        return named
    overrides = Path(sys.executable).with_name("snakemake")
    program = str(overrides) if overrides.is_file() else shutil.which("snakemake")
    # the command is a script next to its Python
    python = Path(program).resolve().with_name("python3") if program else None
    if python is None or not python.is_file():
        raise InputError(
            "only Snakemake can read it, and Snakemake is not installed", where=where, fix=_INSTALL
        )
    return str(python)


def _ask(command: Sequence[str], folder: Path, where: str) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"Snakemake did not read it within {_PATIENCE_S:.0f} s", where=where
        ) from None
    except OSError as error:
        raise InputError(f"Snakemake cannot be run: {error}", where=where) from error
    try:
        message = json.loads(done.stdout)
    except ValueError:
        raise _explain_death(done, where) from None
    if "error" in message:
        raise _find_snakemake_error(str(message["error"]), where)
    return list(message["tasks"])


def _find_snakemake_error(error: str, where: str) -> InputError:
    """Return Snakemake's error message; without one, the last line."""
    lines = [line for line in error.splitlines() if line.strip()] or ["no error message"]
    first, *more = lines[-1:] if lines[0].startswith("Traceback") else lines
    return InputError(f"Snakemake reports: {first}", tuple(more), where=where)


def _explain_death(done: subprocess.CompletedProcess[str], where: str) -> InputError:
    """Return why there is no output, from the last line."""
    last = (done.stderr.strip().splitlines() or ["no error message"])[-1][:400]
    if "No module named 'snakemake" in last:
        return InputError(
            f"{done.args[0]} has no snakemake ≥ 9 ({last})", where=where, fix=_INSTALL
        )
    return InputError(f"Snakemake ended with exit code {done.returncode}: {last}", where=where)


def _make_task(payload: Mapping[str, Any], runtimes: Runtimes) -> Task:
    times = timed(
        runtimes,
        (payload["id"], payload["kind"]),
        payload.get("runtime_s"),
        payload[ABOUT]["limit_s"],
    )
    return Task(
        id=payload["id"],
        kind=payload["kind"],
        procs=payload["procs"],
        memory_mib=payload["memory_mib"],
        parents=tuple(payload["parents"]),
        **times,
    )

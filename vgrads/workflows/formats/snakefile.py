"""A Snakefile as a workflow: Snakemake itself says what it would run; nothing of it is run.

Snakemake is asked in a process of its own, with its own interpreter: it changes much of the process
that it lives in, and often has an environment of its own. A Snakefile is a program: asking
Snakemake executes what stands outside its rules.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.snakemake_jobs import ABOUT, notes_of
from vgrads.workflows.runtimes import Runtimes, timed
from vgrads.workflows.task import Task

INTERPRETER = "VGRADS_SNAKEMAKE"
_CHILD = Path(__file__).with_name("snakemake_child.py")
_PATIENCE_S = 1800.0
_INSTALL = (
    "install it in an environment of its own (python -m venv smk; smk/bin/pip install "
    "snakemake) and put its "
    f"'snakemake' on the PATH, or name its Python: {INTERPRETER}=smk/bin/python"
)


def read_snakefile(path: Path, runtimes: Runtimes, config: Path | None = None) -> Workflow:
    """What Snakemake would run now, as it would in the Snakefile's folder, or above it where that
    is ``workflow``.

    Jobs that are done are not among its tasks. ``config``: a configuration file beside those that
    it names. InputError where there is no Snakemake, or Snakemake's own words where it refuses.
    """
    path = path.absolute()
    if config is not None and not config.is_file():
        raise InputError("no such file", where=str(config))
    folder = path.parent.parent if path.parent.name == "workflow" else path.parent
    command = [_interpreter(str(path)), "-P", str(_CHILD), str(path)]
    tasks = _ask(command + ([str(config.absolute())] if config else []), folder, str(path))
    if not tasks:
        raise InputError(
            "nothing is to be run: all its outputs are there, or its rules are local",
            where=str(path),
        )
    name = folder.name if path.stem.lower() == "snakefile" else path.stem
    return make_workflow(
        name, [_task(task, runtimes) for task in tasks], where=str(path), notes=notes_of(tasks)
    )


def _interpreter(where: str) -> str:
    """The Python that has Snakemake: the one that is named, else the one beside the command
    ``snakemake``."""
    named = os.environ.get(INTERPRETER)
    if named:
        if shutil.which(named) is None:
            raise InputError(
                f"'{named}' is no program", where=INTERPRETER, fix="the Python that has snakemake"
            )
        return named
    beside = Path(sys.executable).with_name("snakemake")
    program = str(beside) if beside.is_file() else shutil.which("snakemake")
    python = Path(program).resolve().with_name("python3") if program else None
    if python is None or not python.is_file():
        raise InputError(
            "Snakemake is not here, which alone can read it", where=where, fix=_INSTALL
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
            f"Snakemake has not read it within {_PATIENCE_S:.0f} s", where=where
        ) from None
    except OSError as error:
        raise InputError(f"Snakemake cannot be asked: {error}", where=where) from error
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise _died(done, where) from None
    if "error" in told:
        raise _said(str(told["error"]), where)
    return list(told["tasks"])


def _said(error: str, where: str) -> InputError:
    """Snakemake's own words; of what it had none for, the last line."""
    lines = [line for line in error.splitlines() if line.strip()] or ["no word"]
    first, *more = lines[-1:] if lines[0].startswith("Traceback") else lines
    return InputError(f"Snakemake says: {first}", tuple(more), where=where)


def _died(done: subprocess.CompletedProcess[str], where: str) -> InputError:
    """Why there is no answer, as far as the last line tells."""
    last = (done.stderr.strip().splitlines() or ["no word"])[-1][:400]
    if "No module named 'snakemake" in last:
        return InputError(
            f"{done.args[0]} has no snakemake ≥ 9 ({last})", where=where, fix=_INSTALL
        )
    return InputError(f"Snakemake ended with exit code {done.returncode}: {last}", where=where)


def _task(told: Mapping[str, Any], runtimes: Runtimes) -> Task:
    times = timed(
        runtimes, (told["id"], told["kind"]), told.get("runtime_s"), told[ABOUT]["limit_s"]
    )
    return Task(
        id=told["id"],
        kind=told["kind"],
        procs=told["procs"],
        memory_mib=told["memory_mib"],
        parents=tuple(told["parents"]),
        **times,
    )

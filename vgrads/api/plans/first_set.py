"""The files of a first set, with comments: what was found here, and the texts written for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vgrads.api.queues.history_files import open_history
from vgrads.api.wiring import open_site
from vgrads.drivers.api import QueueLimits
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration
from vgrads.vgrid.catalog import Site
from vgrads.workflows.formats.snakefile import has_snakemake

SET, SITES = "set.yaml", "sites.toml"
EXAMPLE = "example"
"""Instead of a workflow's file: two tasks with commands."""
HERE, SLURM = "here", "slurm"
_WORKFLOWS = ("snakefile", "workflow/snakefile", "makeflow")
_SUFFIXES = (".smk", ".cwl", ".jx", ".makeflow", ".dax", ".dag")
_LOGS = (".swf", ".swf.gz", ".swf.xz")
_INSTALL_SNAKEMAKE = (
    "python -m venv smk && smk/bin/pip install vgrads snakemake snakemake-executor-plugin-vgrads "
    "&& export PATH=$PWD/smk/bin:$PATH   # Snakemake is not installed here"
)
_EXAMPLE_TEXT = """  - name: example
    tasks:
      # a task needs processors, an estimate of its run time, and a command; what its run takes is
      # learned for the next plan
      - {id: first, procs: 1, runtime_s: 5, command: "date > first.txt", outputs: [first.txt]}
      # it starts when its input is there
      - id: second
        runtime_s: 5
        command: "wc first.txt > second.txt"
        inputs: [first.txt]
        outputs: [second.txt]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What was found: files of workflows, logs of queues, whether Slurm answers here."""

    workflows: tuple[str, ...]
    logs: tuple[str, ...]
    slurm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the set runs (a file, or :data:`EXAMPLE`), where (``here``, ``slurm``, or the log of a
    queue to simulate), and by when."""

    workflow: str
    sites: str
    deadline: str


def look_around(folder: Path) -> Surroundings:
    """Find workflows and logs in a folder, and Slurm on this machine."""
    names = sorted(
        str(path.relative_to(folder))
        for path in (*folder.iterdir(), *folder.glob("workflow/*"))
        if path.is_file()
    )
    return Surroundings(
        workflows=tuple(n for n in names if n.lower() in _WORKFLOWS or n.endswith(_SUFFIXES)),
        logs=tuple(n for n in names if n.endswith(_LOGS)),
        slurm=_check_slurm(),
    )


def _check_slurm() -> bool:
    """True if Slurm's commands are here and its controller answers them."""
    if not all(shutil.which(program) for program in ("sbatch", "squeue", "sinfo")):
        return False
    try:
        done = subprocess.run(("sinfo", "--noheader"), capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def write_first_set(folder: Path, answers: Answers) -> tuple[Path, Path]:
    """Write a set and its sites; return the files. InputError where one of them exists, or an
    answer names no file: then nothing is written."""
    chosen = folder / SET, folder / SITES
    refuse_existing(folder)
    for where, name in (("--workflow", answers.workflow), ("--sites", answers.sites)):
        if name not in (EXAMPLE, HERE, SLURM) and not (folder / name).is_file():
            raise InputError(f"there is no file '{name}' in {folder}", where=where)
    texts = set_text(answers), write_sites(folder, answers.sites)
    for path, text in zip(chosen, texts, strict=True):
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
    return chosen


def refuse_existing(folder: Path) -> None:
    """Raise InputError where a file is in the way: none is overwritten."""
    if not folder.is_dir():
        raise InputError("is not a folder", where=str(folder), fix="create it first")
    for name in (SET, SITES):
        if (folder / name).exists():
            raise InputError(
                "exists already, and is not overwritten",
                where=str(folder / name),
                fix="use another folder, or rename the file",
            )


def set_text(answers: Answers) -> str:
    """Return the text of the set."""
    if answers.workflow == EXAMPLE:
        name, workflows = EXAMPLE, _EXAMPLE_TEXT
    else:
        path = Path(answers.workflow)
        name = path.stem if path.stem.lower() not in ("snakefile", "makeflow") else "first"
        workflows = f"  - file: {json.dumps(answers.workflow)}\n"
        workflows += "    # count: 4             # so many equal ones\n"
    return (
        "# A workflow set: what to run, by when, and how probable that must be.\n"
        "#   vgrads plan set.yaml     shows slots, tasks and the probability of the promise\n"
        "#   vgrads run set.yaml      plans it and runs it to the end\n"
        f"name: {json.dumps(name)}\n"
        f"deadline: {json.dumps(answers.deadline)}   # from the start; or a time with its zone\n"
        "probability: 0.9             # that you request of the promise\n"
        "# at_least: 1                # workflows that must be done; default: all of them\n"
        "# budget_usd: 20             # only sites with prices cost money\n"
        f"sites: {SITES}\n"
        f"workflows:\n{workflows}"
    )


def write_sites(folder: Path, sites: str) -> str:
    """Return the text of the sites. InputError for a log that cannot be read; SiteError where Slurm
    does not answer."""
    head = "# Where tasks may run. 'vgrads sites check sites.toml' tries it.\n"
    if sites == HERE:
        return head + (
            '[[site]]\nname = "here"\nkind = "local"\n'
            f"procs = {os.cpu_count() or 1}   # of this machine's processors\n"
        )
    if sites == SLURM:
        return head + _format_slurm()
    log = open_history(folder / sites)
    procs = log.max_procs or int(log.procs.max(initial=1))
    return head + (
        "# A simulated machine: its queue waits as in the log, and nothing is really run.\n"
        f'[[site]]\nname = "simulated"\nkind = "batch"\nprocs = {procs}\n'
        f'[[site.queue]]\nname = "default"\nhistory = {json.dumps(sites)}\n'
        'max_walltime = "24h"\n'
    )


def _format_slurm() -> str:
    survey = open_site(Site(name="cluster", kind="batch", procs=1, driver="slurm")).survey()
    queues = [queue for queue in survey.queues if queue.open and queue.max_procs]
    if not queues:
        raise InputError("Slurm reports no partition that is open", where="--sites slurm")
    procs = max(queue.max_procs or 1 for queue in queues)
    cores = max(_count_cores(queue) for queue in queues)
    return (
        f"# As {survey.version} reports it. Limits of your account may be lower.\n"
        '[[site]]\nname = "cluster"\nkind = "batch"\ndriver = "slurm"\n'
        f"procs = {procs}\ncores_per_node = {cores}\n"
        "# [site.access]\n"
        '# account = "…"             # where submissions need one\n'
        + "".join(map(_format_queue, queues))
        + "# With the accounting of past jobs waits are predicted better:\n"
        "#   vgrads sites add sites.toml && vgrads sites collect cluster\n"
    )


def _count_cores(queue: QueueLimits) -> int:
    return max(1, (queue.max_procs or 1) // max(1, len(queue.nodes)))


def _format_queue(queue: QueueLimits) -> str:
    limit = queue.max_walltime_s
    lasts = f'max_walltime = "{format_duration(limit)}"\n' if limit else 'max_walltime = "24h"\n'
    return (
        f"[[site.queue]]\nname = {json.dumps(queue.name)}\n{lasts}max_procs = {queue.max_procs}\n"
    )


def list_next_steps(answers: Answers) -> Sequence[str]:
    """Return the commands that come next."""
    if answers.workflow.lower().endswith(("snakefile", ".smk")):
        run = f"snakemake --executor vgrads -j 1000 --vgrads-sites {SITES}"
        steps = (f"vgrads plan {SET}", f"{run} --vgrads-deadline {answers.deadline}")
        return steps if has_snakemake() else (_INSTALL_SNAKEMAKE, *steps)
    return (f"vgrads plan {SET}", f"vgrads run {SET}")

"""HTCondor DAGMan ``.dag`` files: ``JOB``, ``PARENT … CHILD …``, ``VARS``, ``RETRY``, ``PRIORITY``.

Structure only: run times come from the set's ``runtimes``, by job name or submit file. Statements
that change the structure at run time (``SUBDAG``, ``SPLICE``, ``INCLUDE``) are rejected with their
line; those that only concern HTCondor (scripts, categories, configuration) are ignored.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.runtimes import Runtimes, runtime_of
from vgrads.workflows.task import Task

_REFUSED = ("SUBDAG", "SPLICE", "INCLUDE", "PROVISIONER")


def read_dagman(text: str, where: str, runtimes: Runtimes) -> Workflow:
    """Read the workflow of a ``.dag`` file; InputError names the wrong line."""
    submit_files: dict[str, str] = {}
    parents: defaultdict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        keyword = words[0].upper() if words else "#"
        place = f"{where}: line {number}"
        if keyword in _REFUSED:
            raise InputError(
                f"{keyword} is not supported", where=place, fix="flatten it into JOB lines"
            )
        if keyword in ("JOB", "FINAL"):
            if len(words) < 3:
                raise InputError("JOB needs a name and a submit file", where=place)
            submit_files[words[1]] = words[2]
        elif keyword == "PARENT":
            _add_edges(words, parents, place)
    unknown = (set(parents) | {p for ps in parents.values() for p in ps}) - set(submit_files)
    if unknown:
        raise InputError(
            f"PARENT … CHILD names no JOB: {', '.join(sorted(unknown)[:5])}", where=where
        )
    tasks = [
        Task(
            id=name,
            runtime_s=runtime_of(runtimes, (name, submit, PurePath(submit).stem)),
            kind=PurePath(submit).stem,
            parents=tuple(dict.fromkeys(parents[name])),
        )
        for name, submit in submit_files.items()
    ]
    return make_workflow(PurePath(where).stem, tasks, where=where)


def _add_edges(words: list[str], parents: defaultdict[str, list[str]], place: str) -> None:
    upper = [word.upper() for word in words]
    if "CHILD" not in upper or upper.index("CHILD") in (1, len(words) - 1):
        raise InputError("write PARENT name… CHILD name…", where=place)
    middle = upper.index("CHILD")
    for child in words[middle + 1 :]:
        parents[child] += words[1:middle]

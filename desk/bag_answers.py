"""What became of a bag's tasks, read from its dispatcher's folder: while it works, or later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dispatch.journal import look, read_ends
from dispatch.kept import open_bag, read_status
from dispatch.outputs import read_outputs
from dispatch.records import COULD_NOT
from dispatch.state import MOST_LOSSES
from dispatch.tasks import DONE, FAILED, GIVEN
from kernel.errors import InputError


def results(
    folder: Path, number: int, tasks: Sequence[int] = (), failed: bool = False, skip: int = 0
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """How attempts ended, in that order: of some tasks or of all, or only those that went wrong; the first ``skip``
    left out."""
    kept = open_bag(folder, number)
    wanted = set(tasks)
    for task in wanted:
        if not 0 <= task < len(kept.bag.commands):
            raise InputError(
                f"has no task {task}: they go from 0 to {len(kept.bag.commands) - 1}",
                where=kept.bag.name,
            )
    printed = {
        (said.task, said.attempt): said for said in read_outputs(folder / "bags" / f"{number:04d}" / "printed.bin")
        if not wanted or said.task in wanted
    }  # fmt: skip
    names = {host.number: host.name or host.id for host in look(folder / "journal").hosts.values()}
    for ends in read_ends(folder / "journal", number, skip):
        for end in _chosen(ends, wanted, failed):
            key = (int(end["task"]), int(end["attempt"]))
            said = printed.get(key)
            yield {
                "task": key[0], "attempt": key[1], "code": _code(end), "how": how_it_ended(int(end["code"])),
                "command": kept.bag.commands.command(key[0]), "host": names.get(int(end["host"]), "?"),
                "at_s": float(end["at_cs"]) / 100.0, "waited_s": float(end["waited_s"]),
                "fetched_s": float(end["fetched_s"]), "ran_s": float(end["ran_s"]), "sent_s": float(end["sent_s"]),
                "cpu_s": float(end["cpu_s"]), "peak_mib": round(float(end["peak_gib"]) * 1024.0, 1),
                "out": said.out if said else "", "err": said.err if said else "",
            }  # fmt: skip


def _chosen(ends: np.ndarray, wanted: set[int], failed: bool) -> np.ndarray:
    keep = np.ones(len(ends), bool)
    if wanted:
        keep &= np.isin(ends["task"], list(wanted))
    if failed:
        keep &= ends["code"] != 0
    return ends[keep]


def _code(end: Any) -> int | None:
    return None if end["code"] == COULD_NOT else int(end["code"])


def how_it_ended(code: int) -> str:
    """An end in words."""
    if code == 0:
        return "done"
    if code == COULD_NOT:
        return "could not be run there"
    if code == -1000:
        return "did not write what it declared"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def why(folder: Path, number: int, task: int) -> dict[str, Any]:
    """Why a task stands where it stands, in words and numbers."""
    kept = open_bag(folder, number)
    state = look(folder / "journal")
    bag = state.bags.get(number)
    if not 0 <= task < len(kept.bag.commands):
        raise InputError(
            f"has no task {task}: they go from 0 to {len(kept.bag.commands) - 1}",
            where=kept.bag.name,
        )
    found: dict[str, Any] = {
        "task": task,
        "command": kept.bag.commands.command(task),
        "reasons": [],
    }
    if bag is None:
        found["reasons"].append("no dispatcher has taken the bag on yet")
        return found
    status = bag.tasks.status[task]
    found |= {
        "state": ("waits", "runs", "done", "failed", "dropped")[status], "attempts": bag.tasks.attempts[task],
        "failures": bag.tasks.failures.get(task, 0), "hosts_lost": bag.tasks.losses.get(task, 0),
    }  # fmt: skip
    said = found["reasons"]
    if status == GIVEN:
        host = state.hosts[bag.tasks.where[task]]
        said.append(f"host {host.name} of {host.site} has it, with {len(host.held) - 1} others")
    elif status == FAILED:
        lost = found["hosts_lost"] >= MOST_LOSSES
        said.append(
            f"{found['hosts_lost']} hosts were lost over it, or could not run it" if lost
            else f"it failed {found['failures']} times; {bag.retries} more tries after the first were allowed"
        )  # fmt: skip
    elif status != DONE:
        said += _why_it_waits(folder, state, bag, task)
    return found


def _why_it_waits(folder: Path, state: Any, bag: Any, task: int) -> list[str]:
    if bag.cancelled:
        return [f"its bag was cancelled: {bag.cancelled}"]
    hosts = [h for h in state.hosts.values() if h.here and not h.leaving]
    fit = [h for h in hosts if h.procs >= bag.procs and (not bag.sites or h.site in bag.sites)]
    before = (
        len(bag.tasks.again) + max(0, task - bag.tasks.cursor) if task not in bag.tasks.again else 0
    )
    said = [f"{before} tasks of its bag are before it; {len(fit)} of {len(hosts)} hosts may run it"]
    if not fit and hosts:
        said.append(
            f"it needs {bag.procs} processors of one host"
            + (f" at {', '.join(bag.sites)}" if bag.sites else "")
        )
    status = read_status(folder)
    if status.get("problem"):
        said.append(status["problem"])
    said += [f"{r['site']}: {r['reason']}" for r in status.get("reasons", [])[-3:]]
    return said

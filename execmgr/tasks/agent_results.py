"""Results of tasks as agents report them: printed text, verdict, times."""

from __future__ import annotations

import os
from pathlib import Path

from vgrads.exchange.values import COULD_NOT, UNSENT, AttemptEnd
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.output import STDERR, STDOUT, put_first
from vgrads.execmgr.tasks.process import AttemptVerdict

_KILLED = -9
_OVER, _NOT_SENT = "out of memory: ", "could not send"  # of agents


def store_output(scratch: Path, out: str, err: str) -> None:
    """Store what a task printed where its files are not shared."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / STDOUT).write_text(out)
    (scratch / STDERR).write_text(err)


def append_output(scratch: Path, out: str, err: str) -> None:
    """Store what a running task printed since its last report."""
    for name, text in ((STDOUT, out), (STDERR, err)):
        if text:
            with (scratch / name).open("a") as file:
                file.write(text)


def judge_attempt(
    folder: TaskFolder, order: TaskOrder, end: AttemptEnd, err: str, apart: bool
) -> AttemptVerdict:
    """Return whether an attempt succeeded. ``err``: reported by the agent; ``apart``: the agent
    sent the task's files."""
    last = err.rstrip().rpartition("\n")[2]
    if end.code == COULD_NOT:  # caused by the node, not by the task
        return AttemptVerdict(last or "its node could not run it")
    if end.code == _KILLED and last.startswith(_OVER):  # the task's own fault, at each try
        return AttemptVerdict(last, end.code, ended=128 - end.code)
    scratch = folder.place(order)
    if apart:
        return _judge_sent(folder, order, end, last)
    os.scandir(scratch).close()  # file systems of clusters may show an old list otherwise
    if err and end.code and not (scratch / STDERR).exists():  # it could not enter its folder
        return AttemptVerdict(f"exit code {end.code}: {last}")
    if err:
        put_first(scratch, err.rstrip())
    return folder.verdict(order, end.code)


def _judge_sent(folder: TaskFolder, order: TaskOrder, end: AttemptEnd, last: str) -> AttemptVerdict:
    if end.code != UNSENT:
        return folder.verdict(order, end.code)
    verdict = folder.verdict(order, 0)  # names an output that was not written
    return AttemptVerdict(last) if not verdict.reason or last.startswith(_NOT_SENT) else verdict


def sum_times(end: AttemptEnd, since_s: float, staged_s: float) -> Times:
    """Return the times of an attempt. ``since_s``: from its start command to its report;
    ``staged_s``: preparation at the manager."""
    elsewhere_s = since_s - staged_s - end.fetched_s - end.ran_s - end.sent_s
    return Times(
        waited_s=max(0.0, elsewhere_s),
        in_s=staged_s + end.fetched_s,
        ran_s=end.ran_s,
        cpu_s=end.cpu_s,
        peak_mib=end.peak_gib * 1024.0,
        out_s=end.sent_s,
    )

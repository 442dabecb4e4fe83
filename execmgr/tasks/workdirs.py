"""Outputs of tasks that run in a folder of their user's: what they wrote there, and nothing older,
counts as theirs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from vgrads.execmgr.engines.base import TaskOrder

_NOTE = ".workdir"
"""In a scratch folder: how the outputs stood in the workdir before the task began."""


def note_workdir(order: TaskOrder, scratch: Path) -> None:
    """Note what lies in the workdir under the names of outputs."""
    workdir = order.manner.workdir
    if not workdir or not order.outputs:
        return
    before = {name: _look(Path(workdir) / name) for name in order.outputs}
    (scratch / _NOTE).write_text(json.dumps(before))


def fetch_from_workdir(order: TaskOrder, scratch: Path) -> None:
    """Copy outputs that the task wrote into its workdir, and not into its own folder, beside its
    others."""
    note = scratch / _NOTE
    if not order.manner.workdir or not note.exists():
        return
    before = json.loads(note.read_text())
    for name in order.outputs:
        made, target = Path(order.manner.workdir) / name, scratch / name
        if os.path.lexists(target) or _look(made) in ("", before[name]):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if made.is_dir():
            shutil.copytree(made, target, symlinks=True)
        else:
            shutil.copy2(made, target)


def _look(path: Path) -> str:
    """What tells whether something was written anew; empty where nothing is there. Needs no clock:
    file servers have their own."""
    if not path.exists():
        return ""
    parts = [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]
    stats = [part.lstat() for part in parts]
    return " ".join(f"{s.st_ino}.{s.st_mtime_ns}.{s.st_ctime_ns}.{s.st_size}" for s in stats)

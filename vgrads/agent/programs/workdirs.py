"""Outputs of tasks that run in a folder of the user: only files that the task wrote there count, no
older ones.

Also a program that runs with a task whose files the manager does not see, in the task's folder:
``python -I workdirs.py note|fetch WORKDIR OUTPUT…``. Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Callable, Sequence

_NOTE = ".workdir"
"""In a task's folder: the state of the outputs in the workdir before the task started."""


def note_workdir(workdir: str, outputs: Sequence[str], scratch: Path) -> None:
    """Record the files in the workdir that have names of outputs."""
    before = {name: _look(Path(workdir) / name) for name in outputs}
    (scratch / _NOTE).write_text(json.dumps(before))


def fetch_from_workdir(
    workdir: str,
    outputs: Sequence[str],
    scratch: Path,
    copy: Callable[[str, str], object] = shutil.copy2,
) -> None:
    """Copy outputs that the task wrote into its workdir, and not into its folder, to its other
    outputs."""
    note = scratch / _NOTE
    if not note.exists():
        return
    before = json.loads(note.read_text())
    for name in outputs:
        source, target = Path(workdir) / name, scratch / name
        if os.path.lexists(target) or _look(source) in ("", before[name]):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, copy_function=copy)
        else:
            copy(str(source), str(target))


def _look(path: Path) -> str:
    """Return values that change if a file is rewritten; empty if it is missing. Uses no clock,
    because file servers have their own."""
    if not path.exists():
        return ""
    parts = [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]
    stats = [part.lstat() for part in parts]
    return " ".join(f"{s.st_ino}.{s.st_mtime_ns}.{s.st_ctime_ns}.{s.st_size}" for s in stats)


if __name__ == "__main__":
    {"note": note_workdir, "fetch": fetch_from_workdir}[sys.argv[1]](
        sys.argv[2], sys.argv[3:], Path.cwd()
    )

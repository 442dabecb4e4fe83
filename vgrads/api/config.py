"""Locations of files: the data that ships with vgrads, and its data between commands."""

from __future__ import annotations

import os
from pathlib import Path

from vgrads.kernel.earlier_versions import refuse_home
from vgrads.kernel.errors import InputError

THIS_MACHINE = "here"
"""Names this machine where a file of sites is expected."""


def embedded_data() -> Path:
    """Return the folder of embedded sites and sets: inside an installed package, or next to it in a
    checkout."""
    inside = Path(__file__).parent / "embedded"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "data"


def home() -> Path:
    """Return the folder of the database and of the files of runs, :func:`chosen_home`. Raise
    InputError where an earlier version wrote it."""
    folder = chosen_home()
    refuse_home(folder)
    return folder


def chosen_home() -> Path:
    """Return ``VGRADS_HOME``, otherwise the user's data folder, whoever wrote it."""
    chosen = os.environ.get("VGRADS_HOME")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "vgrads"


def make_home() -> Path:
    """Return the home, created if needed, for this user only. Call it before creating a folder in
    it: parents of a folder are created with the permissions of the umask."""
    folder = home()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def choose_learned_folder() -> Path:
    """Return the folder of what was learned from histories: ``VGRADS_LEARNED``, which homes of one
    user may share, since its names are digests of content; otherwise a folder of the home."""
    chosen = os.environ.get("VGRADS_LEARNED")
    return Path(chosen) if chosen else home() / "cache" / "learned"


def read_planning_effort() -> float:
    """Return the effort of planning, a multiple of the usual: ``VGRADS_EFFORT``, otherwise 1. Raise
    InputError if it is not a number from 0 to 1000."""
    chosen = os.environ.get("VGRADS_EFFORT") or "1"
    try:
        result = float(chosen)
    except ValueError:
        result = -1.0
    if not 0 <= result <= 1000:
        raise InputError(f"'{chosen}' is not a number", where="VGRADS_EFFORT", fix="0 to 1000")
    return result


def run_folder(run_id: str) -> Path:
    """Return the default folder of the files of a run's tasks."""
    return home() / "runs" / run_id


def set_folder(set_id: str) -> Path:
    """Return the folder of a set that came without one: an exclusive folder without other users'
    files."""
    return home() / "sets" / set_id


def dispatcher_folder(dispatcher: str) -> Path:
    """Return the folder of a dispatcher."""
    return home() / "dispatchers" / dispatcher

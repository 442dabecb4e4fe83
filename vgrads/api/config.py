"""Where things lie: the data that ships with vgrads, and what it keeps between commands."""

from __future__ import annotations

import os
from pathlib import Path


def embedded_data() -> Path:
    """The folder of embedded sites and sets: inside an installed package, or beside it in a
    checkout."""
    inside = Path(__file__).parent / "embedded"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "data"


def home() -> Path:
    """Where the database and the files of runs are kept: ``VGRADS_HOME``, else the user's data
    folder."""
    chosen = os.environ.get("VGRADS_HOME")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "vgrads"


def run_folder(run_id: str) -> Path:
    """Where the files of a run's tasks lie, unless its user chose another place."""
    return home() / "runs" / run_id


def set_folder(set_id: str) -> Path:
    """The folder of a set that came without one: its own, with nothing of anybody else's in it."""
    return home() / "sets" / set_id

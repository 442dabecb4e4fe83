"""Agents of a test that run on this machine, and interpreters for them."""

import os
import re
from pathlib import Path

from vgrads.agent.processes import name_of, variable_of


def agents_of(home: Path) -> list[int]:
    """Agents of the runs and dispatchers whose folders are in this home, with their guardians."""
    folders = [*(home / "runs").glob("*"), *(home / "dispatchers").glob("*")]
    runs = tuple(f"{folder.name}." for folder in folders)
    return [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if name_of(int(path.name)).startswith("python")
        and variable_of(int(path.name), "VGRADS_KEY_FD")
        and variable_of(int(path.name), "VGRADS_SLOT").startswith(runs)
    ]


def pythons():
    """Every Python here that is new enough, once."""
    result = {}
    folders = [Path(name) for name in os.environ["PATH"].split(":")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders += sorted(pyenv.glob("*/bin"))
    for folder in folders:
        for path in sorted(folder.glob("python3.[0-9]*")):
            minor = re.fullmatch(r"python3\.(\d+)", path.name)
            if minor and "shims" not in path.parts and os.access(path, os.X_OK):
                result.setdefault(int(minor[1]), str(path))
    return result


def oldest_python() -> str:
    """The oldest Python here that can run an agent."""
    return min((minor, path) for minor, path in pythons().items() if minor >= 8)[1]

"""The real Slurm beside ours: its commands, by absolute path, for what is not ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgrads.api.slurm.records import FIRST_ID
from vgrads.slurm.installation import is_ours
from vgrads.slurm.program import COMMANDS
from vgrads.slurm.text.selection import JobIds

_PATIENCE_S = 10.0


def is_ours_id(number: int) -> bool:
    """Return True for an id of a job of ours."""
    return number >= FIRST_ID


@dataclass(frozen=True)
class OuterSlurm:
    """Absolute paths of the real commands; empty where there is no real Slurm."""

    programs: Mapping[str, str]

    def __bool__(self) -> bool:
        return "sbatch" in self.programs

    def words(self, command: str, arguments: Sequence[str]) -> list[str]:
        """Return a command line of the real Slurm."""
        return [self.programs[command], *arguments]

    def instead(self, command: str, arguments: Sequence[str], ids: JobIds) -> list[str]:
        """Return the real command that answers alone: ids were stated, and none is ours; else an
        empty list."""
        if not ids or command not in self.programs or any(map(is_ours_id, ids.numbers)):
            return []
        return self.words(command, arguments)

    def also(self, command: str, arguments: Sequence[str], ids: JobIds) -> list[list[str]]:
        """Return the real command that follows ours, unless all stated ids are ours."""
        only_ours = ids and all(map(is_ours_id, ids.numbers))
        return [] if only_ours or command not in self.programs else [self.words(command, arguments)]

    def cancels(self, arguments: Sequence[str], ids: JobIds) -> list[list[str]]:
        """Return the real scancel for ids that are not ours, or for a selection without ids."""
        ours = {str(number) for number in ids.numbers if is_ours_id(number)}
        # `12_3` names a task of job 12
        rest = [word for word in arguments if word.partition("_")[0] not in ours]
        return self.also("scancel", rest, ids)


def path_without_ours(path: str) -> str:
    """Return a PATH without the folders that have our commands of Slurm."""
    return os.pathsep.join(
        folder for folder in path.split(os.pathsep) if not is_ours(Path(folder) / "sbatch")
    )


def find_outer(path: str) -> OuterSlurm:
    """Return the real Slurm of a PATH."""
    programs: dict[str, str] = {}
    for folder in path_without_ours(path).split(os.pathsep):
        for command in COMMANDS:
            program = Path(folder) / command
            if command not in programs and folder and os.access(program, os.X_OK):
                programs[command] = str(program)
    return OuterSlurm(programs if _check_outer_slurm(programs) else {})


def _check_outer_slurm(programs: Mapping[str, str]) -> bool:
    """Return True where the real Slurm is there, not only its commands."""
    if "sinfo" not in programs:
        return False
    try:
        done = subprocess.run(
            [programs["sinfo"], "-h", "-o", "%P"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0

"""Results of a bag's tasks: the ends that decided them, and those carried over from earlier runs of
the bag.

``before/``: ends (``ends.bin``) and printed texts of tasks that were done in earlier runs, with the
names of their agents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from vgrads.dispatch.core.records import END
from vgrads.dispatch.storage.journal import read_ends
from vgrads.dispatch.storage.outputs import OutputReader, Outputs
from vgrads.dispatch.storage.retries import AttemptRounds
from vgrads.dispatch.storage.status import read_agents_and_sites, read_json
from vgrads.exchange.messages import PrintedOutput
from vgrads.kernel.files import write_whole

_BUNDLE = 10_000


@dataclass(frozen=True, eq=False)
class DoneTasks:
    """The tasks of a bag that are done: the end of each (:data:`END`), by task; ``agents``: name
    and site by their number in the ends; ``carried``: whether each was done in an earlier run."""

    folder: Path
    ends: np.ndarray
    agents: Sequence[tuple[str, str]]
    carried: np.ndarray

    def printed(self) -> Iterator[PrintedOutput]:
        """Return what the attempts printed that decided the tasks, in any order."""
        by_task = dict(zip(self.ends["task"].tolist(), range(len(self.ends)), strict=True))
        attempts, carried = self.ends["attempt"], self.carried
        for path, before in (
            (find_carried_folder(self.folder) / "printed.bin", True),
            (
                self.folder / "printed.bin",
                False,
            ),
        ):
            for output in OutputReader(path).more():
                at = by_task.get(output.task)
                if at is not None and attempts[at] == output.attempt and carried[at] == before:
                    yield output


def find_carried_folder(bag: Path) -> Path:
    """Return the folder of carried results in a bag's folder."""
    return bag / "before"


def read_carried(bag: Path) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return the carried ends of a bag, by task, and name and site of their agents."""
    folder = find_carried_folder(bag)
    try:
        body = (folder / "ends.bin").read_bytes()
    except FileNotFoundError:
        return np.zeros(0, END), []
    agents = [(name, site) for name, site in read_json(folder / "hosts.json", [])]
    return np.frombuffer(body, END), agents


def write_carried(
    bag: Path, ends: np.ndarray, agents: Sequence[tuple[str, str]], printed: Iterable[PrintedOutput]
) -> None:
    """Store results of earlier runs with a bag that has not started. OSError where that fails."""
    folder = find_carried_folder(bag)
    folder.mkdir()
    outputs = Outputs(folder / "printed.bin")
    try:
        texts = iter(printed)
        while bundle := list(islice(texts, _BUNDLE)):
            outputs.append(bundle)
    finally:
        outputs.close()
    write_whole(folder / "hosts.json", json.dumps(list(agents)).encode())
    # the last file: without it nothing counts as carried, so a crash leaves no half of it
    write_whole(folder / "ends.bin", ends[np.argsort(ends["task"], kind="stable")].tobytes())


def read_done_tasks(folder: Path, number: int) -> DoneTasks:
    """Return the tasks of a bag that are done, by the ends in its dispatcher's journal."""
    bag = folder / "bags" / f"{number:04d}"
    rounds = AttemptRounds(folder, number)
    before, names = read_carried(bag)
    # as attempt 0: a carried result does not count once its task was retried here
    before = before[rounds.latest(before["task"], np.zeros(len(before), np.uint16))]
    own = [ends[ends["code"] == 0] for ends in read_ends(folder / "journal", number)]
    ends = np.concatenate(own) if own else np.zeros(0, END)
    ends = ends[rounds.latest(ends["task"], ends["attempt"])]
    agents = read_agents_and_sites(folder)
    before = before.copy()
    # numbers of agents of the earlier runs follow those of this dispatcher
    before["host"] += len(agents)
    both = np.concatenate([before, ends])
    # of several ends of a task the first counts: a carried one, then the first of the journal
    _, first = np.unique(both["task"], return_index=True)
    return DoneTasks(bag, both[first], [*agents, *names], first < len(before))


def read_carried_tasks(folder: Path, number: int) -> list[int]:
    """Return the tasks of a bag that were done before it started."""
    path = find_carried_folder(folder / "bags" / f"{number:04d}") / "ends.bin"
    return read_done_tasks(folder, number).ends["task"].tolist() if path.exists() else []

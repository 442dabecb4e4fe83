"""Which jobs a command means: ids (``12,13_4,14_[1-3]``) and states (``PD,RUNNING``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vgrads.slurm.arrays import parse_indices
from vgrads.slurm.job import Job, JobState

_ID = re.compile(r"(\d+)(?:_(?:(\d+)|\[([\d,:-]*)(?:%\d+)?\]|(\*)))?(?:\.[\w+]+)?")
_WORD = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
OTHER_STATES = {
    "RESIZING": "RS",
    "RESV_DEL_HOLD": "RD",
    "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH",
    "REVOKED": "RV",
    "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
}
"""States of Slurm that jobs here never have."""


@dataclass(frozen=True)
class JobIds:
    """Ids as they were stated: whole jobs or arrays, and tasks as (array, index)."""

    jobs: frozenset[int] = frozenset()
    tasks: frozenset[tuple[int, int]] = frozenset()
    texts: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """Ids that name a step of a job, as ``12.batch``."""

    def __bool__(self) -> bool:
        return bool(self.jobs or self.tasks)

    @property
    def numbers(self) -> frozenset[int]:
        """The ids of all jobs and arrays among them."""
        return self.jobs | {array for array, _ in self.tasks}

    def matches(self, job: Job) -> bool:
        """Whether a job, or a task among an array's pending ones, is meant."""
        if job.id in self.jobs or (job.array_id is not None and job.array_id in self.jobs):
            return True
        if job.array_id is None or not self.tasks:
            return False
        if job.array_index is not None:
            return (job.array_id, job.array_index) in self.tasks
        return any((job.array_id, index) in self.tasks for index in pending_indices(job))

    def without(self, jobs: Iterable[Job]) -> list[str]:
        """Return the texts of those that no job matches."""
        every = list(jobs)
        return [text for text in self.texts if not any(map(parse_ids([text]).matches, every))]

    def select(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that are meant; stated tasks among pending ones get rows of their own."""
        result: list[Job] = []
        for job in jobs:
            if not self.matches(job):
                continue
            if job.pending_indices and not self._whole(job):
                result += [row for row in task_rows(job) if self.matches(row)]
            else:
                result.append(job)
        return result

    def _whole(self, job: Job) -> bool:
        return job.id in self.jobs or job.array_id in self.jobs


def parse_ids(texts: Iterable[str]) -> JobIds:
    """Parse ids, each text a comma-separated list. Raises ValueError with the bad word."""
    jobs: set[int] = set()
    tasks: set[tuple[int, int]] = set()
    words: list[str] = []
    steps: list[str] = []
    for text in texts:
        for word in filter(None, (part.strip() for part in _WORD.findall(text))):
            match = _ID.fullmatch(word)
            if match is None:
                raise ValueError(word)
            number = int(match[1])
            words.append(word)
            steps += [word] if "." in word else []
            if match[2]:
                tasks.add((number, int(match[2])))
            elif match[3]:
                try:
                    tasks.update((number, index) for index in parse_indices(match[3]))
                except ValueError as error:
                    raise ValueError(word) from error
            else:
                jobs.add(number)
    return JobIds(frozenset(jobs), frozenset(tasks), tuple(words), tuple(steps))


def pending_indices(job: Job) -> tuple[int, ...]:
    """Return the indices of an array's pending tasks."""
    text = job.pending_indices.partition("%")[0]
    return parse_indices(text) if text else ()


def task_rows(job: Job) -> list[Job]:
    """Return a row for each of an array's pending tasks; other jobs as they are."""
    if not job.pending_indices:
        return [job]
    return job.pending_tasks(pending_indices(job))


def parse_states(text: str) -> frozenset[JobState] | None:
    """Parse states by their long or short names; None is all of them.

    Raises ValueError with the unknown word.
    """
    result: set[JobState] = set()
    for word in filter(None, (part.strip().upper() for part in text.split(","))):
        if word == "ALL":
            return None
        state = _STATES.get(word)
        if state is not None:
            result.add(state)
        elif word not in OTHER_STATES and word not in OTHER_STATES.values():
            raise ValueError(word)
    return frozenset(result)


_STATES = {state.value: state for state in JobState} | {state.code: state for state in JobState}

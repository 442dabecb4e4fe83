"""What Slurm's commands list: jobs, partitions, accounts."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

from vgrads.api.slurm.group_chart import group_chart
from vgrads.api.slurm.groups import GroupPromises
from vgrads.api.slurm.outer import OuterSlurm
from vgrads.api.slurm.records import MIN_JOB_AGE_S, StoredSubmission
from vgrads.api.slurm.shapes import DEFAULT_PARTITION, Partitions
from vgrads.api.slurm.table import JobTable
from vgrads.api.slurm.waits import expected_wait
from vgrads.slurm.errors import Reply, command_error
from vgrads.slurm.job import Job, JobState
from vgrads.slurm.sacct import AccountingQuery, parse_sacct, render_sacct
from vgrads.slurm.sacctmgr import AccountsView, Association, parse_sacctmgr, render_sacctmgr
from vgrads.slurm.scontrol import ClusterView, ControlQuery, render_scontrol
from vgrads.slurm.sinfo import parse_sinfo, render_sinfo
from vgrads.slurm.squeue import SqueueQuery, parse_squeue, render_squeue

Answer = dict[str, Any]
"""What the program of a command reads (:mod:`vgrads.slurm.program`)."""
MAX_ARRAY_SIZE = 1_000_001
_NO_HEADER = {"squeue": "-h", "sacct": "-n"}
_REASONS = {
    "None": "",
    "Resources": "waits for a node",
    "JobHeldUser": "on hold: scontrol release",
    "Dependency": "waits for other jobs",
    "DependencyNeverSatisfied": "a job that it depends on has failed",
    "JobArrayTaskLimit": "as many tasks of its array run as may",
    "BeginTime": "its begin has not come",
}


class SlurmQueries:
    """Answers commands that change nothing."""

    def __init__(
        self,
        table: JobTable,
        partitions: Partitions,
        outer: OuterSlurm,
        user: str,
        clock: Callable[[], float],
        problem: str,
    ) -> None:
        self._table, self._partitions, self._outer = table, partitions, outer
        self._user, self._clock = user, clock
        self._groups, self._problem = GroupPromises(table, clock), problem

    def squeue(self, body: Mapping[str, Any]) -> Answer:
        """Answer ``squeue``."""
        arguments = body["arguments"]
        query = parse_squeue(arguments, body["environment"], self._user)
        if words := self._outer.instead("squeue", arguments, query.ids):
            return {"execute": words}
        since_s = self._clock() - MIN_JOB_AGE_S
        numbers = query.ids.numbers if query.has_ids else None
        jobs: Iterable[Job] = self._table.select(numbers, since_s, _make_selector(query))
        if query.start:
            jobs = self._with_starts(jobs)
        reply = render_squeue(query, jobs, self._clock())
        others = self._also("squeue", arguments, query)
        if not others:  # the real squeue states them too
            err = [f"squeue: error: Invalid user: {n}\n\n" for n in unknown_users(query.users)]
            reply = replace(reply, err="".join((*err, reply.err)))
        return answer_of(reply, others)

    def sacct(self, body: Mapping[str, Any]) -> Answer:
        """Answer ``sacct``."""
        arguments, now_s = body["arguments"], self._clock()
        query = parse_sacct(arguments, now_s, body["environment"])
        for name in unknown_users(query.users):
            raise command_error("sacct", f"Invalid user id: {name}")
        if words := self._outer.instead("sacct", arguments, query.ids):
            return {"execute": words}
        numbers = query.ids.numbers if query.has_ids else None
        jobs = list(self._table.select(numbers, selects=_make_selector(query)))
        if query.duplicates:
            jobs += [job for record in self._table.records_of(jobs) for job in record.earlier()]
        reply = render_sacct(query, jobs, now_s)
        return answer_of(reply, self._also("sacct", arguments, query))

    def _with_starts(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs, waiting ones with their expected start: after the usual wait of their
        partition."""
        # one estimate for each partition of an answer
        wait_of, now_s = cache(partial(expected_wait, self._table)), self._clock()
        for job in jobs:
            wait = wait_of(job.partition) if job.reason == "Resources" else None
            if wait is None:
                yield job
            else:
                start_s = max(now_s, job.submit_s + wait.middle_s)
                yield replace(job, expected_start_s=start_s)

    def _also(
        self, command: str, arguments: Sequence[str], query: SqueueQuery | AccountingQuery
    ) -> list[list[str]]:
        """Return the real command whose lines follow ours, unless only ours are selected."""
        if query.partitions and query.partitions <= self._partitions.sites.keys():
            return []
        # our own lines have the header already
        no_header = [_NO_HEADER[command]] if query.header else []
        return self._outer.also(command, [*no_header, *arguments], query.ids)

    def sinfo(self, body: Mapping[str, Any]) -> Answer:
        """Answer ``sinfo``."""
        query = parse_sinfo(body["arguments"], body["environment"])
        return answer_of(render_sinfo(query, self._partitions.listed(), self._clock()))

    def sacctmgr(self, body: Mapping[str, Any]) -> Answer:
        """Answer ``sacctmgr``."""
        query = parse_sacctmgr(body["arguments"])
        view = AccountsView((Association(DEFAULT_PARTITION, self._user),))
        return answer_of(render_sacctmgr(query, view))

    def status(self, _: Mapping[str, Any]) -> Answer:
        """Return the unfinished jobs: where each runs, or why it waits."""
        jobs = [job for job in self._table.select(None) if not job.state.is_terminal]
        rows = [
            {
                "job": job.shown_id,
                "name": job.name,
                "state": job.state.value.lower(),
                "where": job.node_list,
                "why": _REASONS.get(job.reason, job.reason),
            }
            for job in jobs
        ]
        groups = [asdict(status) for status in self._groups.unfinished()]
        running = any(job.state is JobState.RUNNING for job in jobs)
        return {"jobs": rows, "groups": groups, "problem": "" if running else self._problem}

    def gantt(self, body: Mapping[str, Any]) -> Answer:
        """Return the Gantt chart of a group's current run, and its promises over time as (seconds
        since its begin, probability or None); without them where there is no such group."""
        status = self._groups.status(body["group"])
        if status is None:
            return {"groups": sorted(self._table.groups)}
        chart = group_chart(status, self._groups.runs(status.name)[-1], self._clock())
        points = self._table.promises.get(status.name, ())
        since_s = [(at_s - status.began_s, share) for at_s, share in points]
        promises = [point for point in since_s if point[0] >= 0.0]
        return {"gantt": chart, "group": asdict(status), "promises": promises}

    def show(self, query: ControlQuery) -> Answer:
        """Answer ``scontrol show``."""
        now_s = self._clock()
        numbers = query.ids.numbers if query.ids else None
        # jobs that are named by their ids are shown whatever their age
        since_s = 0.0 if query.ids else now_s - MIN_JOB_AGE_S
        config = {"MinJobAge": f"{MIN_JOB_AGE_S:.0f} sec", "MaxArraySize": str(MAX_ARRAY_SIZE)}
        view = ClusterView(self._partitions.listed(), config, os.uname().nodename)
        jobs = self._with_promises(self._table.select(numbers, since_s))
        return answer_of(render_scontrol(query, jobs, view, now_s))

    def _with_promises(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs with the probability that their group keeps its deadline."""
        status_of = cache(self._groups.status)
        for job in jobs:
            group = self._table.records[job.id].submission.promise_group
            status = status_of(group) if group else None
            yield job if status is None else replace(job, promise=status.promise)


def _make_selector(query: SqueueQuery | AccountingQuery) -> Callable[[StoredSubmission], bool]:
    """Return whether a query may mean jobs of a submission; most are passed over at once."""

    def selects(job: StoredSubmission) -> bool:
        return (not query.names or job.name in query.names) and (
            not query.partitions or job.partition in query.partitions
        )

    return selects


def unknown_users(names: Iterable[str]) -> list[str]:
    """Return those that this machine does not know, neither by name nor as a number."""

    def exists(name: str) -> bool:
        try:
            pwd.getpwnam(name)
        except KeyError:
            return name.isdigit()
        return True

    return sorted(name for name in names if not exists(name))


def answer_of(reply: Reply, also: Sequence[Sequence[str]] = ()) -> Answer:
    """Return a reply as the program of a command reads it; ``also``: commands to run then."""
    answer: Answer = {"out": reply.out, "err": reply.err, "code": reply.code}
    return {**answer, "also": [list(words) for words in also]} if also else answer

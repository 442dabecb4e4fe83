"""Slurm's commands: what each answers, and what it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from vgrads.api.slurm.control import update_jobs
from vgrads.api.slurm.folders import JobFolders
from vgrads.api.slurm.journal import JobJournal
from vgrads.api.slurm.outer import OuterSlurm, is_ours_id
from vgrads.api.slurm.queries import (
    MAX_ARRAY_SIZE,
    Answer,
    SlurmQueries,
    answer_of,
    unknown_users,
)
from vgrads.api.slurm.records import JobRecord
from vgrads.api.slurm.scheduler import JobScheduler
from vgrads.api.slurm.shapes import Partitions
from vgrads.api.slurm.submission import Caller, job_spec, stored_submission, this_user
from vgrads.api.slurm.waits import ExpectedWait, expected_wait
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.slurm.errors import Reply, SlurmError, command_error
from vgrads.slurm.job import JobState
from vgrads.slurm.sbatch import (
    BatchSubmission,
    SubmissionContext,
    batch_submission,
    expected_start,
    parse_arguments,
    submission_error,
    submitted,
)
from vgrads.slurm.scancel import parse_scancel, render_scancel
from vgrads.slurm.scontrol import (
    DISABLED,
    FINISHED,
    INVALID_ID,
    IS_PENDING,
    ControlQuery,
    control_reply,
    parse_scontrol,
)
from vgrads.slurm.srun import parse_srun
from vgrads.slurm.text.padding import expanded

_WAIT_S = 1.0
_LONGEST = 100_000_000  # characters of an answer that is padded here


class SlurmCommands:
    """Answers the commands of one user. ``Answer`` is what the program of the command reads
    (:mod:`vgrads.slurm.program`). ``problem``: why no job could run in the process before."""

    def __init__(
        self,
        scheduler: JobScheduler,
        journal: JobJournal,
        folders: JobFolders,
        partitions: Partitions,
        outer: OuterSlurm,
        clock: Callable[[], float] = time.time,
        problem: str = "",
    ) -> None:
        self._scheduler, self._journal, self._folders = scheduler, journal, folders
        self._partitions, self._outer, self._clock = partitions, outer, clock
        self._table = scheduler.table
        self._user, self._uid, self._gid, self._group = this_user()
        self._queries = SlurmQueries(self._table, partitions, outer, self._user, clock, problem)
        self._answers: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
            "sbatch": self._sbatch,
            "squeue": self._queries.squeue,
            "scancel": self._scancel,
            "sacct": self._queries.sacct,
            "scontrol": self._scontrol,
            "sinfo": self._queries.sinfo,
            "sacctmgr": self._queries.sacctmgr,
            "srun": self._srun,
            "status": self._queries.status,
            "gantt": self._queries.gantt,
        }

    def answer(self, command: str, body: Mapping[str, Any]) -> Answer:
        """Answer a command. ``body``: its arguments and the state of its process."""
        if command not in self._answers:
            return answer_of(Reply("", f"no command {command}\n", 1))
        try:
            with self._scheduler.lock:
                answer = self._answers[command](body)
            return answer if body.get("pads") else _pad_answer(answer)
        except SlurmError as error:
            return answer_of(error.reply)
        except VgradsError as error:
            return answer_of(command_error(command, *error.lines).reply)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            return answer_of(command_error(command, f"{place}{error.strerror}").reply)

    # sbatch -----------------------------------------------------------------------------------

    def _sbatch(self, body: Mapping[str, Any]) -> Answer:
        environment = body["environment"]
        arguments = parse_arguments(body["arguments"], environment)
        if arguments.reply is not None:
            return answer_of(arguments.reply)
        if body["script"] is None and arguments.wrap is None:
            # the program of the command reads the script, and asks again with it
            return {"need": arguments.script or "-"}
        context = SubmissionContext(body["folder"], self._clock(), MAX_ARRAY_SIZE)
        batch = batch_submission(arguments, body["script"] or "", environment, context)
        if self._outer and batch.partition and not self._is_ours(batch.partition):
            words = self._outer.words("sbatch", body["arguments"])
            return {"execute": words, "environment": None, "stdin": body["script"]}
        if batch.test_only:
            return self._expected_start(batch, self._caller(body))
        # a command that has lost its answer asks again, and must not submit twice
        number = self._table.requests.get(body["request"])
        if number is None:
            number = self._submit(batch, self._caller(body), body["request"])
        if batch.wait and not self._is_over(number):
            return {"wait_s": _WAIT_S}
        reply = submitted(batch, number)
        # sbatch --wait ends with the highest exit code of the tasks of an array
        code = max(self._codes(number)) if batch.wait else 0
        return answer_of(replace(reply, code=code))

    def _expected_start(self, batch: BatchSubmission, caller: Caller) -> Answer:
        """Answer ``--test-only``: the usual wait for a node, and how long most waits have been."""
        now_s = self._clock()
        stored = stored_submission(batch, caller, self._partitions, "", now_s)
        wait = expected_wait(self._table, stored.partition) or ExpectedWait(0.0)
        nodes = self._partitions.nodes(stored.partition)
        request = replace(batch, partition=stored.partition)
        times = (now_s + wait.middle_s, nodes, wait.latest_s(now_s))
        return answer_of(expected_start(request, self._table.next_id, *times))

    def _is_ours(self, partition: str) -> bool:
        return any(part in self._partitions.sites for part in partition.split(","))

    def _is_over(self, number: int) -> bool:
        return all(record.state.is_terminal for record in self._table.submissions[number])

    def _codes(self, number: int) -> Iterable[int]:
        records = self._table.submissions[number]
        return [r.code or (1 if r.state is not JobState.COMPLETED else 0) for r in records]

    def _caller(self, body: Mapping[str, Any]) -> Caller:
        return Caller(
            self._user,
            self._uid,
            self._gid,
            self._group,
            body["host"],
            body["folder"],
            body["umask"],
            body["environment"],
        )

    def _submit(self, batch: BatchSubmission, caller: Caller, request: str) -> int:
        now_s = self._clock()
        stored = stored_submission(batch, caller, self._partitions, request, now_s)
        self._check_dependency(batch)
        stored = replace(stored, id=self._table.next_id)
        # before the journal: a stored job must have its script; an unused folder harms nobody
        self._folders.create(stored.id, batch.script, job_spec(stored, batch, caller))
        try:
            self._journal.write({"submitted": asdict(stored)})
        except OSError:
            self._folders.remove(stored.id)
            raise
        self._scheduler.submitted(self._table.submissions[stored.id])
        return stored.id

    def _check_dependency(self, batch: BatchSubmission) -> None:
        """Refuse to wait for a job of the real Slurm, of which nothing is known here."""
        for target in batch.dependency.targets:
            if target.job and self._outer and not is_ours_id(target.job):
                raise submission_error(
                    "Job dependency problem",
                    f"job {target.job} is one of the real Slurm: vgrads cannot wait for it",
                )

    def _srun(self, body: Mapping[str, Any]) -> Answer:
        if "srun" in self._outer.programs and "SLURM_JOB_ID" in body["environment"]:
            return {"execute": self._outer.words("srun", body["arguments"])}
        reply = parse_srun(body["arguments"], body["environment"]).reply
        if reply is None:
            raise command_error("srun", "runs inside a job only; submit a job with sbatch")
        return answer_of(reply)

    # changes ----------------------------------------------------------------------------------

    def _scancel(self, body: Mapping[str, Any]) -> Answer:
        arguments = body["arguments"]
        request = parse_scancel(arguments, body["environment"], self._user)
        if request.reply is not None:
            return answer_of(request.reply)
        for name in unknown_users(request.users):
            raise command_error("scancel", f"Invalid user name: {name}")
        others = self._outer.cancels(arguments, request.ids)
        jobs = list(self._table.select(request.ids.numbers if request.ids else None))
        records = self._table.records_of(request.select(jobs))
        if request.signal in (None, 9):
            self._scheduler.cancel(records, self._uid)
        else:
            self._scheduler.control.signal(records, int(request.signal or 15), request.receivers)
        return answer_of(render_scancel(request, jobs), others)

    def _scontrol(self, body: Mapping[str, Any]) -> Answer:
        arguments, now_s = body["arguments"], self._clock()
        query = parse_scontrol(arguments, now_s, body["environment"])
        if query.reply is not None:
            return answer_of(query.reply)
        if words := self._outer.instead("scontrol", arguments, query.ids):
            return {"execute": words}
        if query.action in ("show", "ping"):
            return self._queries.show(query)
        if query.action == "write":
            return self._batch_script(query)
        return answer_of(control_reply(query, self._control(query)))

    def _batch_script(self, query: ControlQuery) -> Answer:
        (number,) = query.ids.numbers
        record = self._table.records.get(number)
        try:
            text = self._folders.script(record.submission.id) if record else ""
        except FileNotFoundError:
            text = ""
        if not text:
            raise SlurmError(f"job script retrieval failed: {INVALID_ID}")
        return {"out": text, "err": "", "code": 0}

    def _control(self, query: ControlQuery) -> list[tuple[str, str]]:
        """Change jobs; return those that could not be changed, with the reasons."""
        jobs = list(self._table.select(query.ids.numbers if query.ids else None))
        if query.ids:
            jobs = query.ids.select(jobs)
        elif query.job_name:
            jobs = [job for job in jobs if job.name == query.job_name]
        if not jobs and not query.ids:
            return [(query.job_name, INVALID_ID)]
        missing = [(text, INVALID_ID) for text in query.ids.without(jobs)]
        records = self._table.records_of(jobs)
        if query.action == "requeue":
            tried = [(str(record.id), _requeue(self._scheduler, record)) for record in records]
            return [(number, problem) for number, problem in tried if problem] + missing
        over = [record for record in records if record.state.is_terminal]
        left = [record for record in records if not record.state.is_terminal]
        problems = [(str(record.id), FINISHED) for record in over]
        if query.action == "update":
            updated = update_jobs(left, query, self._scheduler.control, self._partitions)
            return problems + updated + missing
        running = self._scheduler.control.hold(left, query.action == "hold")
        return problems + [(str(r.id), "Job is running") for r in running] + missing


def _pad_answer(answer: Answer) -> Answer:
    """Return an answer for a program of an earlier version, which does not pad columns itself.
    Raise InputError where it would be long."""
    try:
        return {**answer, "out": expanded(answer["out"], _LONGEST)} if "out" in answer else answer
    except ValueError as error:
        raise InputError(
            f"the table has {error}", fix="state narrower columns, or run: vgrads slurm install"
        ) from error


def _requeue(scheduler: JobScheduler, record: JobRecord) -> str:
    """Run a job again; return why that cannot be, empty where it can."""
    if not record.submission.requeue:
        return DISABLED
    if record.state is JobState.PENDING:
        return IS_PENDING
    return "" if scheduler.control.requeue(record) else FINISHED

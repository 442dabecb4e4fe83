"""Runs one job on its node: ``python3 -IS job_program.py FOLDER INDEX GENERATION``.

Standard library only, Python 3.8 or newer. FOLDER has ``job.json`` and ``script``; INDEX is the
position of the job in its array, 0 for a job that is none. GENERATION counts how often a job was
requeued. The job gets the environment of ``job.json`` and nothing of this process, apart from the
mark by which an agent finds what a task leaves behind. While it runs, lines in ``signals-INDEX``
are obeyed. What became of it is printed as JSON, and stored in ``ended-INDEX-GENERATION``.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sys
import time
from contextlib import suppress

MARK = "VGRADS_COPY"
STEP = "VGRADS_SLURM_STEP"
"""Variable with the path of the program that ``srun`` is inside the job."""
STEPS = "VGRADS_SLURM_STEPS"
"""Variable with the path of a file that counts the steps of the job, a byte each."""
KILL_WAIT_S = 30.0
"""Seconds between the signal at the time limit and SIGKILL."""
_LOOK_S = 0.5
_PATTERN = re.compile(r"%(\d*)([aAbjJnNst%])")
_BLOCKED = tuple(
    getattr(signal, name)
    for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT")
)
_NO_OUTPUT = 53
"""The signal that Slurm reports where a job's output cannot be opened."""


class JobFiles:
    """A job as it was submitted: its files, its environment, and what it has stored."""

    def __init__(self, folder: str, index: int, generation: int) -> None:
        self.folder, self.index, self.generation = folder, index, generation
        with open(os.path.join(folder, "job.json"), "rb") as file:
            self.spec = json.load(file)
        self.id = self.spec["id"] + index
        self.node = os.uname().nodename.split(".")[0]
        self.began_s = 0.0
        self.lost = 0  # how often this generation was begun on nodes that were lost

    def path(self, kind: str, generation: bool = True) -> str:
        """Return the path of a file of this job."""
        suffix = f"-{self.generation}" if generation else ""
        return os.path.join(self.folder, f"{kind}-{self.index}{suffix}")

    @property
    def restarts(self) -> int:
        """How often the job was begun before."""
        return self.generation + self.lost

    def expand(self, pattern: str) -> str:
        """Insert what is known only now into a pattern of file names."""
        indices = self.spec["indices"]
        values = {
            "j": self.id,
            "J": self.id,
            "A": self.spec["id"],
            "a": indices[self.index] if indices else 4294967294,
            "b": indices[self.index] % 10 if indices else 4,
            "N": self.node,
            "n": 0,
            "t": 0,
            "s": "batch",
            "%": "%",
        }

        def insert(match: re.Match) -> str:  # type: ignore[type-arg]
            value = values[match[2]]
            width = int(match[1] or 0) if match[2] in "jJAant" else 0
            return str(value).rjust(min(width, 10), "0")

        return _PATTERN.sub(insert, pattern)

    def environment(self) -> dict:  # type: ignore[type-arg]
        """Return the environment of the job."""
        values = dict(self.spec["environment"])
        values.update(
            SLURM_JOB_ID=str(self.id),
            SLURM_JOBID=str(self.id),
            SLURM_JOB_NODELIST=self.node,
            SLURM_NODELIST=self.node,
            SLURMD_NODENAME=self.node,
            SLURM_TMPDIR=os.getcwd(),
            SLURM_JOB_START_TIME=str(int(self.began_s)),
        )
        if self.spec["indices"]:
            values["SLURM_ARRAY_TASK_ID"] = str(self.spec["indices"][self.index])
        if self.spec["limit_s"] is not None:
            values["SLURM_JOB_END_TIME"] = str(int(self.began_s + self.spec["limit_s"]))
        values[STEP] = self.spec["step_program"]
        values[STEPS] = f"{self.path('steps')}-{self.lost}"
        if self.restarts:
            values["SLURM_RESTART_COUNT"] = str(self.restarts)
        if MARK in os.environ:
            values[MARK] = os.environ[MARK]
        return values

    def change_folder(self) -> str:
        """Enter the folder of the job; return a message where that fails."""
        try:
            os.chdir(self.spec["folder"])
        except OSError as error:
            os.chdir("/tmp")
            reason = f"couldn't chdir to `{self.spec['folder']}': {error.strerror}"
            return f"slurmstepd: error: {reason}: going to /tmp instead\n"
        return ""

    def open(self) -> list:  # type: ignore[type-arg]
        """Open the standard files. Raise OSError where one cannot be opened."""
        spec = self.spec
        more = os.O_APPEND if spec["append"] or self.restarts else os.O_TRUNC
        flags = os.O_WRONLY | os.O_CREAT | more
        out = os.open(self.expand(spec["stdout"]), flags, 0o666)
        same = not spec["stderr"] or spec["stderr"] == spec["stdout"]
        err = out if same else os.open(self.expand(spec["stderr"]), flags, 0o666)
        return [os.open(self.expand(spec["stdin"]), os.O_RDONLY), out, err]


class RunningJob:
    """A job and its process. Its limits count by the monotonic clock: the calendar may be set."""

    def __init__(self, job: JobFiles) -> None:
        self.job, self._start_s = job, 0.0
        self.pid, self.kill_s = 0, 0.0
        self.state, self._read = "", 0
        self.cancelled_by = None  # type: int | None
        self.set_limit(float("inf") if job.spec["limit_s"] is None else job.spec["limit_s"])

    def set_limit(self, limit_s: float) -> None:
        """Set the time limit, in seconds since the start."""
        warning = self.job.spec["signal"]
        self.limit_s = limit_s
        self.warn_s = limit_s - warning["before_s"] if warning else float("inf")

    def start(self) -> None:
        """Start the script with its files. Raise OSError where one cannot be opened."""
        self.job.began_s, self._start_s = time.time(), time.monotonic()
        environment = self.job.environment()
        note = self.job.change_folder()
        os.umask(self.job.spec["umask"])
        files = self.job.open()
        if note:
            os.write(files[2], note.encode())
        self.pid = os.fork()
        if self.pid == 0:
            self._become(files, environment)
        with suppress(OSError):  # it has done so itself, and runs the script already
            os.setpgid(self.pid, self.pid)
        for file in set(files):
            os.close(file)

    def _become(self, files: list, environment: dict) -> None:  # type: ignore[type-arg]
        script = os.path.join(self.job.folder, "script")
        try:
            os.setpgid(0, 0)
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.closerange(3, 256)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            variables = {
                name.encode(*_TEXT): text.encode(*_TEXT) for name, text in environment.items()
            }
            words = [
                script.encode(*_TEXT),
                *(word.encode(*_TEXT) for word in self.job.spec["arguments"]),
            ]
            os.execve(words[0], words, variables)
        except OSError as error:
            message = f"slurmstepd: error: execve(): {script}: {error.strerror}\n"
            os.write(2, message.encode(*_TEXT))
        finally:
            os._exit(126)

    def send(self, number: int, to: str = "all") -> None:
        """Send a signal to the script (``batch``), to the processes of its steps (``steps``), or
        to all processes of the job."""
        if to == "steps":
            for pid in processes_of_steps(self.job.id):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            return
        with suppress(ProcessLookupError):
            if to == "batch":
                os.kill(self.pid, number)
            else:
                os.killpg(self.pid, number)

    def end(self, state: str) -> None:
        """End the job for this reason."""
        if not self.state:
            self.state = state
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            self.kill_s = time.monotonic() + KILL_WAIT_S

    def obey(self) -> None:
        """Do what new lines in the file of signals say."""
        try:
            with open(self.job.path("signals", False), "rb") as file:
                file.seek(self._read)
                lines = file.read().splitlines(keepends=True)
        except OSError:
            return
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self._read += len(line)
            words = line.decode().split()
            if int(words[1]) != self.job.generation:
                continue
            if words[0] == "signal":
                self.send(int(words[2]), words[3])
            elif words[0] == "requeue":
                self.end("REQUEUED")
            elif words[0] == "limit":
                self.set_limit(float(words[2]))
            elif words[0] == "cancel":
                self.cancelled_by = int(words[2])
                self.end("CANCELLED")

    def look(self, now_s: float) -> None:
        """Send what is due; ``now_s``: by the monotonic clock."""
        ran_s = now_s - self._start_s
        if ran_s >= self.warn_s and not self.state:
            self.warn_s = float("inf")
            self._warn()
        if ran_s >= self.limit_s:
            self.end("TIMEOUT")
        if self.kill_s and now_s >= self.kill_s:
            self.kill_s = 0.0
            self.send(signal.SIGKILL)

    def warn_of_end(self) -> None:
        """Pass on that the node is taken away: by the signal that the job has requested."""
        self._warn()
        self.send(signal.SIGTERM)

    def _warn(self) -> None:
        """Send the signal that the job has requested (``--signal``), if it has: to its steps, with
        ``B:`` to its script."""
        warning = self.job.spec["signal"]
        if warning:
            self.send(warning["number"], "batch" if warning["batch"] else "steps")

    def wait(self) -> dict:  # type: ignore[type-arg]
        """Wait for the end of the script; return what became of it."""
        while True:
            now_s = time.monotonic()
            self.look(now_s)
            self.obey()
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.send(signal.SIGKILL)  # what it has left behind
                return self._outcome(status, usage)
            due_s = min(self.warn_s, self.limit_s) + self._start_s
            due_s = min(due_s, self.kill_s or due_s) - now_s
            received = signal.sigtimedwait(_BLOCKED, max(0.01, min(_LOOK_S, due_s)))
            if received is not None and received.si_signo in (signal.SIGTERM, signal.SIGINT):
                self.warn_of_end()

    def _outcome(self, status: int, usage: object) -> dict:  # type: ignore[type-arg]
        code, number = (
            (0, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), 0)
        )
        state = self.state or ("FAILED" if code or number else "COMPLETED")
        cpu_s = usage.ru_utime + usage.ru_stime  # type: ignore[attr-defined]
        return {
            "state": state,
            "code": code,
            "signal": number,
            "start_s": self.job.began_s,
            "end_s": self.job.began_s + time.monotonic() - self._start_s,
            "node": self.job.node,
            "lost": self.job.lost,
            "cancelled_by": self.cancelled_by,
            "max_rss_kib": usage.ru_maxrss,  # type: ignore[attr-defined]
            "cpu_s": round(cpu_s, 3),
        }


_TEXT = ("utf-8", "surrogateescape")


def processes_of_steps(job: int) -> list:  # type: ignore[type-arg]
    """Return the processes that steps of a job have started, found by their environment."""
    stated = {f"SLURM_JOB_ID={job}".encode(), b"SLURM_STEP_ID"}
    result = []
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            pid = int(name)
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = file.read().split(b"\0")
            names = {entry.partition(b"=")[0] for entry in entries}
            if stated <= names.union(entries):
                result.append(pid)
    return result


def write(path: str, outcome: dict) -> None:  # type: ignore[type-arg]
    """Write a JSON file that is complete or absent."""
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w") as file:
        json.dump(outcome, file)
    os.replace(draft, path)


def ended_before(job: JobFiles, state: str, number: int = 0, why: str = "") -> dict:  # type: ignore[type-arg]
    """Return the outcome of a job that did not run here, and why, where the state does not say
    that."""
    now_s = time.time()
    return {
        "state": state,
        "code": 0 if number else 1,
        "signal": number,
        "node": job.node,
        "start_s": job.began_s or now_s,
        "end_s": now_s,
        "why": why,
    }


def carry_out(job: JobFiles) -> dict:  # type: ignore[type-arg]
    """Run a job, unless it has begun before; return what became of it."""
    earlier = read(job.path("started"))
    if earlier and not job.spec["requeue"]:
        return ended_before(job, "NODE_FAIL")
    job.lost = earlier.get("lost", 0) + 1 if earlier else 0
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    started = {"node": job.node, "start_s": time.time(), "pid": os.getpid(), "lost": job.lost}
    write(job.path("started"), started)
    running = RunningJob(job)
    try:
        running.start()
    except OSError as error:
        report(error)
        why = f"{error.filename}: {error.strerror}"
        return ended_before(job, "FAILED", _NO_OUTPUT, why)
    return running.wait()


def report(error: OSError) -> None:
    """Write an error on stderr where that is possible: its disk may be the full one."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")


def stored(folder: str, index: int, generation: int) -> dict:  # type: ignore[type-arg]
    """Return what became of a job that has run before; empty for any other."""
    return read(os.path.join(folder, f"ended-{index}-{generation}"))


def read(path: str) -> dict:  # type: ignore[type-arg]
    """Read a JSON file; empty where there is none."""
    try:
        with open(path, "rb") as file:
            return json.load(file)  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return {}


def forget_environment(folder: str, count: int) -> None:
    """Remove the environment of a submission of ``count`` jobs, where all of them have ended and
    no service runs that could run one again; one that runs removes it itself, later. Raise
    OSError."""
    place = os.path.join(folder, "..", "..", "..", "lock")
    lock = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(lock)
    started, ended = {}, {}  # type: dict[int, int], dict[int, int]
    for name in os.listdir(folder):
        kind, *numbers = name.split("-")
        if kind in ("started", "ended") and len(numbers) == 2 and all(map(str.isdigit, numbers)):
            index, generation = map(int, numbers)
            of_kind = started if kind == "started" else ended
            of_kind[index] = max(generation, of_kind.get(index, 0))
    for index in range(count):
        generation = ended.get(index, -1)
        if generation < started.get(index, 0):
            return
        if stored(folder, index, generation).get("state") == "REQUEUED":
            return
    os.unlink(os.path.join(folder, "job.json"))


def main(words: list) -> None:  # type: ignore[type-arg]
    """Run the job, print and store what became of it."""
    place = (words[0], int(words[1]), int(words[2]))
    outcome = stored(*place)
    if not outcome:
        job = JobFiles(*place)
        outcome = carry_out(job)
        try:
            write(job.path("ended"), outcome)
            with suppress(OSError):  # a service runs, or another job was faster
                forget_environment(job.folder, len(job.spec["indices"]) or 1)
        except OSError as error:
            report(error)
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

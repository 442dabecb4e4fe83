"""Stand-ins for the commands of OpenPBS and Torque, which no package offers: jobs really run.

Written after the manuals (qsub(1B), qstat(1B), qselect(1B), qdel(1B); PBS Professional Reference
Guide, Torque Administrator Guide): states, exit codes, the shapes of plain and JSON output, what
each family lacks. ``PBS_LIKE`` names the folder of the jobs, ``PBS_FLAVOUR`` is ``openpbs`` or
``torque``; a file ``down`` in the folder makes every command fail as with a dead server, ``slow``
is a delay in seconds before an answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ.get("PBS_LIKE", "."))
OPENPBS = os.environ.get("PBS_FLAVOUR", "openpbs") == "openpbs"
CORES = 8
QUEUES = {"batch": "24:00:00", "short": "00:30:00"}


def install(folder: Path) -> None:
    """Put the commands into ``folder``/bin."""
    (folder / "bin").mkdir()
    for name in ("qsub", "qstat", "qselect", "qdel", "pbsdsh"):
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        path.chmod(0o755)


def qsub(arguments: list[str]) -> int:
    options = {"-l": []}
    while arguments:
        flag = arguments.pop(0)
        if flag not in ("-N", "-r", "-j", "-o", "-S", "-l", "-q", "-A", "-a", "-W"):
            return fail(f"qsub: invalid option {flag}", 2)
        if flag == "-l":
            options["-l"].append(arguments.pop(0))
        else:
            options[flag] = arguments.pop(0)
    queue = options.get("-q", "batch")
    if queue not in QUEUES:
        return fail("qsub: Unknown queue", 170)
    limits = dict(part.split("=", 1) for part in options["-l"])
    nodes, _, each = limits["nodes"].partition(":ppn=")
    procs = int(nodes) * int(each)
    if procs > CORES:
        return fail("qsub: Job violates queue and/or server resource limits", 188)
    number = len(list(FOLDER.glob("*.job"))) + 1
    job = {
        "id": f"{number}.server",
        "name": options["-N"],
        "queue": queue,
        "procs": procs,
        "state": "Q",
        "code": None,
        "began": None,
        "limit": limits["walltime"],
        "pid": None,
        "ended": None,
        "submitted": time.time(),
        "due": time.mktime(time.strptime(options["-a"], "%Y%m%d%H%M.%S"))
        if "-a" in options
        else 0.0,
    }
    (FOLDER / f"{number}.sh").write_text(sys.stdin.read())
    hosts = [f"node{node}\n" for node in range(int(nodes)) for _ in range(int(each))]
    (FOLDER / f"{number}.nodes").write_text("".join(hosts))
    save(job)
    schedule()
    print(job["id"])
    return 0


def schedule() -> None:
    """One pass of the server: ended jobs are noted, waiting ones start while cores are free, in
    order."""
    jobs = load()
    for job in jobs:
        if job["state"] == "R" and (code := ended(job)) is not None:
            save(job | {"state": "F", "code": code, "ended": time.time()})
    jobs = load()
    free = CORES - sum(job["procs"] for job in jobs if job["state"] == "R")
    for job in jobs:
        if job["state"] == "Q" and job["procs"] <= free and job["due"] <= time.time():
            free -= job["procs"]
            start(job)


def start(job) -> None:
    number = job["id"].partition(".")[0]
    runner = f"/bin/sh {FOLDER}/{number}.sh; echo $? >{FOLDER}/{number}.code"
    process = subprocess.Popen(
        ["/bin/sh", "-c", runner],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"PBS_NODEFILE": str(FOLDER / f"{number}.nodes")},
    )
    save(job | {"state": "R", "pid": process.pid, "began": time.time()})


def ended(job) -> int | None:
    code = FOLDER / f"{job['id'].partition('.')[0]}.code"
    return int(code.read_text()) if code.exists() and code.read_text().strip() else None


def pbsdsh(arguments: list[str]) -> int:
    """One program on the host of one processor; it starts in a bare environment, and how it ended
    is not told."""
    if arguments[0] != "-n" or arguments[2] != "--":
        return fail("usage: pbsdsh [-c copies][-o][-s][-v] [-n node] program [args]...", 2)
    hosts = Path(os.environ["PBS_NODEFILE"]).read_text().split()
    if int(arguments[1]) >= len(hosts):
        return fail("pbsdsh: node number out of range", 1)
    bare = {
        "HOME": os.environ["HOME"],
        "PATH": "/usr/bin:/bin",
        "PBS_LIKE_HOST": hosts[int(arguments[1])],
        # by which tests know what belongs to them
        **{name: os.environ[name] for name in ("TMPDIR",) if name in os.environ},
    }
    subprocess.run(arguments[3:], env=bare, check=False)
    return 0


def qdel(arguments: list[str]) -> int:
    jobs = {job["id"]: job for job in load()}
    worst = 0
    for name in arguments:
        job = jobs.get(name)
        if job is None:
            worst = fail(f"qdel: Unknown Job Id {name}", 153)
        elif job["state"] == "F":
            worst = fail(f"qdel: Job has finished {name}", 35)
        else:
            if job["pid"]:
                stop(job["pid"])
            code = (256 if not OPENPBS else 265) + 15 if job["pid"] else None
            save(job | {"state": "F", "code": code, "ended": time.time()})
    schedule()
    return worst


def stop(pid: int) -> None:
    """The whole session, as the real servers do: the pilot stands in a process group of its own."""
    process = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(pid)], capture_output=True, text=True, check=False
    )
    for word in process.stdout.split():
        try:
            os.kill(int(word), signal.SIGKILL)
        except ProcessLookupError:
            continue


def qselect(arguments: list[str]) -> int:
    if "-x" in arguments and not OPENPBS:
        return fail("qselect: invalid option -- 'x'", 2)
    for job in load():
        if "-x" in arguments or job["state"] != "F" or not OPENPBS:
            print(job["id"])
    return 0


def qstat(arguments: list[str]) -> int:
    if "--version" in arguments:
        print("pbs_version = 23.06.06" if OPENPBS else "Version: 6.1.3", file=sys.stderr)
        return 0
    if "-Q" in arguments:
        for name, limit in QUEUES.items():
            print(
                f"Queue: {name}\n    queue_type = Execution\n    resources_max.walltime = {limit}\n"
                "    enabled = True\n    started = True\n"
            )
        return 0
    if not OPENPBS and ("-F" in arguments or "-x" in arguments):
        return fail("qstat: invalid option -- 'F'", 2)
    required = [a for a in arguments if a.endswith(".server")]
    jobs = [j for j in load() if (j["id"] in required if required else j["state"] != "F")]
    if "json" in arguments:
        print(
            json.dumps(
                {
                    "timestamp": int(time.time()),
                    "pbs_server": "server",
                    "Jobs": {j["id"]: shown(j) for j in jobs},
                }
            )
        )
    else:
        for job in jobs:
            print(f"Job Id: {job['id']}")
            for key, value in flat(shown(job)).items():
                print(
                    f"    {key} = {str(value)[:60]}"
                    + (f"\n\t{str(value)[60:]}" if len(str(value)) > 60 else "")
                )
            print()
    return 0


def shown(job):
    letter = job["state"] if OPENPBS or job["state"] != "F" else "C"
    now = job["ended"] or time.time()
    fields = {
        "Job_Name": job["name"],
        "Job_Owner": "me@login",
        "job_state": letter,
        "queue": job["queue"],
        "Resource_List": {"ncpus": job["procs"], "walltime": job["limit"]},
        "eligible_time": clock(now - job["submitted"]),
        "Variable_List": {"PBS_O_HOME": "/home/me", "PBS_O_PATH": "/usr/bin:" * 20},
    }
    if job["began"]:
        fields["resources_used"] = {"walltime": clock(now - job["began"])}
    if job["code"] is not None:
        fields["Exit_status"] = job["code"]
    return fields


def flat(fields):
    return {
        f"{key}.{inner}" if inner else key: item
        for key, value in fields.items()
        for inner, item in (value.items() if isinstance(value, dict) else [("", value)])
    }


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def load():
    return [
        json.loads(p.read_text()) for p in sorted(FOLDER.glob("*.job"), key=lambda p: int(p.stem))
    ]


def save(job) -> None:
    path = FOLDER / f"{job['id'].partition('.')[0]}.job"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(job))
    draft.replace(path)


def fail(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code


def main() -> int:
    if (FOLDER / "slow").exists():
        time.sleep(float((FOLDER / "slow").read_text()))
    if (FOLDER / "down").exists():
        return fail(
            f"Connection refused\n{sys.argv[1]}: cannot connect to server server (errno=15010)", 255
        )
    if sys.argv[1] == "pbsdsh":
        return pbsdsh(sys.argv[2:])
    schedule()
    return {"qsub": qsub, "qstat": qstat, "qselect": qselect, "qdel": qdel}[sys.argv[1]](
        sys.argv[2:]
    )


if __name__ == "__main__":
    sys.exit(main())

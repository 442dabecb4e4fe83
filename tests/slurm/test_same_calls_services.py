"""The same calls at a real Slurm and at a service of vgrads; the replies are compared line by line:
what both print on standard output and standard error, and how they exit."""

import os
import re
import shlex
import socket
import subprocess
from functools import partial

import pytest

from tests import waiting
from tests.services import slurm
from tests.services.fixtures import there
from tests.slurm.installed import installed

until = partial(waiting.until, seconds=60.0)

pytestmark = pytest.mark.services

SUBMISSIONS = {
    "good": "-n1 --wrap=true",
    "bad": "--wrap='exit 3'",
    "run": "--comment='two words' --wrap='exec sleep 600'",
    "hold": "-H --wrap=true",
    "array": "-H --array=0-9%2 --wrap=true",
    "after": "-d afterok:{run} --wrap=true",
    "never": "-d afterok:{bad} --wrap=true",
    "later": "--begin=now+1hour --wrap=true",
    "dropped": "-H --wrap=true",
    "ended": "--wrap='touch begun; exec sleep 600'",
}
"""Jobs at both, by name, with their arguments."""
STATES = {
    "good": "COMPLETED",
    "bad": "FAILED",
    "run": "RUNNING",
    "dropped": "CANCELLED by 0",
    "ended": "CANCELLED by 0",
}
CALLS = """
sbatch --version
sbatch --parsable -H --mem=100 --wrap=true
sbatch -H --mem=100 --wrap=true
sbatch -H --mem=100 --array=1-3 --wrap=true
sbatch -H --mem=100 --array=1-3%0 --wrap=true
sbatch --parsable -H --mem=1G -d singleton --wrap=true
sbatch -H --mem=100 -d afterany:{run}:{array}_3,afternotok:{bad} --wrap=true
sbatch --no-such-option --wrap=true
sbatch -H --array=x --wrap=true
sbatch -H -t abc --wrap=true
sbatch -H --mem=abc --wrap=true
sbatch -H -n abc --wrap=true
sbatch -H -d afterok:x --wrap=true
sbatch -H -d sometimes:{run} --wrap=true
sbatch -H --begin=yesterdayish --wrap=true
sbatch -H --signal=NOPE --wrap=true
sbatch -H --export
sbatch -H -p nowhere --wrap=true
sbatch -H -t 999999999999999 --wrap=true
sbatch -H --gres=gpu:1 --wrap=true
sbatch -H --gpus=1 --wrap=true
sbatch -H -C nonexistent --wrap=true
sbatch -H -c 5000 --wrap=true
sbatch no-such-script
sbatch /dev/null
squeue -h -o '%i|%t|%j|%u|%C|%D'
squeue -h -t all -o '%i|%T|%r|%j'
squeue -h --states=all --noheader -o '%i %t' -u root
squeue -h -t PD -o '%.22i %.9P %.8j %.8u %.2t %.6D %r'
squeue -t all --me -O JobArrayID,StateCompact,Reason
squeue --noheader --format='%i|%T' --states=all --name run
squeue -h -r -n array -o '%i %t %r'
squeue -h -t R -o '%i^^^%t^^^%r^^^%u^^^%D^^^%C^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V'
squeue -h -j {run},{bad} -t all -o '%i %t %R'
squeue -h -j {array}_3 -o '%i %t'
squeue -j 99999
squeue -j 99999,99998
squeue -j abc
squeue -t nonsense
squeue -o '%i %!'
squeue --no-such-option
squeue --version
sacct -X -n -P -o JobID,JobName,State,ExitCode
sacct -X -P -o JobIDRaw,State,ExitCode,Submit,Start,End -j {good},{bad},{run}
sacct -n -j {good},{bad} -P -S now-1day -E now+1day --format JobIDRaw,State,ExitCode
sacct -X --parsable2 --noheader --format=JobIdRaw,State --starttime now-1day --name bad
sacct -X --noheader --format=jobid,state%20 --job {good}
sacct -p -n -X -o User,Partition,AllocCPUS,NNodes,Timelimit -j {run}
sacct -n -P -o JobID,State,NTasks -j {good}
sacct -X -n -P -s F,CA -o JobID,State
sacct -n -j 99999
sacct -j abc
sacct -o nonsense
sacct -s nonsense
sacct -S nonsense
sacct --no-such-option
sacct --version
scontrol -o show job {hold}
scontrol show job {later}
scontrol show job 99999
scontrol show job abc
scontrol show nonsense
scontrol show hostnames n[2-4,05],m07
scontrol --version
scontrol ping
scontrol update
scontrol update JobId=99999 TimeLimit=5
scontrol update JobId=abc TimeLimit=5
scontrol update JobId={hold}
scontrol update TimeLimit=5
scontrol update JobId={hold} Nonsense=3
scontrol update JobId={hold} TimeLimit=abc
scontrol update JobId={good} TimeLimit=5
scontrol update JobId={hold} TimeLimit=7 JobName=other Comment=changed
scontrol update job {hold} TimeLimit=+3
scontrol update JobId={hold} TimeLimit=-30
scontrol update JobId={hold} ArrayTaskThrottle=3
scontrol update JobId={hold} Partition=nowhere
scontrol update JobId={hold} Requeue=0
scontrol update JobId={run} StartTime=now+1hour
scontrol update JobId={array} ArrayTaskThrottle=3
scontrol update JobId={array} TimeLimit=+3
scontrol -o show job {hold}
squeue -h -r -j {array} -o '%i %t %r %l'
scontrol release 99999
scontrol hold {good}
scontrol hold 99999
scontrol requeue {hold}
scontrol hold
scontrol --no-such-option
scancel
scancel 99999
scancel -Q 99999
scancel abc
scancel -t nonsense {run}
scancel -s NOPE {run}
scancel {good}
scancel --no-such-option
scancel --version
sinfo -h -o '%P|%a'
sinfo -o %P
sinfo -p nowhere -o '%P %a %l'
sinfo --no-such-option
sinfo --version
srun --version
sacctmgr -n -s list user root format=user%10
sacctmgr show user nobody
sacctmgr list user format=nonsense
sacctmgr list nonsense
sacctmgr --no-such-option
sacctmgr --version
squeue -u nosuchuser
squeue -p nowhere
squeue -h -n nothing
squeue -j {run},99999 -h -o '%i %t'
squeue --start -h -o '%i %S %r' -n later,hold
sacct -u nosuchuser
sacct -X -n -P -o JobID,Eligible,Timelimit,ReqMem -j {later},{hold},{dropped}
sacct -X -n -P -o Reason,State,Submit,Start,End,Elapsed -j {never},{dropped}
sacct -b -P -j {bad}
sacct -X -n -P -o JobID,State -S 2020-01-01 -E 2020-01-02
sacct -X -n -P -o JobID,State -S now-1hour -s PD
scontrol -Q show job 99999
scontrol show partition nowhere
scontrol requeue {good},99999
scontrol write batch_script {hold} -
scontrol write batch_script 99999 -
scancel -u nosuchuser
scancel -p nowhere
scancel -n nothing
scancel 99999 99998
scancel {array}_77
sbatch -H --wrap
sbatch --wrap=true no-such-script
sbatch -H -N 5 --wrap=true
sbatch -H -N x --wrap=true
sbatch -H -n 0 --wrap=true
sbatch -H -c 0 --wrap=true
sbatch -H -d afterok:99999 --wrap=true
sbatch -H -d aftercorr:{run} --wrap=true
sbatch -H --mail-type=NOPE --wrap=true
sbatch -H --open-mode=x --wrap=true
sbatch -H --nice=x --wrap=true
sbatch -H --array=5-1 --wrap=true
sbatch -H --array=0-9:0 --wrap=true
sbatch -H -o /no/such/folder/x --wrap=true
scontrol release {hold}
scontrol hold {later}
scancel {array}_[0-8]
squeue -h -j {array} -o '%i %t %r'
scancel -v {array}
scancel -n run,later
""".strip().splitlines()
DIFFERENT = {
    "sbatch --no-such-option --wrap=true": "exit 1, as an issue of the project requires",
    "sbatch -H --export": "the same",
    "sbatch -H --wrap": "the same",
    "sbatch -H -N 5 --wrap=true": "jobs of several nodes are refused, with what to do",
    "sbatch -H --mail-type=NOPE --wrap=true": "vgrads sends no mail and reads no such option",
    "scontrol write batch_script 99999 -": "exit 1 where nothing was written",
    "scontrol update JobId={hold} TimeLimit=-30": "the job is named",
    "sbatch -H -c 5000 --wrap=true": "the largest node is named",
    "sbatch -H --gres=gpu:1 --wrap=true": "the option is named, and how to ignore it",
    "sbatch -H --gpus=1 --wrap=true": "the same",
    "sbatch -H -C nonexistent --wrap=true": "the same",
}
"""Calls whose replies differ on purpose, with the reason."""
VARYING = re.compile(
    r" ?AccrueTime=\S+| ?Account=\S+|Priority=\d+| ?AllocNode:Sid=\S+|LastSchedEval=\S+"
    r"|Scheduler=\S+| SchedNodeList=\S+|Power=.*"
)
HOST = socket.gethostname().partition(".")[0]
REAL_NAMES = {
    r"(?<!\.)\bbatch\b(?! job)": "(part)",
    r"\bdebug\b": "(other)",
    r"\btoy\b": "(cluster)",
    rf"\bn1\b|\b{HOST}\b": "(node)",
}
OUR_NAMES = {r"\bvgrads-[a-z]+": "(other)", r"\bvgrads\b": "(part)", rf"\b{HOST}\b": "(node)"}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
CLOCK = re.compile(r"(?<![\d:-])(?:\d+:)?\d?\d:\d\d(?![\d:])")


class Side:
    """One of both, with its jobs and with the names that only it has."""

    def __init__(self, folder, environment, names):
        self.folder, self.environment, self.names = folder, environment, names
        self.ids = {}

    def call(self, *words):
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )
        return done.stdout, done.stderr, done.returncode

    def submit_all(self):
        for name, text in SUBMISSIONS.items():
            words = shlex.split("-t 10 --mem=100 " + text.format(**self.ids))
            out, err, code = self.call("sbatch", "--parsable", "-J", name, *words)
            assert code == 0, err
            self.ids[name] = int(out)
        self.wait({"ended": "RUNNING"})
        until((self.folder / "begun").exists, "the script of the job that is cancelled")
        self.call("scancel", str(self.ids["dropped"]), str(self.ids["ended"]))
        self.wait(STATES)
        reason = partial(self.call, "squeue", "-h", "-o", "%r", "-j", str(self.ids["never"]))
        until(lambda: reason()[0] == "DependencyNeverSatisfied\n", lambda: str(reason()))

    def wait(self, states):
        def shown():
            ids = ",".join(str(self.ids[name]) for name in states)
            return self.call("sacct", "-X", "-n", "-P", "-o", "JobName,State", "-j", ids)[0]

        def as_stated():
            return dict(line.split("|") for line in shown().splitlines()) == states

        until(as_stated, shown)

    def reply(self, call):
        """Its reply, with labels for what differs between any two clusters."""
        out, err, code = self.call(*shlex.split(call.format(**self.ids)))
        if call.startswith("sbatch") and (new := re.search(r"(?<![\d.])\d+$", out.strip())):
            self.ids[call] = int(new[0])
        return sorted(self.neutral(out).splitlines()), self.neutral(err).splitlines(), code

    def neutral(self, text):
        text = INSTANT.sub("(time)             ", VARYING.sub("", text))
        text = CLOCK.sub("(clock)", text)
        for name, number in self.ids.items():
            label = f"({name})" if name in SUBMISSIONS else "(new)"
            text = labelled(text, rf"(?<!\d){number}(?!\d)", label, r"(?:_\[?[\d,%-]+\]?)?")
        text = text.replace(str(self.folder), "(folder)")
        for pattern, label in self.names.items():
            text = labelled(text, pattern, label)
        return text


def labelled(text, pattern, label, suffix=""):
    """Replace a word, not what follows it, and keep the width of its column."""

    def insert(match):
        before, word, after = match[1], match[2] + match[3], match[4]
        shown = label + match[3]
        if len(before) > 1:
            return shown.rjust(len(before) + len(word)) + after
        return before + (shown.ljust(len(word) + len(after)) if len(after) > 1 else shown + after)

    return re.sub(rf"( *)({pattern})({suffix})( *)", insert, text)


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """The real Slurm and vgrads, with the same jobs."""
    there(slurm.missing())
    folder, work = tmp_path_factory.mktemp("slurm"), tmp_path_factory.mktemp("work")
    with (
        slurm.slurm_service(folder, nodes=1, first_id=6_000_001) as service,
        installed(tmp_path_factory.mktemp("vgrads") / "v") as ours,
    ):
        both = (
            Side(work, os.environ | service.environment, REAL_NAMES),
            Side(ours.work, ours.environment, OUR_NAMES),
        )
        for side in both:
            side.submit_all()
        yield both


@pytest.mark.parametrize("call", CALLS)
def test_both_reply_alike(sides, call):
    real, ours = (side.reply(call) for side in sides)
    if call in DIFFERENT:
        assert real != ours
    else:
        assert ours == real

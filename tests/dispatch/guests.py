"""Hosts that come by invitation, as processes of this machine: honest ones and black holes."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress

from tests.conftest import ROOT
from tests.waiting import until


def start_bag(folder, document, *options):
    """``vgrads bags run`` in a process of its own; what it says goes to ``folder/log``."""
    (folder / "bag.yaml").write_text(document)
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vgrads",
                "bags",
                "run",
                str(folder / "bag.yaml"),
                *map(str, options),
            ],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def bag_of(folder):
    """The id of the bag that was started."""
    results = []
    until(
        lambda: (
            results.extend(re.findall(r"bag-[0-9a-f]{10}", (folder / "log").read_text())) or results
        )
    )
    return results[0]


def invite(folder, *options):
    """A script that brings a host, once the bag's dispatcher listens."""
    bag, path = bag_of(folder), folder / "join.sh"
    until((folder / "home" / "dispatchers" / bag / "port").exists)
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "vgrads",
            "bags",
            "invite",
            bag,
            *(options or ("--contact", "127.0.0.1")),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    path.write_text(answer.stdout)
    return path


class Guests:
    """Agents that were started with an invitation, by name."""

    def __init__(self):
        self.processes = {}

    def start(self, script, name, **more):
        """One more, with one processor; ``more``: variables of its environment, which its tasks see
        too."""
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("VGRADS_", "PYTHON"))
        }
        environment |= {"VGRADS_HOST_NAME": name, "VGRADS_HOST_PROCS": "1", **more}
        environment["VGRADS_PASS_ENV"] = " ".join(more)
        self.processes[name] = subprocess.Popen(
            ["sh", str(script)], env=environment, cwd="/", start_new_session=True
        )

    def stop(self):
        """End those that have not ended by themselves: asked first, so that they leave no files."""
        for process in self.processes.values():
            for number in (signal.SIGTERM, signal.SIGCONT):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

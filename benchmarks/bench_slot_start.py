"""From the start of a Slurm job to the begin of its first task, the start of the agent included.

    python benchmarks/bench_slot_start.py [--runs 12]

A throw-away Slurm of two nodes; each run is one task in one slot, begun by ``vgrads run``. Both
instants are written by the node: the first by the script that begins the agent's interpreter,
before the agent is unpacked; the second by the task. The alternative in the same run: the same
``date`` as a step of a job that ``sbatch`` begins, without any agent.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.services.slurm import slurm_service
from vgrads.kernel.text_table import pad

_SITES = """
[[site]]
name = "slurm"
kind = "batch"
procs = 4
cores_per_node = 2
driver = "slurm"
[site.access]
python = "{folder}/python"
[[site.queue]]
name = "batch"
max_walltime = "1h"
max_jobs = 2
stated_probability = 0.99
stated_wait = "20s"
"""
_PYTHON = '#!/bin/sh\n[ -e {folder}/ready ] || date +%s.%N > {folder}/ready\nexec {python} "$@"\n'
_SET = """
name: start
deadline: 30m
workflows:
  - name: w
    tasks:
      - id: first
        runtime_s: 5
        command: date +%s.%N > begun
        outputs: [begun]
"""
_PLAIN = "#!/bin/sh\ndate +%s.%N > {folder}/ready\nsrun sh -c 'date +%s.%N > {folder}/begun'\n"


def ours(folder: Path) -> float:
    """Seconds between both instants in a planned run."""
    (folder / "sites.toml").write_text(_SITES.format(folder=folder))
    (folder / "set.yaml").write_text(_SET)
    (folder / "python").write_text(_PYTHON.format(folder=folder, python=sys.executable))
    (folder / "python").chmod(0o755)
    words = ["run", "set.yaml", "--sites", "sites.toml"]
    run = subprocess.run(
        [sys.executable, "-m", "vgrads", *words],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "VGRADS_HOME": str(folder / "home")},
    )
    if run.returncode:
        sys.exit(run.stdout + run.stderr)
    return _between(folder / "ready", next((folder).rglob("results/begun")))


def plain(folder: Path) -> float:
    """The same of a step of a job without an agent."""
    (folder / "job.sh").write_text(_PLAIN.format(folder=folder))
    submit = ["sbatch", "--wait", "-n1", "job.sh"]
    subprocess.run(submit, cwd=folder, check=False, capture_output=True)  # it may miss the end
    return _between(folder / "ready", folder / "begun")


def _between(ready: Path, begun: Path) -> float:
    return float(begun.read_text()) - float(ready.read_text())


def main() -> None:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=12)
    runs = parser.parse_args().runs
    seconds: dict[str, list[float]] = {"our agent": [], "a step of Slurm": []}
    with tempfile.TemporaryDirectory() as folder:
        (service_folder := Path(folder) / "slurm").mkdir()
        with slurm_service(service_folder, 2) as service:
            os.environ.update(service.environment)
            for number in range(runs):
                for name, measure in (("our agent", ours), ("a step of Slurm", plain)):
                    (place := Path(folder) / f"{number}.{measure.__name__}").mkdir()
                    seconds[name].append(measure(place))
    for name, of_name in seconds.items():
        low, high = min(of_name), max(of_name)
        print(f"{pad(name, 16)} {median(of_name):.2f} s median of {runs}, {low:.2f} to {high:.2f}")
    print(f"ratio {median(seconds['our agent']) / median(seconds['a step of Slurm']):.2f}")


if __name__ == "__main__":
    main()

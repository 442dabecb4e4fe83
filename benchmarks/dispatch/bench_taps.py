"""Applications of TaPS over vgrads.Executor, Dask, Parsl, Ray and the pool of processes.

    TAPS_PYTHON=PYTHON python benchmarks/dispatch/bench_taps.py [--rounds 3] [--scale 1.0]

TaPS (Pauloski et al., eScience 2024, doi:10.1109/e-Science62913.2024.10678702): ``cholesky``,
``mapreduce``, ``synthetic`` in four structures, each over all executors in turn, in an order that
changes, with two processes. The seconds are those that TaPS prints for the application: from the
first submission to the last result, without the start of the executor. (Parsl's and Ray's workers
import TaPS with their first calls, the others before.) Then its kinds of failure:
40 calls of which each fifth fails; the others must end well, and all within five minutes.
``node-killed`` ends every process of a machine, ``memory`` takes all of its memory, ``timeout``
never ends by definition: these three are not run.

``TAPS_PYTHON`` names an interpreter that has TaPS, its executors and what vgrads needs; without it
nothing is measured, which is said.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from rounds import interleaved, median_ratio

_ROOT = Path(__file__).parents[2]
_PLUGIN = Path(__file__).with_name("taps_plugin.py")
OURS = "vgrads"
EXECUTORS = {
    OURS: "max_workers=2",
    "dask": "workers=2",
    "parsl-local": "workers=2",
    "ray": "num_cpus=2",
    "process-pool": "max_processes=2",
}
FAILURES = ("dependency", "failure", "import", "ulimit", "worker-killed", "manager-killed")
_LIMIT_S = 300
_FINISHED = re.compile(r"Finished app \(elapsed=([\d.]+)s\)")


def applications(scale: float) -> dict[str, list[str]]:
    """Return the words of TaPS for each application."""
    tasks = str(max(4, round(500 * scale)))
    blocks = str(64 * max(2, round(8 * scale)))
    words = str(round(100_000 * scale))
    result = {
        "cholesky": ["--app.block_size", "64", "--app.matrix_size", blocks],
        "mapreduce": ["--app.generate", "true", "--app.generated_words", words],
    }
    result["mapreduce"] += ["--app.data_dir", "files"]
    for structure in ("bag", "diamond", "reduce", "sequential"):
        result[f"synthetic, {structure}"] = [
            *("--app.structure", structure, "--app.task_count", tasks),
            *("--app.bag_max_running", "32", "--app.warmup_tasks", "2"),
        ]
    return result


def _run(words: Sequence[str], limit_s: float) -> str:
    """Return what a program prints, in a folder and a session of its own."""
    python = Path(os.environ["TAPS_PYTHON"])
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    environment["PATH"] = f"{python.parent}:{environment['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        environment["VGRADS_HOME"] = f"{folder}/home"
        done = subprocess.run(
            [str(python), str(_PLUGIN), *words],
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=limit_s,
            start_new_session=True,  # what ends its parent ends nothing of this program
            check=False,
        )
    return done.stdout + done.stderr


def _options(executor: str) -> list[str]:
    name, _, value = EXECUTORS[executor].partition("=")
    return ["--engine.executor", executor, f"--engine.executor.{name}", value]


def measure(app: str, words: Sequence[str], executor: str) -> float | str:
    """Return the seconds of an application, or why there are none."""
    line = ["run", "--app", app.partition(",")[0], *words, *_options(executor)]
    try:
        told = _run(line, 2 * _LIMIT_S)
    except subprocess.TimeoutExpired:
        return "did not end"
    found = _FINISHED.search(told)
    return float(found[1]) if found else (told.strip().splitlines() or ["?"])[-1][:100]


def describe_failures(kind: str, executor: str) -> str:
    """Return what became of calls of which each fifth fails."""
    try:
        told = _run(["fail", kind, executor, *EXECUTORS[executor].split()], _LIMIT_S).split("\n")
    except subprocess.TimeoutExpired:
        return "hangs"
    counts = [line.split() for line in told if re.fullmatch(r"\d+ \d+ \d+ [\d.]+", line)]
    if not counts:
        return "ended with it"
    _, chosen, others, seconds = counts[-1]
    return f"{chosen} of 8; {others} others; {seconds} s"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", choices=("applications", "failures"))
    chosen = parser.parse_args()
    if not os.environ.get("TAPS_PYTHON"):
        print("TaPS: not measured: TAPS_PYTHON names no interpreter that has it")
        return
    if chosen.only != "failures":
        head = ["application", "rounds", "load before", "vgrads s"]
        head += [f"{name} ÷ it" for name in EXECUTORS if name != OURS]
        print(f"| {' | '.join(head)} |\n|---|{'--:|' * (len(head) - 1)}")
        for app, words in applications(chosen.scale).items():
            programs: dict[str, Callable[[], float | str]] = {
                name: partial(measure, app, words, name) for name in EXECUTORS
            }
            results = interleaved(programs, chosen.rounds)
            ours = results.pop(OURS)
            row = [app, str(len(ours.values)), ours.load_range, f"{median(ours.values):.2f}"]
            for name in EXECUTORS:
                if name in results:
                    row.append(f"{median_ratio(results[name].values, ours.values):.2f}")
                elif name != OURS:
                    row.append("–")
            print(f"| {' | '.join(row)} |", flush=True)
        print()
    if chosen.only != "applications":
        print(f"| kind of failure | {' | '.join(EXECUTORS)} |\n|---|{'---|' * len(EXECUTORS)}")
        for kind in FAILURES:
            cells = [describe_failures(kind, name) for name in EXECUTORS]
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

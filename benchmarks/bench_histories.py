"""How long does it take to read a history of 200,000 lines, in each format?

``python benchmarks/bench_histories.py [--jobs 200000] [--times 3] [--before CHECKOUT]``: the same
jobs in every dialect of the tests, read in interpreters of their own, one format after the other,
so many times. Printed are the fewest seconds of processors of each and the ratio to a table of
``sacct``; with a checkout of an earlier version, its seconds, interleaved, and the ratio to them.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.traces.dialects import DIALECTS  # noqa: E402 of this checkout
from vgrads.kernel.streams import stream  # noqa: E402 of this checkout
from vgrads.kernel.text_table import build_table, table_lines  # noqa: E402 of this checkout
from vgrads.traces.records import JobLog  # noqa: E402 of this checkout

READ = """
import sys, time
sys.path.insert(0, sys.argv[1])
import pandas  # part of what other readers need: not the time of reading
from vgrads.traces.history import read_history
before = time.process_time()
try:
    log = read_history(sys.argv[2])
except Exception as error:
    print("-", type(error).__name__)
else:
    print(time.process_time() - before, len(log))
"""
REFERENCE = "sacct, as asked for"


def make_jobs(count: int) -> JobLog:
    """Independent jobs with whole seconds and requested times of whole hours."""
    draws = stream(0, "benchmark of histories")
    return JobLog(
        name="made up",
        submit_s=np.cumsum(draws.integers(1, 300, count)).astype(float),
        wait_s=draws.integers(0, 20_000, count).astype(float),
        run_s=draws.integers(10, 80_000, count).astype(float),
        procs=2 ** draws.integers(0, 6, count),
        request_s=3600.0 * draws.integers(1, 48, count),
        user=draws.integers(1, 200, count),
        queue=draws.integers(1, 4, count),
        started=np.ones(count, dtype=bool),
        unix_start_s=1_500_000_000.0,
        max_procs=4096,
    )


def read_once(checkout: Path, path: Path) -> float | None:
    """Return the seconds of processors of one reading; None if the format is not known there."""
    command = [sys.executable, "-P", "-c", READ, str(checkout), str(path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=checkout)
    seconds = answer.stdout.split()[0]
    return None if seconds == "-" else float(seconds)


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    chosen = parser.parse_args()
    log = make_jobs(chosen.jobs)
    now: dict[str, float] = {}
    before: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        files = {}
        for number, (name, write) in enumerate(DIALECTS.items()):
            files[name] = Path(folder) / f"history-{number}"
            files[name].write_text(write(log), encoding="utf-8")
        for _ in range(chosen.times):
            for name, path in files.items():
                for results, checkout in ((now, ROOT), (before, chosen.before)):
                    seconds = None if checkout is None else read_once(checkout.resolve(), path)
                    if seconds is not None:
                        results[name] = min(seconds, results.get(name, seconds))
    rows = []
    for name, seconds in now.items():
        earlier = f"{seconds / before[name]:.2f}" if name in before else "new"
        ratios = (f"{seconds / now[REFERENCE]:.2f}", earlier if chosen.before else "")
        rows.append((name, f"{seconds:.2f}", *ratios))
    print("\n".join(table_lines(build_table(("dialect", "s", "÷ sacct", "÷ before"), rows), 100)))


if __name__ == "__main__":
    main()

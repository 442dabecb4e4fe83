"""How long does ``import vgrads`` take? Against importing a module of the standard library.

``python benchmarks/bench_import.py [--times 15] [LOG …]``: each import in an interpreter of its
own, the fastest and the median of them; the limit is 50 ms. Below, the first use of a name of each
kind, and the first call of an executor. Then ``vgrads plan data/lead.yaml`` on a machine that has
compiled nothing, and again; and ``vgrads forecast LOG`` with compiled code, from a log that it has
not read before.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

LIMIT_MS = 50.0
_CODE = "import time; t = time.perf_counter(); {}; print((time.perf_counter() - t) * 1000)"
STATEMENTS = {
    "import json": "import json",
    "import vgrads": "import vgrads",
    "vgrads.Client": "import vgrads; vgrads.Client",
    "vgrads.bound": "import vgrads; vgrads.bound",
    "vgrads.plan": "import vgrads; vgrads.plan",
    "vgrads.Bag": "import vgrads; vgrads.Bag",
    "vgrads.Executor().submit(abs, -1).result()": (
        "import vgrads; vgrads.Executor().submit(abs, -1).result()"
    ),
}


def milliseconds(statement: str, times: int) -> list[float]:
    """How long a statement takes in new interpreters; the first one only warms up the disk."""
    command = [sys.executable, "-P", "-c", _CODE.format(statement)]
    taken = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(times + 1)
    ]
    return taken[1:]


_COMMAND = """
import sys, time
from vgrads.kernel.compile_state import announce_compilation
from vgrads.portal.main import main
spans = []
def note(begins):
    spans.append(-time.process_time() if begins else time.process_time())
try:
    with announce_compilation(note):
        main(sys.argv[1:])
finally:
    print(sum(spans), file=sys.stderr)
"""


_PLAN = ("plan", "data/lead.yaml", "--json")
Taken = tuple[float, float, float]


def run_once(home: Path, compiled: Path, *words: str) -> Taken:
    """Run a command in a new process: seconds, seconds of processors, and those of compiling."""
    environment = {**os.environ, "VGRADS_HOME": str(home), "NUMBA_CACHE_DIR": str(compiled)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *words],
        env=environment,
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, used_s, float(done.stderr.split()[-1])


def bench_commands(times: int, logs: list[Path]) -> None:
    """The first plan on a machine, and later ones; forecasts of a home without anything."""
    rows = {}
    with TemporaryDirectory() as name:
        home, compiled = Path(name) / "home", Path(name) / "compiled"
        rows["`vgrads plan data/lead.yaml`, first on a machine"] = run_once(home, compiled, *_PLAN)
        later = [run_once(home, compiled, *_PLAN) for _ in range(times)]
        rows["later, fastest"] = find_fastest(later)
        for log in logs:
            words = ("forecast", str(log.absolute()), "--procs", "16", "--walltime", "2h")
            runs = [run_once(Path(name) / f"{log.name}{n}", compiled, *words) for n in range(times)]
            rows[f"`vgrads forecast {log.name}`, fastest"] = find_fastest(runs[1:] or runs)
    print("\n| command | s | CPU s | of them compiling |\n|---|--:|--:|--:|")
    for row, (seconds, used_s, compiling_s) in rows.items():
        print(f"| {row} | {seconds:.2f} | {used_s:.2f} | {compiling_s:.2f} |")


def find_fastest(runs: list[Taken]) -> Taken:
    """Return the least value of each column."""
    return (min(run[0] for run in runs), min(run[1] for run in runs), min(run[2] for run in runs))


def main() -> None:
    """The table, and whether the limit holds."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("logs", nargs="*", type=Path)
    arguments = parser.parse_args()
    times: int = arguments.times
    measured = {name: milliseconds(code, times) for name, code in STATEMENTS.items()}
    baseline = median(measured["import json"])
    print("| statement | fastest, ms | median, ms | to import json |\n|---|---|---|---|")
    for name, taken in measured.items():
        middle = median(taken)
        print(f"| `{name}` | {min(taken):.1f} | {middle:.1f} | {middle / baseline:.1f} |")
    verdict = "kept" if median(measured["import vgrads"]) <= LIMIT_MS else "exceeded"
    print(f"\nThe limit of {LIMIT_MS:.0f} ms for `import vgrads` is {verdict}.")
    bench_commands(5, arguments.logs)


if __name__ == "__main__":
    main()

"""How long does ``import vgrads`` take? Against importing a module of the standard library.

``python benchmarks/bench_import.py [--times 15]``: each import in an interpreter of its own, the
fastest and the median of them; the limit is 50 ms. Below, the first use of a name of each kind.
Then ``vgrads plan data/lead.yaml`` on a machine that has compiled nothing, and again.
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
}


def milliseconds(statement: str, times: int) -> list[float]:
    """How long a statement takes in new interpreters; the first one only warms up the disk."""
    command = [sys.executable, "-P", "-c", _CODE.format(statement)]
    taken = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(times + 1)
    ]
    return taken[1:]


_PLAN = """
import sys, time
from vgrads.kernel.compile_state import announce_compilation
from vgrads.portal.main import main
spans = []
def note(begins):
    spans.append(-time.process_time() if begins else time.process_time())
try:
    with announce_compilation(note):
        main(["plan", "data/lead.yaml", "--json"])
finally:
    print(sum(spans), file=sys.stderr)
"""


def plan_once(home: Path) -> tuple[float, float, float]:
    """Plan in a new process: seconds, seconds of processors, and those of compiling."""
    environment = {
        **os.environ,
        "VGRADS_HOME": str(home / "home"),
        "NUMBA_CACHE_DIR": str(home / "compiled"),
    }
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _PLAN],
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


def bench_plans(times: int) -> None:
    """The first plan on a machine, and later ones."""
    with TemporaryDirectory() as folder:
        first = plan_once(Path(folder))
        later = [plan_once(Path(folder)) for _ in range(times)]
    fastest = tuple(min(column) for column in zip(*later, strict=True))
    print("\n| `vgrads plan data/lead.yaml` | s | CPU s | of them compiling |\n|---|---|---|---|")
    for name, row in (("first on a machine", first), ("later, fastest", fastest)):
        print(f"| {name} | {row[0]:.2f} | {row[1]:.2f} | {row[2]:.2f} |")


def main() -> None:
    """The table, and whether the limit holds."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    times = parser.parse_args().times
    measured = {name: milliseconds(code, times) for name, code in STATEMENTS.items()}
    baseline = median(measured["import json"])
    print("| statement | fastest, ms | median, ms | to import json |\n|---|---|---|---|")
    for name, taken in measured.items():
        middle = median(taken)
        print(f"| `{name}` | {min(taken):.1f} | {middle:.1f} | {middle / baseline:.1f} |")
    verdict = "kept" if median(measured["import vgrads"]) <= LIMIT_MS else "exceeded"
    print(f"\nThe limit of {LIMIT_MS:.0f} ms for `import vgrads` is {verdict}.")
    bench_plans(5)


if __name__ == "__main__":
    main()

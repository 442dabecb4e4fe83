"""How long does ``import vgrads`` take? Against importing a module of the standard library.

``python benchmarks/bench_import.py [--times 15]``: each import in an interpreter of its own, the
fastest and the median of them; the limit is 50 ms. Below, the first use of a name of each kind.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from statistics import median

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


if __name__ == "__main__":
    main()

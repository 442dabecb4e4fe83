"""Where the time goes on the three slowest paths: ``python scripts/profile_slowest.py [LOG]``."""

from __future__ import annotations

import cProfile
import pstats
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks are no package that is installed

from benchmarks.bench_planner import large_set
from benchmarks.bench_virtual import virtual
from vgrads.api.config import embedded_data
from vgrads.kernel.text_table import build_table, table_lines
from vgrads.planner.make import make_plan
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state_forecast import forecast_state
from vgrads.traces.history import read_history

SHOWN = 6


def profile(name: str, work: Callable[[], object]) -> None:
    """Run it twice, the second time watched; own time by function."""
    work()
    watched = cProfile.Profile()
    watched.runcall(work)
    stats = pstats.Stats(watched)
    total = sum(entry[2] for entry in stats.stats.values())
    print(f"\n{name}: {total:.1f} s under the profiler")
    by_own = sorted(stats.stats.items(), key=lambda item: -item[1][2])
    rows = []
    for (file, _, function), (_, calls, own, _, _) in by_own[:SHOWN]:
        place = Path(file).stem if file != "~" else "built in"
        rows.append((f"{place}.{function}", f"{calls:,}", f"{own / total:.0%}"))
    print("\n".join(table_lines(build_table(("function", "calls", "own time"), rows), 100)))


def main() -> None:
    path = (
        Path(sys.argv[1]) if len(sys.argv) > 1 else embedded_data() / "histories" / "mercury.swf.gz"
    )
    log = read_history(path)
    learn = Settings(method="state")
    profile("one answer by the state", lambda: forecast_state(log, log.end_s, learn))
    snapshot = large_set(100, 100, 100)
    profile("a plan of 10,000 tasks over 100 slots", lambda: make_plan(snapshot))
    with tempfile.TemporaryDirectory():
        profile("a run of 10,000 tasks in virtual time", lambda: virtual(10_000))


if __name__ == "__main__":
    main()

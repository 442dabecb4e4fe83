"""Run the benchmarks and write what they printed to docs/performance.md.

    python scripts/bench.py [NAME...] [--out FILE]      # NAME as portal, bags; default: all of
    benchmarks/

Each benchmark prints ratios against a named alternative in the same run, and says so where a peer
is not installed. One that fails is named, and the page is not written.
"""

from __future__ import annotations

import argparse
import ast
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
_HEAD = """# Performance

Output of `make bench` on {when}, Python {python}, {cores} processors; alternatives in the same \
run. Dispatcher of bags: [How fast](dispatch.md#how-fast).
"""


def section(script: Path) -> str:
    """Run a benchmark; its heading, command, output, how long it took, and the load before it."""
    began, load = time.perf_counter(), os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        sys.exit(f"{script.name} failed:\n{done.stderr[-2000:]}")
    summary, _, _ = (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n\n")
    about = " ".join(summary.split()).rstrip(".")
    seconds = time.perf_counter() - began
    output = done.stdout.strip()
    if "|---" not in output:
        output = f"```\n{output}\n```"
    how = f"`python {script.relative_to(ROOT)}`, {seconds:.0f} s, load {load:.1f} before"
    return f"\n## {about}\n\n{how}\n\n{output}\n"


def main() -> None:
    """All of them, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance.md")
    chosen = parser.parse_args()
    scripts = sorted((ROOT / "benchmarks").rglob("bench_*.py"))
    by_name = {script.stem.removeprefix("bench_"): script for script in scripts}
    wrong = [name for name in chosen.names if name not in by_name]
    if wrong:
        parser.error(f"no benchmark '{wrong[0]}'; there are {', '.join(by_name)}")
    parts = []
    for name in chosen.names or by_name:
        print(f"{name} …", file=sys.stderr, flush=True)
        parts.append(section(by_name[name]))
    head = _HEAD.format(
        when=datetime.now(UTC).date(), python=platform.python_version(), cores=os.cpu_count()
    )
    chosen.out.write_text(head + "".join(parts))


if __name__ == "__main__":
    main()

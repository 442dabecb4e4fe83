"""Commands of vgrads as benches run them: in processes of their own, timed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def vgrads_s(folder: Path, *words: object) -> float:
    """Seconds of a command, from beginning to end."""
    environment = {**os.environ, "VGRADS_HOME": str(folder / "home")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "vgrads", *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return time.perf_counter() - began

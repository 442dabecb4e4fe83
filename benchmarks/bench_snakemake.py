"""Short Snakemake rules on real Slurm: ``--executor vgrads`` against ``--cores`` and ``--executor
slurm``, in one run.

    python benchmarks/bench_snakemake.py [--jobs 200] [--seconds 2] [--peer-jobs 16] [--respawn 16]

A throw-away Slurm of two nodes with four processors each is started (pretended ones: as many real
ones as this machine has). Independent rules sleep; the floor is jobs × seconds / 8. *window*: from
the first job's start to the last one's end, as the jobs write them down; *command*: all of
``snakemake``, with planning and the slot's start. ``--executor slurm`` is measured, scaled down,
where its plugin is installed beside Snakemake (pip install snakemake-executor-plugin-slurm).
Processor seconds are those of the machine, less what it uses when idle.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

from tests.services.slurm import slurm_service
from tests.snakemake.snakemakes import SNAKEMAKE
from vgrads.kernel.text_table import build_table, table_lines

_CPUS = 8
_SITES = """
[[site]]
name = "slurm"
kind = "batch"
procs = 8
cores_per_node = 4
driver = "slurm"
[[site.queue]]
name = "batch"
max_walltime = "1h"
max_jobs = 2
stated_probability = 0.99
stated_wait = "20s"
"""
_RULES = """
rule all:
    input: expand("out/{{n}}", n=range({jobs}))
rule short:
    output: "out/{{n}}"
    resources: vgrads_s={seconds}, mem_mb=20
    {kind}
"""
_SHELL = 'shell: "date +%s.%N > {{output}}; sleep {seconds}; date +%s.%N >> {{output}}"'
_RUN = (
    "run:\n        import time\n        with open(output[0], 'w') as out:\n            "
    "print(time.time(), file=out); time.sleep({seconds}); print(time.time(), file=out)"
)
_HEAD = ("way", "jobs", "floor", "window", "ratio", "command", "CPU s/job")


def main() -> None:
    """Print a table of the ways."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("jobs", 200), ("seconds", 2), ("peer-jobs", 16), ("respawn", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    requested = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _Surrounded(Path(folder) / "slurm"):
        here = Path(folder)
        vgrads = [
            "--executor",
            "vgrads",
            "-j",
            "1000",
            "--vgrads-sites",
            "sites.toml",
            "--vgrads-deadline",
            "30m",
        ]
        local = ["--cores", "8"]
        rows = [
            _row("snakemake --cores 8", here / "local", requested.jobs, requested.seconds, local),
            _row("--executor vgrads", here / "vgrads", requested.jobs, requested.seconds, vgrads),
            _row(
                "--executor vgrads, rules in Python",
                here / "respawn",
                requested.respawn,
                requested.seconds,
                vgrads,
                _RUN,
            ),
        ]
        if _has_slurm_plugin():
            slurm = [
                "--executor",
                "slurm",
                "-j",
                "1000",
                "--default-resources",
                "slurm_partition=batch",
                "runtime=5",
            ]
            rows.append(
                _row(
                    "--executor slurm",
                    here / "peer",
                    requested.peer_jobs,
                    requested.seconds,
                    slurm,
                )
            )
        else:
            print("--executor slurm: its plugin is not installed beside Snakemake")
        ran = [row for row in rows if row]
        print("\n".join(table_lines(build_table(_HEAD, ran), 100)))


class _Surrounded:
    """Slurm with its environment while a block runs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._service = slurm_service(folder, 2)

    def __enter__(self) -> None:
        os.environ.update(self._service.__enter__().environment)

    def __exit__(self, *error: object) -> None:
        self._service.__exit__(*error)  # type: ignore[arg-type]


def _has_slurm_plugin() -> bool:
    process = subprocess.run(
        [SNAKEMAKE.with_name("python"), "-c", "import snakemake_executor_plugin_slurm"],
        capture_output=True,
        check=False,
    )
    return process.returncode == 0


def _row(
    name: str, folder: Path, jobs: int, seconds: int, options: list[str], kind: str = _SHELL
) -> tuple[str, ...]:
    """Return a row of the table; an empty one where Snakemake failed."""
    folder.mkdir()
    text = _RULES.format(jobs=jobs, seconds=seconds, kind=kind.format(seconds=seconds))
    (folder / "Snakefile").write_text(text)
    (folder / "sites.toml").write_text(_SITES)
    idle = _busy_s()
    time.sleep(3.0)
    idle = (_busy_s() - idle) / 3.0
    began_s, busy = time.monotonic(), _busy_s()
    done = subprocess.run(
        [SNAKEMAKE, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VGRADS_HOME": str(folder / "home")},
    )
    command_s = time.monotonic() - began_s
    if done.returncode:
        print(f"{name} failed: {done.stderr[-1500:]}")
        return ()
    times = [tuple(map(float, (folder / "out" / str(n)).read_text().split())) for n in range(jobs)]
    window_s = max(end for _, end in times) - min(begin for begin, _ in times)
    floor_s, cpu_s = jobs * seconds / _CPUS, (_busy_s() - busy - idle * command_s) / jobs
    figures = (
        *(f"{floor_s:.1f}", f"{window_s:.1f}", f"{window_s / floor_s:.2f}"),
        *(f"{command_s:.1f}", f"{cpu_s:.2f}"),
    )
    return (name, str(jobs), *figures)


def _busy_s() -> float:
    """Processor seconds that this machine has used since it was started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system = (int(name) for name in fields[:3])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()

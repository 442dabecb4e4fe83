"""What it costs to keep how tasks were done, and to find that nothing is left to do: against GNU
make, and against Snakemake where its environment is there (``make snakemake``).

    PYTHONPATH=. python benchmarks/bench_up_to_date.py [--tasks 2000]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from vgrads.api.plans.execution import run_plan
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.api.plans.up_to_date import EarlierRun, find_up_to_date
from vgrads.execmgr.tasks import provenance_recorder
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store
from vgrads.vgrid.catalog import Catalog, NodeType, Site
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

WORKERS = 8

_SNAKEMAKE = Path(".venv/snakemake/bin/snakemake")
_PAIRS = 3


def _workflow_set(folder: Path, count: int) -> WorkflowSet:
    tasks = [
        Task(
            id=f"t{n}",
            runtime_s=0.01,
            command=f"cat in.txt > o{n}.txt",
            inputs=("in.txt",),
            outputs=(f"o{n}.txt",),
        )
        for n in range(count)
    ]
    (folder / "in.txt").write_text("something\n")
    return WorkflowSet(
        name="bench",
        workflows=(make_workflow("w", tasks),),
        deadline_s=3600.0 + count,
        needed=1,
        directory=str(folder),
    )


def _catalog() -> Catalog:
    here = Site(
        name="here", kind="local", procs=WORKERS, driver="local", nodes=(NodeType(cores=WORKERS),)
    )
    return Catalog(sites=(here,), links={})


def _run(base: Path, count: int) -> float:
    """Tasks a second of a whole run, with a durable journal."""
    (base / "set").mkdir(parents=True)
    planned = plan_set(_workflow_set(base / "set", count), open_grid(_catalog()))
    with Store(f"sqlite:///{base}/bench.db") as store:
        run_id = store.add_run(store.add_set("bench", {}, {"slots": []}, {}))
        record = RunRecord(store.engine, run_id)
        record.lease.take()
        begin = time.perf_counter()
        outcome = run_plan(planned, RunOptions(run_id=run_id, folder=base / "run"), record)
        assert outcome.kept
        return count / (time.perf_counter() - begin)


def _run_without(base: Path, count: int) -> float:
    never = lambda _: False  # noqa: E731
    with patch.object(provenance_recorder, "can_stand", never):
        return _run(base, count)


def _seconds(command: list[str], folder: Path) -> float:
    begin = time.perf_counter()
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    return time.perf_counter() - begin


def _make_rules(folder: Path, count: int) -> None:
    rules = "".join(f"o{n}.txt: in.txt\n\tcat in.txt > o{n}.txt\n" for n in range(count))
    names = " ".join(f"o{n}.txt" for n in range(count))
    (folder / "Makefile").write_text(f"all: {names}\n{rules}")
    (folder / "Snakefile").write_text(
        f'rule all:\n    input: [f"o{{n}}.txt" for n in range({count})]\n'
        'rule one:\n    input: "in.txt"\n    output: "o{n}.txt"\n    shell: "cat {input} > '
        '{output}"\n'
    )
    (folder / "in.txt").write_text("something\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000)
    count = parser.parse_args().tasks
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        with_s, without = [], []
        for turn in range(_PAIRS):
            without.append(_run_without(base / f"without{turn}", count))
            with_s.append(_run(base / f"with{turn}", count))
        ratio = sorted(with_s)[1] / sorted(without)[1]
        print(
            f"a run of {count} tasks that each make a file: {sorted(with_s)[1]:.0f}/s with "
            f"records, {sorted(without)[1]:.0f}/s without: {ratio:.2f}"
        )
        workflow_set = _workflow_set(base / "with0" / "set", count)
        begin = time.perf_counter()
        done = find_up_to_date(
            workflow_set, _catalog(), [EarlierRun("run", base / "with0" / "run")]
        )
        look_s = time.perf_counter() - begin
        assert len(done) == count
        print(f"to find that nothing is left: {look_s:.2f} s, {1e3 * look_s / count:.2f} ms a task")
        other = base / "other"
        other.mkdir()
        _make_rules(other, count)
        subprocess.run(["make", "-s", "-j2"], cwd=other, check=True)
        make_s = _seconds(["make", "-q"], other)
        print(f"GNU make, which compares times: {make_s:.2f} s; ratio {make_s / look_s:.2f}")
        if _SNAKEMAKE.exists():
            snake = str(_SNAKEMAKE.resolve())
            subprocess.run(
                [snake, "--cores", "2", "--touch"], cwd=other, capture_output=True, check=False
            )
            snake_s = _seconds([snake, "-n", "-q"], other)
            print(f"snakemake -n: {snake_s:.2f} s; ratio {snake_s / look_s:.2f}")


if __name__ == "__main__":
    main()

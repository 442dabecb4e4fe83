"""Remake ``studies/results/backtest.md``:
``python scripts/backtest_doc.py LOG.swf.gz… > studies/results/backtest.md``.

Its text is ``scripts/backtest_doc.md``, where marks stand for the tables that are made here; the
tables of the studies in ``vgrads_studies.waits`` are part of the text.
With ``VGRADS_KEEP=FILE`` every result is appended to a file as it comes, and not worked out again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from statsmodels.stats.proportion import proportion_confint

from vgrads.kernel.units import format_duration
from vgrads.qbets.backtest import BacktestRow, Trial, backtest, score
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name, read_history

VARIANTS = {
    "bmbp": Settings(method="bmbp", arrays=False),
    "qbets": Settings(),
    "no referee": Settings(correction=False),
    **{
        f"{size}{'' if arrays else ' no arrays'}": Settings(size=size, arrays=arrays)
        for size, arrays in product(("none", "procs", "time", "product", "backlog"), (True, False))
    },
}
REPORTED = {
    "ANL-Intrepid": (0.42, 0.78),
    "LANL-CM5": (0.67, 0.88),
    "HPC2N": (0.19, 0.80),
    "SDSC-BLUE": (0.45, 0.89),
    "SDSC-SP2": (0.04, 0.79),
}
CHOSEN_ON = ("CERIT", "HPC2N", "KTH", "LANL", "SDSC-SP2", "UniLu")

Results = dict[tuple[str, str], dict[str, Any]]


def run(path: Path, variant: str) -> dict[str, Any]:
    trial = backtest(read_history(path), history_name(path), settings=VARIANTS[variant])
    return {"variant": variant, "row": asdict(trial.row()), "quick": _middle_quick(trial)}


def run_all(paths: list[Path]) -> Results:
    """Everything, the slowest first, over two processes; what is kept already is taken from
    there."""
    keep = Path(os.environ["VGRADS_KEEP"]) if "VGRADS_KEEP" in os.environ else None
    lines = keep.read_text().splitlines() if keep and keep.is_file() else []
    results = {(r["row"]["history"], r["variant"]): r for r in map(json.loads, lines)}
    slow = sorted(product(paths, VARIANTS), key=lambda j: -j[0].stat().st_size)
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(run, p, v) for p, v in slow if (history_name(p), v) not in results]
        for job in as_completed(jobs):
            result = job.result()
            results[result["row"]["history"], result["variant"]] = result
            if keep:
                with keep.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    return results


def _middle_quick(trial: Trial) -> float | None:
    """Share of quick jobs bounded within the hour among jobs 10,001 to 50,000."""
    scored = trial.scored.copy()
    scored[:10_000] = scored[50_000:] = False
    return score(trial.log.wait_s[scored], trial.issued_s[scored], 0.95)["quick_bounded"]


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def marked(name: str) -> str:
    """Return the name of a log, with an asterisk if choices were made on it."""
    return name + "*" * name.startswith(CHOSEN_ON)


def interval(row: BacktestRow) -> str:
    low, high = proportion_confint(
        round((row.coverage or 0) * row.scored), row.scored, method="wilson"
    )
    return f"{row.coverage:.4f} ({low:.3f}–{high:.3f})"


def main_table(names: list[str], rows: dict[tuple[str, str], BacktestRow]) -> Iterator[str]:
    yield (
        "| log | scored | coverage bmbp | coverage qbets (95 % interval) | worst 500 bmbp / "
        "qbets | pinball qbets ÷ bmbp | median bound bmbp → qbets | jobs/s bmbp / qbets |"
    )
    yield "| --- | --: | --: | --: | --: | --: | --: | --: |"
    for name in names:
        b, q = rows[name, "bmbp"], rows[name, "qbets"]
        ratio = (q.pinball_s or 0) / (b.pinball_s or 1)
        medians = (
            f"{format_duration(b.median_bound_s or 0)} → {format_duration(q.median_bound_s or 0)}"
        )
        yield (
            f"| {name} | {q.scored:,} | {b.coverage:.4f} | {interval(q)} | "
            f"{b.worst_window_coverage:.3f}/{q.worst_window_coverage:.3f} | **{ratio:.2f}** | "
            f"{medians} | {b.jobs_per_s:,.0f}/{q.jobs_per_s:,.0f} |"
        )


def quick_table(
    names: list[str],
    rows: dict[tuple[str, str], BacktestRow],
    quick: dict[tuple[str, str], float | None],
) -> Iterator[str]:
    yield (
        "| log | bmbp | qbets | qbets, jobs 10,001–50,000 | *reported* QBETS | *reported* PQStar |"
    )
    yield "| --- | --: | --: | --: | --: | --: |"
    for name in names:
        reported = next((v for key, v in REPORTED.items() if name.startswith(key)), None)
        there = f"{reported[0]:.2f} | {reported[1]:.2f}" if reported else "– | –"
        b, q = rows[name, "bmbp"], rows[name, "qbets"]
        yield (
            f"| {name} | {share(b.quick_bounded)} | {share(q.quick_bounded)} | "
            f"{share(quick[name, 'qbets'])} | {there} |"
        )


def size_table(names: list[str], rows: dict[tuple[str, str], BacktestRow]) -> Iterator[str]:
    variants = [v for v in VARIANTS if v not in ("bmbp", "qbets", "no referee")]
    yield "| log | " + " | ".join(variants) + " |"
    yield "| --- | " + " | ".join("--:" for _ in variants) + " |"
    for name in names:
        base = rows[name, "bmbp"].pinball_s or 1
        cells = [
            f"{(rows[name, v].pinball_s or 0) / base:.2f}/{rows[name, v].coverage:.3f}"
            for v in variants
        ]
        yield f"| {marked(name)} | " + " | ".join(cells) + " |"


def hard_table(paths: list[Path], rows: dict[tuple[str, str], BacktestRow]) -> Iterator[str]:
    for path in paths:
        name = history_name(path)
        if name.startswith("CERIT"):
            yield f"| CERIT-SC wagap | .907 | {rows[name, 'qbets'].coverage:.3f} |"
        if name.startswith("UniLu"):
            row = backtest(read_history(path).only_queue(2), name).row()
            yield f"| UniLu-Gaia, queue 2 alone (best effort) | .937 | {row.coverage:.3f} |"


def correction_table(names: list[str], rows: dict[tuple[str, str], BacktestRow]) -> Iterator[str]:
    yield "| log | coverage | worst 500 | pinball |"
    yield "| --- | --: | --: | --: |"
    for name in names:
        without, with_it = rows[name, "no referee"], rows[name, "qbets"]
        price = (with_it.pinball_s or 0) / (without.pinball_s or 1) - 1
        yield (
            f"| {name} | {without.coverage:.4f} → {with_it.coverage:.4f} | "
            f"{without.worst_window_coverage:.3f} → "
            f"{with_it.worst_window_coverage:.3f} | {price:+.1%} |"
        )


def main() -> None:
    paths = [Path(p) for p in sys.argv[1:]]
    names = [history_name(p) for p in paths]
    results = run_all(paths)
    rows = {key: BacktestRow(**result["row"]) for key, result in results.items()}
    quick = {key: result["quick"] for key, result in results.items()}
    text = Path(__file__).with_name("backtest_doc.md").read_text()
    for mark, table in (
        ("MAIN", main_table(names, rows)),
        ("QUICK", quick_table(names, rows, quick)),
        ("SIZES", size_table(names, rows)),
        ("HARD", hard_table(paths, rows)),
        ("REFEREE", correction_table(names, rows)),
    ):
        text = text.replace(f"<!-- {mark} -->", "\n".join(table))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()

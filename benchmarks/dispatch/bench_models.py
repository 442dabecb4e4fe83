"""Models of `vgrads/pool/models.py` against what happens: on this machine, on random clusters in
virtual time, and as a choice.

    python benchmarks/dispatch/bench_models.py [--only real clusters choice] [--runs 3] [--json]

Real: All-Pairs and Wavefront in blocks of cells that compute, and a small graph of processes, by
their commands. How long blocks and processes ran is what their ends say, for others use this
machine too; what a command takes to begin, and what a block costs beside, is measured by two runs
of cells that do nothing. Virtual: the dispatcher's core and lazy orders, a host for each job, run
times drawn (log-normal, up to 0.3), each job ``dispatch_s`` longer, hosts of All-Pairs begun one
after the other. Choice: serial, multicore or distributed, each played as its model would do it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from models_real import real
from models_row import Row
from models_virtual import choices, clusters


def _report(rows: Sequence[Row], most: float) -> bool:
    print("| what | model, s | passed, s | off | |\n|---|--:|--:|--:|---|")
    for row in rows:
        print(
            f"| {row.what} | {row.model_s:.1f} | {row.elapsed_s:.1f} | {row.off:+.1%} | "
            f"{'' if abs(row.off) <= most else 'missed'} |"
        )
    worst = max(abs(row.off) for row in rows)
    middle = statistics.median(abs(row.off) for row in rows)
    print(f"\nmedian error {middle:.1%}, worst {worst:.1%} (at most {most:.0%})\n", flush=True)
    return worst <= most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=("real", "clusters", "choice"),
        default=["real", "clusters", "choice"],
    )
    parser.add_argument("--runs", type=int, default=3, help="of each real one")
    parser.add_argument(
        "--seed", type=int, default=0, help="of clusters and choices that are drawn"
    )
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    payload: dict[str, Any] = {}
    good = True
    for part, most in (("real", 0.1), ("clusters", 0.2)):
        if part in chosen.only:
            rows = real(chosen.runs) if part == "real" else clusters(chosen.seed)
            payload[part] = [asdict(row) | {"off": row.off} for row in rows]
            good &= (
                max(abs(row.off) for row in rows) <= most if chosen.json else _report(rows, most)
            )
    if "choice" in chosen.only:
        chosens = choices(chosen.seed + 1)
        right = statistics.mean(chosen.regret <= 1e-9 for chosen in chosens)
        near = statistics.mean(chosen.regret <= 0.01 for chosen in chosens)
        regret = statistics.mean(chosen.regret for chosen in chosens)
        worst = sorted(chosens, key=lambda chosen: -chosen.regret)[:5]
        payload["choice"] = {
            "right": right,
            "regret": regret,
            "within_1": near,
            "all": [asdict(chosen) for chosen in chosens],
        }
        good &= right >= 0.95 and regret <= 0.05
        if not chosen.json:
            print(
                f"right in {right:.1%} of {len(chosens)} (within 1 % of the best in "
                f"{near:.1%}), mean regret {regret:.2%}; worst:"
            )
            for item in worst:
                print(
                    f"- {item.what}: {item.how}, {item.regret:+.0%} "
                    f"({', '.join(f'{k} {v:.0f} s' for k, v in item.took_s.items())})"
                )
    if chosen.json:
        print(json.dumps(payload, indent=1))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

"""Calls of Python functions a second, and their latency, against Ray, Parsl and Dask.

    python benchmarks/dispatch/bench_functions.py [--rounds 7] [--tasks 10000] [--single 300]

The function does nothing. In each round all programs are measured one after the other, in an order
that changes; each has two processors and is warm (``dispatch_peers.py``, which says how to name the
interpreters of peers). A rate counts from the first submission to the last result; a latency is
from the submission to the result, of one call at a time. The service is ``vgrads serve --own``,
with this machine as its site. A ratio is the median of the ratios of the rounds. A load is the
system's average over a minute before a measurement, lowest and highest of the rounds: of the
measurement before it as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from dispatch_peers import latencies_ms, measured, run_script
from rounds import Measured, interleaved, median_ratio

PEERS = ("Ray", "Parsl HTEX", "Dask")
SUBMIT, MAP = "`vgrads.Executor().submit`", "`vgrads.Executor().map`"
HERE, SERVED, COMMAND = "function, in process", "function, service", "`true`, service"
_TIMES_RAY = 5.0
_MOST_MS = {HERE: (3.0, None), SERVED: (8.0, 30.0), COMMAND: (12.0, None)}
"""Upper limits of the median and the 99th percentile."""
_ROOT = Path(__file__).parents[2]
_SITE = '[[site]]\nname = "local"\nkind = "local"\nprocs = 2\n'
_HERE = """
import vgrads
if __name__ == "__main__":
    what, count = globals()[sys.argv[1]], int(sys.argv[2])
    with vgrads.Executor(max_workers=2) as executor:
        measure(count, {go})
"""
_SUBMIT = "lambda numbers: [f.result() for f in [executor.submit(what, n) for n in numbers]]"
_SERVED = """
import os, vgrads
if __name__ == "__main__":
    url, token, count = os.environ["URL"], os.environ["TOKEN"], int(sys.argv[2])
    {body}
"""
SCRIPTS = {
    SUBMIT: _HERE.format(go=_SUBMIT),
    MAP: _HERE.format(go="lambda numbers: list(executor.map(what, numbers))"),
    HERE: _HERE.format(go=_SUBMIT),
    SERVED: _SERVED.format(
        body=f"""what = globals()[sys.argv[1]]
    with vgrads.Executor(sites=url, token=token) as executor:
        measure(count, {_SUBMIT})"""
    ),
    COMMAND: _SERVED.format(
        body="""with vgrads.Client(url, token=token).tasks() as bag:
        measure(count, lambda numbers: [
            f.result().code for f in [bag.submit("true") for n in numbers]])"""
    ),
}


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "VGRADS_HOME": str(home), "PYTHONPATH": str(_ROOT)}


def _ours(name: str, count: int, kind: str, environment: Mapping[str, str]) -> list[float]:
    result = run_script(sys.executable, SCRIPTS[name], ["nothing", str(count), kind], environment)
    if isinstance(result, str):
        raise SystemExit(f"{name}: {result}")
    return result


@contextmanager
def _service(folder: Path) -> Iterator[dict[str, str]]:
    """Run a service with two processors of this machine; the environment of its clients."""
    sites, environment = folder / "sites.toml", _environment(folder / "served")
    sites.write_text(_SITE)
    command = [sys.executable, "-m", "vgrads", "serve", "--own", "--port", "0", "--sites"]
    with (folder / "log").open("wb") as log:
        service = subprocess.Popen(
            [*command, str(sites)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    with service:
        assert service.stdin is not None and service.stdout is not None
        try:
            access = json.loads(service.stdout.readline())
            yield environment | {"URL": access["url"], "TOKEN": access["token"]}
        finally:
            service.stdin.close()  # it ends


def _print_rates(results: Mapping[str, Measured[float]]) -> None:
    print("| function that does nothing | rounds | load before | calls/s | `submit` ÷ it |", end="")
    print(" `map` ÷ it | must |\n|---|--:|--:|--:|--:|--:|---|")
    submit, mapped = results[SUBMIT].values, results[MAP].values
    for name, item in results.items():
        ratios = ["", ""]
        if name in PEERS:
            ratios = [f"{median_ratio(ours, item.values):.1f}" for ours in (submit, mapped)]
        must = ""
        if name == "Ray":
            met = median_ratio(submit, item.values) >= _TIMES_RAY
            must = f"`submit` ≥ {_TIMES_RAY:g} × Ray: {'met' if met else 'not met'}"
        row = [name, str(len(item.values)), item.load_range, f"{median(item.values):,.0f}"]
        print(f"| {' | '.join([*row, *ratios, must])} |")
    print(flush=True)


def _print_latencies(results: Mapping[str, Measured[list[float]]]) -> None:
    peers = [name for name in PEERS if name in results]
    head = ["submission to result", "rounds", "load before", "p50 ms", "must", "p99 ms", "must"]
    head += [f"p50 of {name} ÷ it" for name in peers]
    print(f"| {' | '.join(head)} |\n|---|{'--:|' * (len(head) - 1)}")
    for name, item in results.items():
        row = [name, str(len(item.values)), item.load_range]
        for number, most_ms in enumerate(_MOST_MS.get(name, (None, None))):
            value_ms = median(values[number] for values in item.values)
            must = ""
            if most_ms is not None:
                must = f"≤ {most_ms:g}: {'met' if value_ms <= most_ms else 'not met'}"
            row += [f"{value_ms:.2f}", must]
        own = [values[0] for values in item.values]
        for peer in peers:
            theirs = [values[0] for values in results[peer].values]
            row.append(f"{median_ratio(theirs, own):.2f}" if name != peer else "")
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--single", type=int, default=300)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here, tasks = _environment(folder / "home"), chosen.tasks
        rates: dict[str, Callable[[], float | str]] = {
            SUBMIT: lambda: _ours(SUBMIT, tasks, "rate", here)[0],
            MAP: lambda: _ours(MAP, tasks, "rate", here)[0],
            **{peer: partial(measured, peer, "nothing", tasks) for peer in PEERS},
        }
        _print_rates(interleaved(rates, chosen.rounds))
        with _service(folder) as served:
            latencies: dict[str, Callable[[], list[float] | str]] = {
                HERE: partial(_ours, HERE, chosen.single, "latency", here),
                SERVED: partial(_ours, SERVED, chosen.single, "latency", served),
                COMMAND: partial(_ours, COMMAND, chosen.single, "latency", served),
                **{peer: partial(latencies_ms, peer, "nothing", chosen.single) for peer in PEERS},
            }
            _print_latencies(interleaved(latencies, chosen.rounds))


if __name__ == "__main__":
    main()

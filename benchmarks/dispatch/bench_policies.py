"""Policies of bags: verdicts remembered and fresh, states of a bag, reading, explaining, the
dearest expression, and a thousand bags at the desk.

python benchmarks/dispatch/bench_policies.py               # all sections
python benchmarks/dispatch/bench_policies.py passes cost   # some of them
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from policies_load import measure_load

from vgrads.kernel.errors import InputError
from vgrads.kernel.text_table import pad
from vgrads.policies.evaluation import LONGEST, MOST
from vgrads.policies.policy import Policy, job_ad, read_policy

FIG3 = """
JobRequirements = !Tail ? true : regexp("myhost", Host.Name) && Host.ErrorRate < 0.1
Rank = !Tail ? 1 : Host.JobsToday
ReplicationRequirements = NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1
Concurrency = 2 * Host.NumCpus
Deadline = Concurrency * 2000
"""


def agent(i: int) -> dict[str, Any]:
    """A host unlike all others."""
    return {
        "Name": f"n{i}.myhost",
        "Grid": "OSG",
        "NumCpus": 1 + i,
        "ErrorRate": i / 4e6,
        "Turnaround": 900.0,
        "JobsToday": i,
        "RecentSuccess": True,
    }


def rate(what: str, count: int, begin: float, needed: float = 0) -> None:
    """Prints how many a second, and what is asked for."""
    per_s = count / (time.perf_counter() - begin)
    aim = f"   (asked: {needed:,.0f})" if needed else ""
    print(f"{pad(what, 58)} {pad(f'{per_s:,.0f}', 12, right=True)}/s{aim}", flush=True)


def verdicts() -> None:
    """One slot asked again and again for hosts that are known."""
    left = read_policy(FIG3, "").under({"Tail": True})
    agents = [agent(i) for i in range(1000)]
    for item in agents:
        left.requirements(item)
    ask, begin = left.requirements, time.perf_counter()
    for _ in range(2000):
        for item in agents:
            ask(item)
    rate("remembered verdicts, two names read, 1,000 hosts", 2_000_000, begin, 1_000_000)
    left = read_policy(FIG3, "").under({"Tail": False})
    ask, begin = left.requirements, time.perf_counter()
    for _ in range(2000):
        for item in agents:
            ask(item)
    rate("verdicts of a slot that Tail has decided", 2_000_000, begin)
    left = read_policy({"JobRequirements": "!member(Host.Grid, Job.Grids)"}, "").under({})
    job, begin = job_ad("j", "x", [{"Host": entry} for entry in agents[:3]]), time.perf_counter()
    for _ in range(200):
        for item in agents:
            left.requirements(item, job)
    rate("remembered verdicts that read a list", 200_000, begin)


def passes() -> None:
    """All four slots of hand-out for hosts never met."""
    agents = [agent(i) for i in range(60_000)]
    for tail in (True, False):
        left, begin = read_policy(FIG3, "").under({"Tail": tail}), time.perf_counter()
        for item in agents:
            if left.requirements(item):
                left.rank(item)
                left.deadline(item, concurrency=left.concurrency(item))
        rate(f"fresh four-slot passes, Tail {tail}", len(agents), begin, 20_000)


def states() -> None:
    """A policy over bags that change: what is left is worked out anew for each state."""
    for text, what in (
        (FIG3, "Tail turns"),
        ("JobRequirements = JobsLeft < 2000 ? Host.ErrorRate < 0.1 : true", "JobsLeft falls"),
    ):
        policy, begin = read_policy(text, ""), time.perf_counter()
        for i in range(20_000):
            policy.under({"Tail": i % 2 == 0, "JobsLeft": 20_000 - i}).requirements(
                {"ErrorRate": 0.05, "Name": "x"}
            )
        rate(f"a state of the bag and one verdict, {what}", 20_000, begin)
    begin = time.perf_counter()
    for _ in range(500):
        read_policy(FIG3, "")
    rate("policies read and checked (Figure 3)", 500, begin)


def explaining() -> None:
    """Why not here?"""
    policy, begin = read_policy(FIG3, ""), time.perf_counter()
    for i in range(20_000):
        policy.explain("JobRequirements", {"Tail": True}, agent(i))
    rate("explanations", 20_000, begin, 100)


DEAR = (
    "Host.A{i} == Host.B{i}",
    'regexp("a[^b]*[bc]", Host.A{i})',
    'regexp("^a*a*[bc]", Host.A{i})',
    "Host.A == {i}",
    "member(Host.A{i}, Host.B{i})",
    'anyCompare(">", Host.A{i}, {i})',
    'strcat(Host.A{i}, Host.A{i}) == "x"',
    'regexpMember("^a+b", Host.A{i})',
    'regexp("(a|aa)(a|aa)(a|aa)(a|aa)[bc]", Host.A{i})',
)


def cost() -> None:
    """Of each kind the longest expression that is taken, over the longest values: 5 ms may not be
    passed."""
    values = (["a" * LONGEST] * MOST, "a" * LONGEST, 0.1, [1.5] * MOST)
    for piece in DEAR:
        policy, count = longest_taken(piece)
        slowest = 0.0
        for value in values:
            ad = {f"{letter}{i}": value for letter in "AB" for i in ("", *range(count))}
            policy.explain("JobRequirements", {}, ad)
            taken = []
            for _ in range(5):
                begin = time.perf_counter()
                policy.explain("JobRequirements", {}, ad)
                taken.append(time.perf_counter() - begin)
            slowest = max(slowest, min(taken))
        what = pad(f"{count} x {piece}", 63)
        print(f"{what} {slowest * 1e3:.2f} ms   (asked: 5.00)", flush=True)


def longest_taken(piece: str) -> tuple[Policy, int]:
    """The longest row of a piece that is not refused, found by halving."""
    low, high = 1, 200
    while low < high:
        middle = (low + high + 1) // 2
        try:
            read_policy({"JobRequirements": row(piece, middle)}, "")
            low = middle
        except InputError:
            high = middle - 1
    return read_policy({"JobRequirements": row(piece, low)}, ""), low


def row(piece: str, count: int) -> str:
    return " || ".join(piece.replace("{i}", str(i)) for i in range(count))


SECTIONS: dict[str, Callable[[], None]] = {
    "verdicts": verdicts,
    "passes": passes,
    "states": states,
    "explaining": explaining,
    "cost": cost,
    "desk": measure_load,
}


def main() -> None:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reader.add_argument(
        "sections", nargs="*", choices=[*SECTIONS, []], help="all, where none is named"
    )
    for name in reader.parse_args().sections or SECTIONS:
        SECTIONS[name]()


if __name__ == "__main__":
    main()

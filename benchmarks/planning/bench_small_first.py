"""How long a set of one task waits for its plan beside large sets, against alone.

``python -m benchmarks.planning.bench_small_first``: three sets of 2,400 tasks are submitted to a
service with two planners, then, in turns with a service without other work, a set of one task.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.portal.serving import SMALL, serving
from tests.waiting import until

LARGE = {
    "name": "large",
    "deadline": "48h",
    "at_least": 1,
    "workflows": [{"file": "lead.json", "count": 400}],
}


def submit(url: str, document: dict[str, Any]) -> str:
    """Submit a set without waiting for its plan; return its id."""
    head = {"Content-Type": "application/json", "Prefer": "respond-async"}
    body = json.dumps(document).encode()
    request = urllib.request.Request(f"{url}/v1/workflow-sets", body, head)
    with urllib.request.urlopen(request) as answer:
        return str(json.loads(answer.read())["id"])


def planned_s(url: str, client: Any) -> float:
    """Submit a set of one task; return the seconds until it is planned."""
    began_s = time.monotonic()
    set_id = submit(url, SMALL)
    until(lambda: client.read(set_id)["state"] == "planned", "the plan", 300)
    return time.monotonic() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    alone, with_large = [], []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            with serving(Path(one)) as service:
                planned_s(service.url, service.client())  # warm
                alone.append(planned_s(service.url, service.client()))
            with serving(Path(other)) as service:
                client = service.client()
                planned_s(service.url, client)
                large = [submit(service.url, LARGE) for _ in range(3)]
                with_large.append(planned_s(service.url, client))
                states = [client.read(set_id)["state"] for set_id in large]
                if "planned" in states:
                    print(f"a large set was planned before: {states}")
    print(f"alone:  median {statistics.median(alone):.2f} s, longest {max(alone):.2f} s")
    print(f"beside: median {statistics.median(with_large):.2f} s, longest {max(with_large):.2f} s")
    more_s = statistics.median(with_large) - statistics.median(alone)
    print(f"difference of the medians: {more_s:.2f} s")


if __name__ == "__main__":
    main()

"""The pages with much to show: the time of the server for a front page of ten thousand sets and a
thousand bags, and the frames per second of a chart of 2,000 tasks in 100 slots while it scrolls.

    python -m benchmarks.pages.bench_pages [--sets 10000] [--bags 1000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.portal.pages.charts import large_chart
from tests.portal.pages.gallery import STORM, Gallery, served
from tests.services.fixtures import CHROMIUM
from vgrads.portal.charts.exports import export
from vgrads.portal.records.bags import BagStore, new_bag
from vgrads.portal.records.store import Store

ADDRESSES = ("/", "/?find=storm+77", "/?state=missed&order=name", "/?page=150&order=newest")
SCROLL = """async () => {
  const host = document.querySelector(".gantt-scroll"), times = [];
  const most = host.scrollHeight - host.clientHeight;
  let last = performance.now();
  for (let i = 0; i < 120; i++) {
    host.scrollTop = most * (i % 60) / 60;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    times.push(now - last);
    last = now;
  }
  return times.slice(10);
}"""


def add_bags(store: Store, count: int) -> None:
    """Store so many bags that have ended."""
    bags = BagStore(store.engine)
    for number in range(count):
        bag_id = f"bag-{number:010x}"
        row = new_bag(bag_id, "bag-0", number, f"sweep {number}", "ann", 1000)
        summary = json.dumps({"done": 990, "failed": 10, "rate": 12.5, "state": "done"})
        bags.add(replace(row, state="done", summary=summary))


def dashboard_ms(sets: int, bags: int, repetitions: int = 15) -> dict[str, dict[str, float]]:
    """Milliseconds until a page of the dashboard is there: the first, the median, the longest; and
    the median processor time of the service and its client."""
    results = {}
    with Store() as store:
        gallery = Gallery(store)
        gallery.ids["met"] = gallery.planned(STORM)
        gallery.run(gallery.ids["met"])
        gallery.many(sets)
        add_bags(store, bags)
        with served(store, gallery) as url:
            for address in ADDRESSES:
                times, processor = [], []
                for _ in range(repetitions):
                    began, used = time.perf_counter(), time.process_time()
                    with urllib.request.urlopen(url + address) as answer:
                        answer.read()
                    times.append(1000 * (time.perf_counter() - began))
                    processor.append(1000 * (time.process_time() - used))
                results[address] = {
                    "first": times[0],
                    "median": statistics.median(times[1:]),
                    "longest": max(times[1:]),
                    "processor_time": statistics.median(processor[1:]),
                }
    return results


def frames_per_second(slots: int = 100, tasks: int = 2000) -> dict[str, float]:
    """Frames per second while a chart scrolls from its top to its end twice."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tools:
        file = Path(folder) / "chart.html"
        file.write_bytes(export(large_chart(slots, tasks), "html"))
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(file.as_uri())
        page.wait_for_selector("canvas")
        times: list[float] = page.evaluate(SCROLL)
        browser.close()
    ordered = sorted(times)
    return {
        "median": 1000 / statistics.median(times),
        "slowest_5_percent": 1000 / ordered[int(0.95 * len(ordered))],
    }


def main() -> None:
    """Measure both, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=10_000)
    parser.add_argument("--bags", type=int, default=1000)
    options = parser.parse_args()
    result: dict[str, Any] = {"frames_per_second": frames_per_second()}
    with tempfile.TemporaryDirectory() as home:
        os.environ["VGRADS_HOME"] = home
        result["dashboard_ms"] = dashboard_ms(options.sets, options.bags)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

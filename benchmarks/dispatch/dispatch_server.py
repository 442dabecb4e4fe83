"""A dispatcher's manager alone, for benchmarks that kill it: ``python
benchmarks/dispatch/dispatch_server.py FOLDER``.

It takes on the bags that lie in the folder, and the port of before. A line of JSON each fifth of a
second: how long it took to read its journal, how many hosts are connected, exchanges and tasks done
so far.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from vgrads.dispatch.core.tasks import DONE
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.folder import list_bags, open_bag
from vgrads.exchange.keys import open_keys, read_port, store_port
from vgrads.kernel.clock import WallClock


async def main(folder: Path) -> None:
    """Until it is killed, or the bags are over."""
    begin = time.perf_counter()
    keys = open_keys(folder)
    began = folder / "began"
    if not began.exists():
        began.write_text(repr(time.time()))
    clock = WallClock(time.time() - float(began.read_text()))
    manager = DispatchManager(DispatcherConfig(folder=folder, secret=keys.secret), clock)
    for number in list_bags(folder):
        retained = open_bag(folder, number)
        manager.add(number, retained.bag, retained.files)
    before = sum(bag.tasks.counts[DONE] for bag in manager.state.bags.values())
    port = await manager.port.listen("127.0.0.1", read_port(folder), keys.context())
    store_port(folder, port)
    read_s = time.perf_counter() - begin
    work = asyncio.ensure_future(manager.work())
    while True:
        done = sum(bag.tasks.counts[DONE] for bag in manager.state.bags.values())
        over = all(bag.over for bag in manager.state.bags.values())
        payload = {
            "at": time.time(),
            "read_s": read_s,
            "before": before,
            "done": done,
            "over": over,
            "exchanges": manager.port.exchanges,
            "connected": len(manager.port.lines),
        }
        print(json.dumps(payload), flush=True)
        if over:
            break
        await asyncio.sleep(0.2)
    await manager.stop()
    await work
    manager.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

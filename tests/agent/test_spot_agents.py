"""Agents of clouds: they come from the manager's port, and leave when their node is taken back."""

import asyncio
import json
import math
import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests import waiting
from vgrads.agent.lifetime import TAKEN_BACK, InterruptionNotice, Lifetime
from vgrads.agent.machine import NodeIdentity
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.exchange.agent_file import write_fetching_agent_command
from vgrads.exchange.keys import derive_key, open_keys
from vgrads.kernel.clock import WallClock

until = waiting.until


class Staying:
    """A session of an agent that has a manager."""

    link, leaving = object(), ""


def metadata(folder, notice):
    path = folder / "latest" / "meta-data" / "spot" / "instance-action"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notice if isinstance(notice, str) else json.dumps(notice))
    return {"VGRADS_MARKET": "spot", "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"file://{folder}"}


def in_seconds(seconds):
    return f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def test_an_agent_leaves_when_its_node_is_taken_back_and_its_tasks_run_on(tmp_path):
    noticed = threading.Event()
    variables = metadata(tmp_path, {"action": "terminate", "time": in_seconds(120)})
    notice = InterruptionNotice(variables, noticed.set)
    assert noticed.wait(20.0)
    session = Staying()
    lifetime = Lifetime(NodeIdentity.from_environment({}), session, notice)
    now_s = time.monotonic()
    assert lifetime.must_leave(now_s, 0) == (TAKEN_BACK, math.inf)
    session.leaving = TAKEN_BACK
    assert lifetime.must_leave(now_s + 60.0, 0) is None  # what runs may end
    assert now_s + 60.0 < lifetime.next_s(holds=True) < now_s + 120.0
    why, within_s = lifetime.must_leave(now_s + 118.0, 0)
    assert why == "the slot ends" and 0.0 < within_s < 5.0


@pytest.mark.parametrize("notice", ["", "{}", "[]", '{"action": "stop", "time": "soon"}', "<html>"])
def test_any_other_answer_is_no_notice(tmp_path, notice):
    watch = InterruptionNotice({}, lambda: None)
    watch = InterruptionNotice(metadata(tmp_path, notice) | {"VGRADS_MARKET": ""}, lambda: None)
    assert watch._ask() == math.inf
    assert watch.at_s == math.inf
    lifetime = Lifetime(NodeIdentity.from_environment({}), Staying(), watch)
    assert lifetime.must_leave(time.monotonic(), 0) is None


@pytest.mark.parametrize("altered", ["", "digest", "key"])
def test_an_agent_is_fetched_from_the_port_and_run_if_it_is_the_expected_one(tmp_path, altered):
    async def scenario():
        keys = open_keys(tmp_path / "manager")
        config = DispatcherConfig(folder=tmp_path / "manager", secret=keys.secret, idle_s=1.0)
        manager = DispatchManager(config, WallClock())
        port = await manager.port.listen("127.0.0.1", 0, keys.context())
        loop = asyncio.ensure_future(manager.work())
        manager.core.add(0, BagSpec(name="b", commands=Listed(("echo fetched",))), 0.0)
        pilot = write_fetching_agent_command(sys.executable)
        assert len(pilot) < 8000
        if altered == "digest":
            pilot = pilot[:-8] + "00000000"
        key = derive_key(keys.secret, "h0")
        variables = {
            **os.environ,
            **keys.contact("127.0.0.1", port),
            "VGRADS_SLOT": "h0",
            "VGRADS_HOST_KEY": key[:-4] + "0000" if altered == "key" else key,
            "HOME": str(tmp_path),
        }
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", pilot, env=variables, stderr=asyncio.subprocess.PIPE
        )
        line = b""
        if altered:
            line = await asyncio.wait_for(process.stderr.readline(), 30.0)
            if process.returncode is None:
                process.kill()
        await asyncio.wait_for(process.wait(), 60.0)
        done = manager.state.bags[0].over
        await manager.stop()
        await loop
        manager.close()
        return done, line.decode()

    done, line = asyncio.run(scenario())
    expected = {"": "", "digest": "no agent there", "key": "refuses the key"}[altered]
    assert done == (not altered) and expected in line

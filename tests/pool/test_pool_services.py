"""Two managers share a pool over real Slurm and real Grid Engine; one ends, and what it had serves
the other."""

import signal
import subprocess
from collections import Counter

import pytest

from tests.pool.pooling import Pooling, until
from tests.services.two_sites import SITES

pytestmark = pytest.mark.services

POOL = """
name: shared
max_workers: 6
period: 2s
hosts: {most: 2, procs: 2, idle: 5s, longest: 10m}
"""


@pytest.fixture
def pooling(tmp_path, slurm_site, gridengine_site):
    access = f'[site.access]\npoll = "1s"\nfolder = "{tmp_path}/marks"\ncontact = "127.0.0.1"'
    (tmp_path / "sites.toml").write_text(SITES.format(access=access))
    result = Pooling(tmp_path)
    yield result
    result.stop()
    for command in ("scancel -u root", "qdel -u root"):
        subprocess.run(command.split(), check=False, capture_output=True)


def queued():
    """Jobs of both systems that have not ended."""
    slurm = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=False).stdout
    grid = subprocess.run(["qstat", "-u", "*"], capture_output=True, text=True, check=False).stdout
    return slurm.splitlines() + grid.splitlines()[2:]


def test_two_managers_share_slurm_and_grid_engine(pooling, tmp_path):
    pool = pooling.pool(POOL, "--sites", tmp_path / "sites.toml")
    first = pooling.bag("first", 120, s="0.5", allowed=30)
    until(lambda: pooling.leased("first") >= 5, lambda: pooling.output("pool"))
    second = pooling.bag("second", 250, s="0.5", allowed=200)
    until(lambda: "second" in pooling.entries("manager"), lambda: pooling.output("second"))
    pooling.allow("first")
    until(
        lambda: pooling.leased("second") >= 2 and pooling.leased("first") <= 4,
        lambda: pooling.output("pool"),
    )
    pooling.allow("first", 0)  # until what follows was read
    hosts = pooling.json("pool", "status")["pools"][0]
    assert hosts["hosts"] == 3  # two of Slurm, the one of Grid Engine
    assert sum(pooling.json("pool", "explain")["decisions"].values()) == 6

    def reasons():
        return pooling.json("pool", "explain")["reasons"]

    until(lambda: any(reason.startswith("size first") for reason in reasons()), reasons)
    pooling.allow("first")
    until(lambda: first.poll() is not None)
    # a worker on its way to the first when that ended looks for it for ten seconds
    until(lambda: pooling.leased("second") == 6, lambda: pooling.output("pool"), seconds=40)
    pooling.allow("second")
    assert (first.wait(60), second.wait(90)) == (0, 0), pooling.output("second")
    for name, count in (("first", 120), ("second", 250)):
        assert pooling.ran(name) == Counter({str(n): 1 for n in range(count)})
    until(lambda: not queued(), lambda: f"{queued()}")
    pool.send_signal(signal.SIGINT)
    assert pool.wait(60) == 0
    assert not pooling.entries("pool")
    assert "all slots were released" in pooling.output("pool")

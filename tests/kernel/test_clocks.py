"""What a calendar that is set to another time may not decide: see also tests/chaos, where it jumps
under real runs."""

import random
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from immutables import Map

from tests.chaos.surroundings import Clock
from tests.conftest import ROOT
from tests.services.fixtures import there
from vgrads.api.plans.execution import Begun, RunOptions, begun_now
from vgrads.execmgr.core.states import RunState
from vgrads.execmgr.run_keys import make_keys
from vgrads.vgrid.catalog import Catalog

HOUR_S = 3600.0


@pytest.fixture
def begun():
    return begun_now(
        RunOptions(run_id="run-1", folder=Path("nowhere")), Catalog(sites=(), links={})
    )


def passed_since(setup, now_s=0.0):
    state = RunState(slots=Map(), copies=Map(), done=Map(), lost=Map(), now_s=now_s)
    return Begun(setup=setup, books=[], state=state).passed_s


@pytest.mark.parametrize("jump_s", [-48 * HOUR_S, HOUR_S])
def test_a_resumed_run_counts_by_the_machine_and_not_by_its_calendar(begun, jump_s):
    """Set to an hour later, it would have been beyond its deadline at once."""
    assert 0.0 <= passed_since(replace(begun, began_unix_s=begun.began_unix_s - jump_s)) < 60.0


def test_where_the_machine_was_started_anew_only_the_calendar_tells(begun):
    earlier = replace(begun, began_unix_s=begun.began_unix_s - HOUR_S, began_boot="another")
    assert passed_since(earlier) == pytest.approx(HOUR_S, abs=60.0)
    of_an_older_version = replace(earlier, began_boot="", began_up_s=0.0)
    assert passed_since(of_an_older_version) == pytest.approx(HOUR_S, abs=60.0)
    assert passed_since(begun, 2 * HOUR_S) == 2 * HOUR_S


def test_the_keys_of_a_run_hold_whatever_the_calendar_of_a_machine_says():
    """A worker whose calendar is behind the manager's refused what was valid from the manager's now
    on."""
    certificate = x509.load_pem_x509_certificate(make_keys()[0].encode())
    assert certificate.not_valid_before_utc.year < 2001
    assert certificate.not_valid_after_utc.year == 9999


DASK = """
import sys
from pathlib import Path
from distributed import Client, LocalCluster
from vgrads.execmgr.engines.dask import DaskEngine
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.kernel.clock import WallClock

if __name__ == "__main__":
    engine = DaskEngine(WallClock(), TaskFolder(Path(sys.argv[1]), Path(sys.argv[1])))
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        sums = [client.submit(int, n, pure=False) for n in range(30)]
        print(sum(one.result(timeout=30) for one in sums), flush=True)
    engine.abandon()
"""


@pytest.mark.services
def test_messages_of_dask_go_out_while_the_calendar_is_set_back_and_forth(tmp_path):
    """A stream waited till an instant of the calendar: set back by three days, it was silent for as
    long."""
    there(Clock.missing())
    clock = Clock()
    clock.enter(SimpleNamespace(draws=random.Random(1), folder=tmp_path))
    (tmp_path / "program.py").write_text(DASK)
    command = [sys.executable, tmp_path / "program.py", tmp_path / "run"]
    with (tmp_path / "said").open("w+") as said:
        program = subprocess.Popen(
            command,
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **clock.environment},
            stdout=said,
            stderr=said,
        )
        while program.poll() is None:
            clock.jump()
            with suppress(subprocess.TimeoutExpired):
                program.wait(0.01)
        said.seek(0)
        text = said.read()
    assert (program.returncode, text.splitlines()[:1]) == (0, [str(sum(range(30)))]), text[-3000:]

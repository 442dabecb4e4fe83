"""What a calendar that is set to another time may not decide: see also tests/chaos, where it jumps
under real runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from immutables import Map

from vgrads.api.plans.execution import StartedRun, begin_now
from vgrads.api.plans.run_setup import RunOptions
from vgrads.exchange.certificate import make_certificate
from vgrads.execmgr.core.states import RunState
from vgrads.vgrid.catalog import Catalog

HOUR_S = 3600.0


@pytest.fixture
def begun():
    return begin_now(
        RunOptions(run_id="run-1", folder=Path("nowhere")), Catalog(sites=(), links={})
    )


def elapsed_since(setup, now_s=0.0):
    state = RunState(slots=Map(), replicas=Map(), done=Map(), lost=Map(), now_s=now_s)
    return StartedRun(setup=setup, executions=[], state=state).elapsed_s


@pytest.mark.parametrize("jump_s", [-48 * HOUR_S, HOUR_S])
def test_a_resumed_run_counts_by_the_machine_and_not_by_its_calendar(begun, jump_s):
    """Set to an hour later, it would have been beyond its deadline at once."""
    assert 0.0 <= elapsed_since(replace(begun, began_unix_s=begun.began_unix_s - jump_s)) < 60.0


def test_where_the_machine_was_started_anew_only_the_calendar_tells(begun):
    earlier = replace(begun, began_unix_s=begun.began_unix_s - HOUR_S, began_boot="another")
    assert elapsed_since(earlier) == pytest.approx(HOUR_S, abs=60.0)
    of_an_older_version = replace(earlier, began_boot="", began_up_s=0.0)
    assert elapsed_since(of_an_older_version) == pytest.approx(HOUR_S, abs=60.0)
    assert elapsed_since(begun, 2 * HOUR_S) == 2 * HOUR_S


def test_the_keys_of_a_run_hold_whatever_the_calendar_of_a_machine_says():
    """A worker whose calendar is behind the manager's refused what was valid from the manager's now
    on."""
    certificate = x509.load_pem_x509_certificate(make_certificate()[0].encode())
    assert certificate.not_valid_before_utc.year < 2001
    assert certificate.not_valid_after_utc.year == 9999

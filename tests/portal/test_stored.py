"""Stored documents: they come back whole, name no class, and damage is reported."""

import typing
import zlib
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.execmgr.test_execmgr import execution_for
from tests.planner.test_planner import slot
from tests.workflows.test_workflows import dags
from vgrads.api.plans.run_setup import RunOptions, Setup
from vgrads.drivers.api import SiteAccess
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.kernel.errors import InputError
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot
from vgrads.portal.records.archive import KINDS, pack, unpack


def test_every_value_that_is_stored_has_a_lasting_name():
    """Whatever can be reached from what is kept is known to the archive."""
    result, open_ = set(), [Setup, ExecutionPlan, Plan, Snapshot]
    while open_:
        kind = open_.pop()
        result.add(kind)
        hints = typing.get_type_hints(kind)
        for name in (f.name for f in fields(kind)):
            open_ += [c for c in classes(hints[name]) if is_dataclass(c) and c not in result]
    assert result == set(KINDS.values())


def classes(hint):
    inner = typing.get_args(hint)
    return [c for part in inner for c in classes(part)] if inner else [hint]


@settings(max_examples=examples(30))
@given(dags())
def test_what_is_stored_comes_back(workflow):
    wide = max(task.procs for task in workflow.tasks.values())
    length = 2 * sum(task.runtime_s for task in workflow.tasks.values()) + 10
    execution = execution_for([workflow], [slot("a", procs=wide, end_s=length)], deadline_s=length)
    again = unpack(pack(execution), "x")
    assert again.plan.promise == execution.plan.promise
    assert (again.order, again.replicas, again.placements) == (
        execution.order,
        execution.replicas,
        execution.placements,
    )
    assert again.snapshot.workflow_set == execution.snapshot.workflow_set
    for item, other in zip(again.snapshot.slots, execution.snapshot.slots, strict=True):
        assert np.array_equal(item.curve.times_s, other.curve.times_s)
        assert (item.id, item.end_s, item.up) == (other.id, other.end_s, other.up)
    assert pack(again) == pack(execution)


def test_options_of_a_run_come_back():
    for at in (None, 12.5, datetime(2026, 1, 2, 3, 4, tzinfo=UTC)):
        options = RunOptions(run_id="run-1", folder=Path("/a b/\u00e4"), at=at, speed=float("inf"))
        assert unpack(pack(options), "x") == options


def test_an_archive_knows_its_age_and_tells_damage():
    good = pack(SiteAccess(host="x"))
    assert unpack(good, "x") == SiteAccess(host="x")
    with pytest.raises(InputError, match="newer vgrads"):
        unpack(b"\xff\xff" + good[2:], "x")
    for body in (good[:-5], good[:2], b"", good[:2] + zlib.compress(b"\x93\x90\x90")):
        with pytest.raises(InputError, match="cannot be read"):
            unpack(body, "x")


def test_a_field_or_kind_of_a_newer_version_is_reported():
    good = zlib.decompress(pack(SiteAccess(host="x"))[2:])
    for old, new in ((b"\xa4host", b"\xa4hose"), (b"\xa6access", b"\xa6excess")):
        assert old in good
        with pytest.raises(InputError, match="newer vgrads"):
            unpack(pack(None)[:2] + zlib.compress(good.replace(old, new)), "x")

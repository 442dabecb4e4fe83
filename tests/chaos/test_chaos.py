"""Whatever is done to its managers and tasks, a run ends, with every result whole, once, and
nothing left behind.

Each seed draws what surrounds its run, and its own faults. Every test run plays a few;
``VGRADS_CHAOS=300 python -m pytest tests/chaos`` as many as you like, ``VGRADS_CHAOS_FROM`` from
another seed on, ``VGRADS_CHAOS_EVERY=1`` all of them over Slurm or Grid Engine.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.surroundings import (
    Clock,
    Disk,
    GridEngineSite,
    OwnFiles,
    SlurmSite,
    Terminal,
)
from tests.chaos.world import PARENTS, PARTS, World
from tests.services.fixtures import there
from tests.waiting import until
from vgrads.execmgr.core.journal import fold
from vgrads.execmgr.core.states import ReplicaState
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store

pytestmark = pytest.mark.more

FIRST = int(os.environ.get("VGRADS_CHAOS_FROM", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("VGRADS_CHAOS", "7")))
NOTES = os.environ.get("VGRADS_CHAOS_NOTES", "")
_EVERY = int(os.environ.get("VGRADS_CHAOS_EVERY", "5"))
"""One seed of so many has a site of Slurm or Grid Engine, by turns: these take longer than one of
processes."""
_SERVICES = {SlurmSite: "slurm_site", GridEngineSite: "gridengine_site"}
_GONE_S = 60.0


def kinds_of(seed):
    """What surrounds the run of a seed."""
    draws = random.Random(f"surroundings of {seed}")
    return [
        *([list(_SERVICES)[seed // _EVERY % 2]] if seed % _EVERY == 1 % _EVERY else []),
        *([Clock] if draws.random() < 0.45 else []),
        *([Disk] if draws.random() < 0.4 else []),
        *([OwnFiles] if draws.random() < 0.4 else []),
        *([Terminal] if draws.random() < 0.4 else []),
    ]


def at_a_site(seed):
    return bool(_SERVICES.keys() & set(kinds_of(seed)))


def chosen(seed):
    kinds = kinds_of(seed)
    name = "-".join([str(seed), *(kind.__name__.lower() for kind in kinds)])
    marks = [pytest.mark.services] if at_a_site(seed) else []
    first = sorted(SEEDS, key=lambda other: (not at_a_site(other), other))
    before = first[: first.index(seed)]
    if set(kinds) <= {kind for other in before for kind in kinds_of(other)}:
        marks.append(pytest.mark.long)  # no other kind of fault than those, at other instants
    return pytest.param(seed, id=name, marks=marks)


@pytest.fixture
def surroundings(seed, request):
    """As drawn; where something for it is missing, the test skips."""
    results = []
    for kind in kinds_of(seed):
        there(kind.missing())
        service = _SERVICES.get(kind)
        results.append(kind(request.getfixturevalue(service)) if service else kind())
    return results


def final_state(world):
    """What the journal amounts to."""
    with Store(f"sqlite:///{world.home / 'vgrads.db'}") as store:
        record = RunRecord(store.engine, world.run()[0])
        return fold(record.executions(), record.events())


def cksum(paths):
    """As the tasks reckon it of their inputs."""
    whole = b"".join(path.read_bytes() for path in paths)
    done = subprocess.run(["cksum"], input=whole, capture_output=True, check=True)
    return done.stdout.split()[0].decode()


def check(world):
    """No result lost, mixed or committed twice; no process or job left; no traceback at the
    user; the database whole."""
    world.check_own_files()
    state = final_state(world)
    counted = Counter(
        k[:2] for k, replica in state.replicas.items() if replica.state == ReplicaState.DONE
    )
    assert counted == dict.fromkeys(state.done, 1)  # one copy of each task counts
    for workflow, name in state.done:
        results = world.run_folder / workflow / "results"
        contents = [(results / f"{name}.{n}").read_text() for n in range(PARTS)]  # not lost
        assert len(set(contents)) == 1, contents  # of one copy
        assert contents[0].startswith(f"{name} ")
        read = [results / f"{parent}.{n}" for parent in PARENTS[name] for n in range(PARTS)]
        # and of the one that its heirs have read: no second one came after it
        assert not read or contents[0].split()[1] == cksum(read), contents
    if world.run()[1] == "kept":
        assert len(state.done) == 2 * len(PARENTS)
    for surrounding in world.surroundings:
        until(lambda item=surrounding: not item.left(), "the end of what runs at the site", _GONE_S)
    assert not world.ours()


@pytest.mark.parametrize("seed", [chosen(seed) for seed in SEEDS])
def test_no_fault_loses_mixes_or_doubles_anything(seed, surroundings, tmp_path):
    draws = random.Random(seed)
    simulated = []
    world = World(tmp_path, draws, surroundings)
    try:
        world.start()
        for _ in range(draws.randint(1, 5 + 2 * len(surroundings))):
            pause(draws.uniform(0.0, 1.5))
            if world.is_over:
                break
            fault = draws.choice(world.faults)
            simulated.append(fault.__qualname__)
            fault()
        world.end()
        check(world)
        note(seed, world.run()[1], simulated)
    except BaseException as error:
        note(seed, f"failed: {error}"[:300], simulated)
        raise
    finally:
        world.leave()


def note(seed, ended, simulated):
    """What was played, for whoever reads the report of a failure, or wants to count:
    ``VGRADS_CHAOS_NOTES=FILE``."""
    kinds = [kind.__name__ for kind in kinds_of(seed)]
    line = json.dumps({"seed": seed, "kinds": kinds, "ended": ended, "faults": simulated})
    print(line)
    if NOTES:
        with Path(NOTES).open("a") as notes:
            notes.write(f"{line}\n")


def pause(seconds):
    """Faults come at any moment: this is the moment."""
    end_s = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end_s, "time", seconds + 5)


def test_the_check_itself_sees_what_is_wrong(tmp_path):
    """A result that is lost, and one of two copies, are seen; and an event that is lost, and a
    manager whose database was deleted."""
    world = World(tmp_path, random.Random(1))
    world.start()
    world.end()
    check(world)
    victim = next(Path(world.run_folder).glob("*/results/a.1"))
    text = victim.read_text()
    victim.unlink()
    victim.write_text(text + "of another copy\n")
    with pytest.raises(AssertionError):
        check(world)
    victim.unlink()
    with pytest.raises(FileNotFoundError):
        check(world)
    victim.write_text(text)
    check(world)
    with closing(sqlite3.connect(world.home / "vgrads.db")) as database, database:
        database.execute("DELETE FROM run_event WHERE position = 0")
    with pytest.raises(AssertionError):
        check(world)
    with (tmp_path / "vgrads.db").open("w") as file:
        world.managers.append(subprocess.Popen(["sleep", "60"], stdin=file))
    assert not world.misled()
    Path(file.name).unlink()
    assert world.misled()
    world.leave()

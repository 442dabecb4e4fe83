"""Which calls the real Slurm answers: instead of ours, after ours, or not at all."""

import pytest

from vgrads.api.slurm.outer import OuterSlurm
from vgrads.api.slurm.records import FIRST_ID
from vgrads.slurm.text.selection import parse_ids

REAL = OuterSlurm({name: f"/real/{name}" for name in ("sbatch", "squeue", "scancel")})
OURS, THEIRS = str(FIRST_ID), "12"


@pytest.mark.parametrize(
    ("ids", "instead", "also"),
    [
        ((), False, True),
        ((OURS,), False, False),
        ((THEIRS, "13_4"), True, True),
        ((OURS, THEIRS), False, True),
    ],
)
def test_ids_decide_whether_the_real_command_runs(ids, instead, also):
    words = ["/real/squeue", "-j", ",".join(ids)]
    selected = parse_ids(ids)
    assert REAL.instead("squeue", words[1:], selected) == (words if instead else [])
    assert REAL.also("squeue", words[1:], selected) == ([words] if also else [])
    assert REAL.instead("sacct", words[1:], selected) == []
    assert REAL.also("sacct", words[1:], selected) == []


def test_the_real_scancel_gets_its_own_ids_alone():
    words = [OURS, THEIRS, f"{OURS}_3", "-Q"]
    assert REAL.cancels(words, parse_ids(words[:3])) == [["/real/scancel", THEIRS, "-Q"]]
    assert REAL.cancels([OURS], parse_ids([OURS])) == []
    assert REAL.cancels(["--me"], parse_ids([])) == [["/real/scancel", "--me"]]

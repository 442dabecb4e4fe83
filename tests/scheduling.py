"""Which tests go to one worker, and which begin first: what is long and must be played one after
another is not left to the end."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

GRID_ENGINE = (
    "tests/drivers/test_services.py",
    "tests/dispatch/test_bag_services.py",
    "tests/pool/test_pool_services.py",
    "tests/execmgr/test_endtoend.py",
    "tests/snakemake/test_snakemake_services.py",
)
"""Their tests, and the chaos runs over it, play one after another: a machine has one Grid Engine,
which a worker that began it keeps."""
_OVER_GRID_ENGINE = "-gridenginesite"

APART = (
    "tests/chaos/",
    "tests/dispatch/test_bag_survival.py",
    "tests/execmgr/test_survival.py",
    "tests/pool/test_pool_runs.py",
    "tests/snakemake/test_released.py",
    "tests/snakemake/test_snakemake.py",
)
"""Files of long tests that share nothing dear: these need not go to one worker."""

_OF_GALLERY = (
    *("alternatives", "api_page", "bag_answer", "gallery", "history", "limits", "states"),
    *("submission", "tasks"),
)
TOGETHER = {
    **{f"tests/portal/pages/test_{name}.py": "the gallery is made" for name in _OF_GALLERY},
    "tests/house/test_counts.py": "every program is parsed",
    "tests/house/test_extras.py": "every program is parsed",
    "tests/house/test_house.py": "every program is parsed",
    "tests/house/test_names.py": "every program is parsed",
    "tests/workloads/test_bag_logs.py": "the simulation of policies is compiled",
    "tests/workloads/test_simulated_bags.py": "the simulation of policies is compiled",
}
"""Files whose tests go to one worker, and what is dear that it does once."""


class Scheduling(LoadFileScheduling):
    """A file's tests go to one worker, so that what they share is made once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        if file in GRID_ENGINE or _OVER_GRID_ENGINE in nodeid:
            return "Grid Engine"
        return nodeid if file.startswith(APART) else TOGETHER.get(file, file)


def ordered(items: list[pytest.Item]) -> None:
    """Grid Engine's tests first, then the long ones, then the others as they are found. What needs
    a set in every state is of ``make test-more``: running these takes two minutes."""
    for item in items:
        if "gallery" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.more)

    def rank(item: pytest.Item) -> int:
        file = item.nodeid.split("::", 1)[0]
        return 0 if file in GRID_ENGINE else 1 if file.startswith((*APART, *TOGETHER)) else 2

    items.sort(key=rank)


def scheduling(config: pytest.Config, log: Any) -> Scheduling | None:
    """Ours for ``--dist loadfile``; what xdist has for the others."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Scheduling(config, log)

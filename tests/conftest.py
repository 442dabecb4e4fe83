"""What tests share: the shipped data, logs and workflows of the shared folder where it exists, a
command line."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import leftovers, scheduling, second_try
from tests.examples import EFFORT, examples
from tests.leftovers import nothing_is_left
from tests.services.fixtures import browser, gridengine_site, slurm_site
from vgrads.portal.main import main
from vgrads.portal.records.store import Store

__all__ = ["browser", "gridengine_site", "nothing_is_left", "slurm_site"]  # fixtures

settings.register_profile(
    "vgrads",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("vgrads")
# a shell that runs the tests in the background ignores Ctrl-C, and whatever they start would
# inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
# workers of parallel tests have it: outputs would be narrower than those in a pipe
os.environ.pop("COLUMNS", None)
os.environ["VGRADS_EFFORT"] = str(EFFORT)

ROOT = Path(__file__).parent.parent
DATA = ROOT / "data"
SHARED = ROOT.parent / "shared" / "traces"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of this project alone."""
    second_try.add_option(parser)


gc.disable()
"""Until all modules are imported, whose objects stay: a third of that time went into looking for
garbage among them."""


def pytest_collection_finish() -> None:
    """All modules are imported."""
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Before anything asks for the temporary directory."""
    leftovers.begin(config)
    second_try.begin(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first."""
    scheduling.ordered(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How workers share the tests."""
    return scheduling.scheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """After all workers have ended."""
    yield
    second_try.end(session)
    leftovers.end(session)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Store]:
    """The database of a home of this test."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with Store() as opened:
        yield opened


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def vgrads(capfd, monkeypatch, tmp_path):
    """Call the command line in this process, with a home of its own. Umask and handlers of logs,
    which a command sets for its process, are those of before afterwards."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))

    def call(*arguments: object) -> Answer:
        umask, logs = os.umask(0o022), logging.getLogger()
        os.umask(umask)
        handlers, level = logs.handlers[:], logs.level
        try:
            with pytest.raises(SystemExit) as stop:
                main([str(a) for a in arguments])
        finally:
            os.umask(umask)
            logs.handlers[:] = handlers
            logs.setLevel(level)
        captured = capfd.readouterr()
        return Answer(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def shared() -> Path:
    """The shared traces; the test skips where they are not there."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared/traces, which is not there")
    return SHARED


@pytest.fixture
def write(tmp_path):
    """Write a small file and return its path."""

    def put(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return put

"""Services as fixtures: a module's tests share one; where one is not installed they skip, or in CI
fail."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.services import gridengine, slurm
from tests.services.run import NEEDED


def there(missing: str) -> None:
    """Skip where something is missing; where services are required, fail."""
    if missing and NEEDED:
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""


@contextmanager
def surrounded(environment: Mapping[str, str]) -> Iterator[None]:
    """These variables while the block runs."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def slurm_site(tmp_path_factory):
    there(slurm.missing())
    folder = tmp_path_factory.mktemp("slurm")
    with slurm.slurm_service(folder, min_job_age=2) as service, surrounded(service.environment):
        yield service


@pytest.fixture(scope="module")
def gridengine_site():
    there(gridengine.missing())
    with gridengine.gridengine_service() as environment, surrounded(environment):
        yield environment


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    there("" if CHROMIUM else "needs chromium")
    with playwright.sync_playwright() as tools:
        result = tools.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield result
        result.close()

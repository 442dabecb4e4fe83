"""Parsl's own tests, which its package contains, on its HTEX over its SlurmProvider: in pilots of a
real Slurm."""

import re

import pytest

from tests.slurm.client_programs import BIN, PROGRAMS, Clients, needed
from tests.slurm.test_clients_services import installed_over

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

SETTINGS = "[pytest]\nnorecursedirs = manual_tests integration site_tests configs\n"
"""Those folders have tests of other installations. Empty otherwise: not those of this project."""
NOT_HERE = "not cleannet and not issue3328"
"""Without those that need the network, and those that Parsl states to be broken."""


def test_parsls_own_suite_passes(slurm_site, tmp_path):
    needed()
    with installed_over(tmp_path / "vgrads", "cluster", "slurm", "batch", 16, 8) as slurm:
        slurm.wait(slurm.submit("--wrap=true"))  # starts the service, with this environment
        clients = Clients(slurm, timeout_s=900.0)
        where = (BIN / "python", "-c", "import parsl.tests; print(*parsl.tests.__path__)")
        folder = clients.run("where", *where).strip()
        settings = tmp_path / "settings.ini"
        settings.write_text(SETTINGS)
        suite = (BIN / "python", "-m", "pytest", folder, "--rootdir", folder, "-c", settings)
        options = ("-k", NOT_HERE, "--config", PROGRAMS / "parsl_suite.py", "-rfEs", "--tb=short")
        out = clients.run("suite", *suite, *options, "-p", "no:cacheprovider")
        blocks = slurm.run("sacct", "-X", "-n", "-P", "-o", "JobName").count("parsl.slurm")
    print(out.splitlines()[-1])
    assert blocks == 1
    assert int(re.search(r"(\d+) passed", out)[1]) > 100

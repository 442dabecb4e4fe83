"""Schemathesis against a service with tokens: whatever is sent, the answer is one that the
description has."""

import json
import random
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.examples import SHARE, examples
from tests.portal.serving import LEAD, serving
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store

pytestmark = [pytest.mark.more, pytest.mark.hypothesis]
"""The second: all paths are tried by ``make test-long``."""

_CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,negative_data_rejection,"
    "unsupported_method"
)
_EXAMPLES = "12"  # of each operation

_REFUSED = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429"]
_LEFT_OUT = "/events$|^/v1/bags/[^/]*/tasks$"
"""Streams: of events, which end when a run does, and of lines of JSON, which the tool cannot write
(tests/dispatch/test_bag_work.py)."""


def test_whatever_is_sent_is_answered_as_described(tmp_path):
    tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("needs schemathesis")
    with Store(f"sqlite:///{tmp_path / 'vgrads.db'}") as store:
        secret, _ = AccessControl(store.engine).create("ann", ["operate"], 3600.0)
    config = tmp_path / "schemathesis.toml"
    config.write_text("")
    settings = tmp_path / "vgrads.toml"
    settings.write_text('rate = ""\n')
    with serving(tmp_path, "--config", settings) as service:
        chosen = choose_paths(service)
        set_id = service.client(secret).submit(LEAD)
        config.write_text(
            f"[checks]\nnegative_data_rejection.expected-statuses = {_REFUSED}\n"
            f'[parameters]\n"path.set_id" = "{set_id}"\n"path.site" = "mayhem"\n'
            '"path.queue" = "default"\n'
        )
        command = [
            tool,
            "--config-file",
            str(config),
            "run",
            f"{service.url}/openapi.json",
            "--checks",
            _CHECKS,
            "-n",
            _EXAMPLES,
            "--phases",
            "examples,coverage,fuzzing",
            "--include-path-regex",
            f"^({'|'.join(map(re.escape, chosen))})$",
            "--continue-on-failure",
            "--request-timeout",
            "60",
            "-H",
            f"Authorization: Bearer {secret}",
            "--warnings",
            "off",
            "--suppress-health-check",
            "all",
            "--no-color",
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=1800
        )
        assert service.ready()
    assert "Traceback" not in service.log.read_text()
    assert done.returncode == 0, f"{chosen}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"


def choose_paths(service):
    """The share of the service's paths that this session tries; other ones in each session."""
    with urllib.request.urlopen(f"{service.url}/openapi.json", timeout=60) as answer:
        paths = [path for path in json.load(answer)["paths"] if not re.search(_LEFT_OUT, path)]
    count = len(paths) if SHARE == 1.0 else examples(len(paths) // 2)
    return sorted(random.sample(paths, count))

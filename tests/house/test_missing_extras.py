"""Without the extras: one clear error, no traceback; everything else works."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.conftest import DATA
from tests.logs import make_log
from vgrads.kernel.extras import MODULES

NAMES = [name for names in MODULES.values() for name in names if name != "requests"]
PACKAGES = [name for name in NAMES if name != "vgrads_studies"]  # of others
BLOCK = "import sys; sys.modules.update(dict.fromkeys({names!r}))\n"
"""Before anything else, in a process that is to find none of these packages."""
CALL = """
import contextlib, io, json
from vgrads.portal.main import main
for arguments in {commands!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def run_without_extras(code, folder, names=PACKAGES, **variables):
    """Run a program in a process that finds none of the packages of extras."""
    return subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", BLOCK.format(names=names) + code],
        cwd=folder,
        env={**os.environ, "VGRADS_HOME": str(folder / "home"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def lean(tmp_path):
    """Call the command line in such a process, with each of several lists of arguments."""

    def call(*commands, names=PACKAGES, **variables):
        code = CALL.format(commands=[[str(a) for a in arguments] for arguments in commands])
        done = run_without_extras(code, tmp_path, names, **variables)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(commands), done.stderr
        return [SimpleNamespace(returncode=c, stdout=o, stderr=e) for c, o, e in answers]

    return call


def refused(done, extra, code=2):
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
    assert f"pip install 'vgrads[{extra}]'" in done.stderr
    assert "not installed" in done.stderr
    return done.stderr


def test_a_study_says_how_it_is_installed(lean):
    (done,) = lean(["study", "bounds", "jobs.txt"], names=NAMES)
    assert refused(done, "studies").count("\n") == 1


@pytest.mark.more
def test_a_set_is_run_and_its_chart_drawn_as_svg(lean, write, tmp_path):
    """Commands run without extras where the wheel is tried (tests/services/try_wheel.sh)."""
    write("sites.toml", '[[site]]\nname = "s"\nkind = "dedicated"\nprocs = 1\n')
    tasks = '[{"id": "a", "runtime_s": 60}]'
    text = f'{{"name": "s", "deadline": "1h", "workflows": [{{"name": "w", "tasks": {tasks}}}]}}'
    run = ["run", write("s.json", text), "--sites", "sites.toml", "--gantt", "chart.html"]
    done, status = lean(run, ["status", "--json"])
    assert done.returncode == 0, done.stderr
    assert "KEPT" in done.stdout.splitlines()[-1]
    assert (tmp_path / "chart.html").stat().st_size > 10_000
    run = next(word for word in status.stdout.split('"') if word[:4] == "run-")
    drawn, png = lean(["gantt", run, "-o", "run.svg"], ["gantt", run, "-o", "run.png"])
    assert drawn.returncode == 0
    assert (tmp_path / "run.svg").read_text().startswith("<svg")
    assert refused(png, "plots").startswith("vgrads: run.png: ")


@pytest.mark.more
def test_a_picture_that_needs_an_extra_is_refused_before_any_work(lean, tmp_path):
    commands = [
        ["plan", str(DATA / "lead-storm.yaml"), "--gantt", "plan.pdf"],
        ["backtest", "any.swf", "--report", "page.html"],
        ["size", str(DATA / "lead-storm.yaml"), "--picture", "size.svg"],
        ["runtimes", "show", "task", "--plot", "task.svg"],
        ["bags", "fit", "any.swf", "--report", "page.html"],
        ["study", "quality", "--picture", "quality.svg"],
        ["study", "bounds", "--report", "page.html", "any.swf"],
    ]
    for done in lean(*commands):
        refused(done, "plots")
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".pdf", ".html", ".svg")]


def test_a_site_of_a_dask_cluster_names_its_extra(lean, write):
    sites = write(
        "sites.toml",
        '[[site]]\nname = "lent"\nkind = "dedicated"\nprocs = 2\ndriver = "dask"\n'
        '[site.access]\nendpoint = "tcp://127.0.0.1:9"\n',
    )
    (done,) = lean(["sites", "check", sites, "--json"])
    assert done.returncode == 4
    assert "site lent: the driver 'dask' needs the extra 'dask'" in done.stdout
    assert "pip install 'vgrads[dask]'" in done.stdout


def test_settings_of_a_login_provider_name_their_extra(lean, write):
    settings = write(
        "vgrads.toml", '[oidc]\nissuer = "https://login.example"\nclient_id = "vgrads"\n'
    )
    config = ["--config", settings]
    for done in lean(["config", "check", *config], ["serve", "--port", "0", *config]):
        assert "oidc: " in refused(done, "oidc")


def test_a_target_of_alarms_names_its_extra(lean, write):
    settings = write("vgrads.toml", 'alarm_schemes = ["mailtos"]\n')
    added, listed, checked = lean(
        ["alarms", "add", "hook", "jsons://hooks.example.org/x"],
        ["alarms", "list", "--json"],
        ["config", "check", "--config", settings],
    )
    refused(added, "alerts")
    assert json.loads(listed.stdout) == {"targets": []}
    assert "alarm_schemes: " in refused(checked, "alerts")


def test_a_database_names_its_extra(lean):
    url = "postgresql+psycopg://nobody@127.0.0.1:9/none"
    (done,) = lean(["status"], VGRADS_DB=url)
    assert "database URL: " in refused(done, "postgres")


@pytest.mark.more
def test_the_pages_need_no_extra(lean, write, tmp_path):
    """A set with its chart, a queue with the picture of its bounds; a picture as PNG is refused."""
    log = make_log(1000, seed=1)
    lines = [
        f"{n + 1} {int(s)} {int(w)} 60 1 -1 -1 1 100 -1 1 1 1 1 1 1 -1 -1\n"
        for n, (s, w) in enumerate(zip(log.submit_s, log.wait_s, strict=True))
    ]
    write("log.swf", "; UnixStartTime: 1000000000\n" + "".join(lines))
    write(
        "sites.toml",
        '[[site]]\nname = "m"\nkind = "batch"\nprocs = 64\n'
        '[[site.queue]]\nname = "q"\nhistory = "log.swf"\n',
    )
    code = """
from pathlib import Path
from fastapi.testclient import TestClient
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog

page = {"accept": "text/html"}
with Store() as store, TestClient(make_app(store, load_catalog(Path("sites.toml")))) as client:
    print(client.get("/sites/m/q", headers=page).status_code)
    print(client.get("/sites/m/q/record.svg").text[:4])
    tasks = [{"id": "a", "runtime_s": 60}]
    body = {"name": "s", "deadline": "9d", "workflows": [{"name": "w", "tasks": tasks}]}
    made = client.post("/v1/workflow-sets", json=body).json()
    chart = f"/v1/workflow-sets/{made['id']}/gantt?format="
    shown = client.get(f"/sets/{made['id']}", headers=page).text
    print("format=svg" in shown, "format=png" in shown, client.get(chart + "svg").status_code)
    refused = client.get(chart + "png")
    print(refused.status_code, refused.json()["detail"])
"""
    done = run_without_extras(code, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[:3] == ["200", "<svg", "True False 200"]
    assert done.stdout.splitlines()[3].startswith("501 a chart as PNG needs the extra 'plots'")

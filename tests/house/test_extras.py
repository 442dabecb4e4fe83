"""Extras: who may import their packages, and that nothing else needs them."""

import ast
import subprocess
import sys
import tomllib

from tests.conftest import ROOT
from tests.house.test_house import SOURCES, nodes_of, shown
from vgrads.kernel.extras import MODULES

ALLOWED = {
    "classad2": set(),  # the reference of tests
    "matplotlib": {
        "vgrads/portal/charts/curves.py",
        "vgrads/portal/charts/backtest.py",
        "vgrads/portal/charts/exports.py",
        "vgrads/portal/charts/run_time_chart.py",
        "vgrads/portal/charts/size_chart.py",
        "vgrads/portal/charts/fitted_bags.py",
        "studies/vgrads_studies/picture.py",
    },
    "distributed": {"drivers/dask_cluster.py"},
    "dask": set(),
    "tornado": set(),
    "authlib": {"vgrads/portal/web/oidc.py"},
    "joserfc": {"vgrads/portal/web/oidc.py"},
    "requests": {"vgrads/portal/web/oidc.py", "drivers/ec2.py"},  # libcloud needs it too
    "fsspec": {"vgrads/agent/programs/staging.py"},
    "s3fs": set(),
    "psycopg": set(),
    "cwltool": set(),
    "vgrads_studies": set(),  # the command line finds them by entry point
    "apprise": {"vgrads/portal/jobs/alarm_program.py"},
    "joblib": {"vgrads/executor/joblib_backend.py"},  # no extra: whoever registers with it has it
    "tqdm": set(),
}
WHOLE = {"vgrads.portal.web.oidc", "vgrads.executor.joblib_backend"}
"""Modules that load such a package when they are imported, which happens late."""


def imported(path):
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def test_packages_of_extras_are_imported_only_where_that_is_allowed():
    users = {name: set() for name in ALLOWED}
    for path in SOURCES:
        if path.is_relative_to(ROOT / "plugins"):
            continue
        own = {"vgrads_studies"} if path.is_relative_to(ROOT / "studies") else set()
        for name in ALLOWED.keys() & set(imported(path)) - own:
            users[name].add(shown(path))
    assert {n: more for n, f in users.items() if (more := f - ALLOWED[n])} == {}
    assert users["matplotlib"] == ALLOWED["matplotlib"]  # the search finds them


def test_every_package_of_an_extra_is_named_above():
    assert {name for names in MODULES.values() for name in names} <= ALLOWED.keys()


def test_the_extras_of_the_project_are_those_that_errors_name():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert extras.keys() - {"dev", "docs"} == MODULES.keys()
    (all_of_them,) = (text for text in extras["dev"] if text.startswith("vgrads["))
    names = set(all_of_them.removeprefix("vgrads[").rstrip("]").split(","))
    assert names == MODULES.keys() - {"studies"}  # they are installed from their folder


def test_modules_are_imported_without_the_extras_and_under_one_name(tmp_path):
    """From a folder of their own. Those that need an extra are imported late, by the modules named
    above; no file is loaded twice."""
    code = (
        "import importlib, os, pkgutil, sys\n"
        f"names = {sorted(ALLOWED.keys() - {'requests'})}\n"
        "sys.modules.update(dict.fromkeys(names))\n"
        "import vgrads\n"
        "for module in pkgutil.walk_packages(vgrads.__path__, 'vgrads.'):\n"
        "    last = module.name.rpartition('.')[2]\n"
        "    if last in ('__main__', 'block_runner', 'snakemake_child')"
        " or '.migrations.' in module.name:\n"
        "        continue\n"
        "    try:\n"
        "        importlib.import_module(module.name)\n"
        "    except ImportError as error:\n"
        "        print('needs an extra:', module.name, error.name)\n"
        "files = {}\n"
        "for name, module in list(sys.modules.items()):\n"
        "    file = getattr(module, '__file__', None)\n"
        "    if file and name != '__main__':\n"
        "        files.setdefault(os.path.realpath(file), set()).add(name)\n"
        "root = os.path.dirname(os.path.dirname(os.path.realpath(vgrads.__file__)))\n"
        "own = [n for f, n in files.items() if f.startswith(root) and '.venv' not in f]\n"
        "assert len(own) > 350, len(own)\n"
        "for names in own:\n"
        "    if len(names) > 1 or not min(names).startswith('vgrads'):\n"
        "        print('twice:', *names)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    need = {f"needs an extra: {name}" for name in WHOLE}
    assert {line.rpartition(" ")[0] for line in done.stdout.splitlines()} == need, done.stdout

"""Extras: who may import their packages, and that nothing else needs them."""

import ast
import subprocess
import sys
import tomllib

from tests.conftest import ROOT
from vgrads.kernel.extras import MODULES

ALLOWED = {
    "classad2": {"vgrads/policies/ads.py"},
    "matplotlib": {
        "vgrads/portal/charts/curves.py",
        "vgrads/portal/charts/backtest.py",
        "vgrads/portal/charts/exports.py",
        "vgrads/portal/charts/run_time_chart.py",
        "vgrads/portal/charts/size_chart.py",
        "vgrads/research/bags/chart.py",
        "vgrads/research/picture.py",
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
    "joblib": {"vgrads/executor/joblib_backend.py"},  # no extra: whoever registers with it has it
    "tqdm": set(),
}
FOLDERS = ("vgrads", "drivers", "execmgr", "planner", "qbets", "vgrid")
WHOLE = {"vgrads.portal.web.oidc", "vgrads.executor.joblib_backend"}
"""Modules that load such a package when they are imported, which happens late."""


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def test_packages_of_extras_are_imported_only_where_that_is_allowed():
    users = {name: set() for name in ALLOWED}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            inside = path.relative_to(ROOT).as_posix()
            if any((ROOT / part).is_symlink() for part in path.relative_to(ROOT).parents):
                continue  # reached under its own name
            for name in ALLOWED.keys() & set(imported(path)):
                users[name].add(inside)
    assert {n: more for n, f in users.items() if (more := f - ALLOWED[n])} == {}
    assert users["matplotlib"] == ALLOWED["matplotlib"]  # the search finds them


def test_every_package_of_an_extra_is_named_above():
    assert {name for names in MODULES.values() for name in names} <= ALLOWED.keys()


def test_the_extras_of_the_project_are_those_that_errors_name():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert extras.keys() - {"dev", "docs"} == MODULES.keys()
    (all_of_them,) = (text for text in extras["dev"] if text.startswith("vgrads["))
    assert set(all_of_them.removeprefix("vgrads[").rstrip("]").split(",")) == MODULES.keys()


def test_all_other_modules_can_be_imported_without_the_extras(tmp_path):
    """Those that cannot are imported late, by the modules named above."""
    code = (
        "import importlib, pkgutil, sys\n"
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
        "        print(module.name, error.name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line.split()[0] for line in done.stdout.splitlines()} == WHOLE, done.stdout

"""Every command that a document shows is run, made smaller where it would take long."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from vgrads.api.config import embedded_data
from vgrads.traces.history import read_history

RESULTS = sorted((ROOT / "studies" / "results").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *RESULTS]
ELSEWHERE = {
    "vgrads study spot --leaderboard": "needs a checkout of the leaderboard",
    "vgrads serve": "tests/portal/test_portal.py begins and kills services",
    "vgrads alarms add": "tests/portal/test_alarm_targets.py, with servers",
    "vgrads alarms test": "tests/portal/test_alarm_targets.py, with servers",
    "vgrads alarms remove": "tests/portal/test_alarm_targets.py",
    "vgrads alarms rules": "tests/portal/test_alarm_rules.py",
    "vgrads alarms acknowledge": "tests/portal/test_alarm_rules.py, with a run",
    "vgrads sites sweep": "tests/drivers/test_services.py, on a real batch system",
    "vgrads sites queue cluster": "tests/drivers/test_services.py",
    "vgrads sites collect": "tests/drivers/test_services.py",
    "vgrads sites check SITES.toml": "tests/drivers/test_services.py, at a real site",
    "vgrads bound cluster/batch": "tests/drivers/test_services.py, after collecting",
    "vgrads bound SITE/QUEUE": "tests/drivers/test_services.py, on a queue with jobs in it",
    "vgrads sites open": "tests/portal/test_access.py: only real sites can be opened",
    "vgrads plan Snakefile": "tests/workflows/test_import_snakemake.py, where there is Snakemake",
    "vgrads convert Snakefile": "tests/workflows/test_import_snakemake.py",
    "vgrads plan flow.cwl": "tests/workflows/test_import_cwl.py",
    "vgrads plan trace.txt": "tests/workflows/test_import_nextflow.py, with work folders",
    "vgrads convert IN OUT": "tests/workflows/test_convert.py",
    "vgrads run … --webhook": "tests/portal/test_live.py, with a listener",
    "vgrads plan … --json": "test_a_plan_is_explained, below",
    "vgrads explain": "test_a_plan_is_explained, below",
    "vgrads run data/local/local.yaml": "tests/portal/test_commands.py, in its folder",
    "vgrads study varq": "tests/studies/test_studies.py",
    "vgrads study bags": "tests/workloads/test_simulated_bags.py",
    "vgrads study falkon": "tests/pool/test_pool.py",
    "vgrads study gridbot": "tests/studies/test_studies.py",
    "vgrads pool run": "tests/pool/test_pool_runs.py",
    "vgrads pool explain": "tests/pool/test_pool_runs.py, while one is at work",
    "vgrads study deadlines": "tests/studies/test_study_deadlines.py",
    "vgrads study pool": "tests/studies/test_study_pool.py",
    "vgrads study runtimes": "tests/runtimes/test_runtimes.py, on recorded traces",
    "vgrads study run-times-kept": "tests/runtimes/test_study_run_times.py, on recorded traces",
    "vgrads allpairs": "tests/dispatch/test_matrix.py",
    "vgrads wavefront": "tests/dispatch/test_matrix.py, tests/dispatch/goals",
    "vgrads matrix": "tests/dispatch/test_matrix.py",
    "vgrads bags run BAG.yaml": "tests/dispatch/test_bag_virtual.py",
    "vgrads bags status BAG": "tests/dispatch/test_bag_virtual.py",
    "vgrads bags logs BAG": "tests/dispatch/test_bag_virtual.py",
    "vgrads bags explain BAG": "tests/dispatch/test_bag_virtual.py",
    "vgrads bags invite BAG": "tests/policies/test_policy_runs.py",
    "vgrads bags resume BAG": "tests/dispatch/test_bag_virtual.py",
    "vgrads bags results BAG": "tests/dispatch/results/test_bag_results.py",
    "vgrads bags retry BAG": "tests/dispatch/results/test_bag_retry.py",
    "vgrads retry BAG": "tests/dispatch/results/test_bag_retry.py",
    "vgrads bags cancel BAG": "tests/dispatch/test_bag_virtual.py",
    "vgrads doctor --config": "tests/security/test_doctor.py, with services",
    "vgrads slurm gantt": "tests/slurm/test_service.py",
    "vgrads size BAG.yaml --sites": "tests/pool/test_deadline_plan.py",
    "vgrads study spot FOLDER": "tests/studies/test_spot_study.py",
    "vgrads slurm up": "tests/slurm/test_restart.py",
    "vgrads slurm install": "tests/slurm/test_restart.py, with sites of its own",
    "vgrads init": "tests/terminal/test_init.py, in an empty folder",
    "vgrads db upgrade": "tests/portal/test_database.py, up and down",
}
SMALLER = (
    (r"#.*", ""),
    (r"(?<!\S)(?!data/)\S+\.swf\.gz…?", "jobs.swf.gz"),
    (r"(study whatif .*) --report", r"\1 --count 1 --budget 9 --report"),
    (r"study timeline", "study timeline --runs 2"),
    (r"--trials 300", "--trials 1"),
    (r"--count (150|200|400)", "--count 2"),
    (r"--count 20\b", "--count 1"),
    (r"--wavefront 1000", "--wavefront 20"),
    (r"docs/(\w+\.svg)", r"\1"),
    (r"WORKFLOWS", "data/lead.json"),
    (r"\[SITES\.toml\]|SITES\.toml", "data/sites.toml"),
    (r"run-0123456789|\bRUN\b", "{run}"),
    (r"w-1/model|\bTASK\b", "lead-1/wrf"),
    (r"\bSITE\b(?!S)", "kittyhawk"),
    (r"tok-0123456789", "{token}"),
    (r"--model fit\.json -o", "--model fit.json --procs 64 -o"),
    (r"--procs 3500 -o bags\.swf", "--procs 64 --days .05 -o bags.swf"),
    (r"\bFILE\b", "kept.db"),
    (r"(?<!-)\bset\.yaml", "data/lead.yaml"),
)


def commands() -> list[str]:
    """Commands in backticks and in blocks, each once."""
    result = {}
    for page in PAGES:
        text = page.read_text()
        shown = re.findall(r"`(vgrads [^`]+)`", text)
        for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            shown += [line.strip() for line in block.splitlines() if line.startswith("vgrads ")]
        result |= {command: page.name for command in shown}
    return sorted(result)


def elsewhere(command: str) -> bool:
    return any(command.startswith(existing) for existing in ELSEWHERE)


def marked(command: str):
    """Studies take long, are those of a release, and what they find is tested beside them."""
    study, bags = command.startswith("vgrads study"), command.startswith("vgrads bags")
    marks = [pytest.mark.long] if study else [pytest.mark.more] if bags else []
    return pytest.param(command, marks=marks)


def as_run(command: str) -> str:
    for pattern, smaller in SMALLER:
        command = re.sub(pattern, smaller, command)
    return command.strip()


def different() -> list[str]:
    """Commands that are run here; of those that are the same once made smaller, the first."""
    kept: dict[str, str] = {}
    for command in commands():
        if not elsewhere(command):
            kept.setdefault(as_run(command), command)
    return [*kept.values()]


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """A folder as a reader would have it: the data, a log, a request, the files of the tutorial."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "data", "data")
    shutil.copy(embedded_data() / "histories" / "mayhem.swf.gz", "jobs.swf.gz")
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    (tmp_path / "sites.toml").write_text(re.search(r"```toml\n(.*?)```", tutorial, re.DOTALL)[1])
    (tmp_path / "forecast.yaml").write_text(re.search(r"```yaml\n(.*?)```", tutorial, re.DOTALL)[1])
    (tmp_path / "trace.txt").write_text(re.search(r"```text\n(.*?)```", tutorial, re.DOTALL)[1])
    (tmp_path / "counts.yaml").write_text(re.findall(r"```yaml\n(.*?)```", tutorial, re.DOTALL)[1])
    request = (ROOT / "docs" / "requests.md").read_text()
    (tmp_path / "storm.grid").write_text(re.search(r"```\n(.*?)```", request, re.DOTALL)[1])
    (tmp_path / "jobs.txt").write_text(as_sacct(tmp_path / "jobs.swf.gz"))
    return tmp_path


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A home with a run that has ended, for copies of it, and the run's name."""
    home = tmp_path_factory.mktemp("ran")
    around = {**os.environ, "VGRADS_HOME": str(home)}
    command = [sys.executable, "-m", "vgrads", "run", ROOT / "data" / "lead.yaml"]
    subprocess.run(command, env=around, cwd=home, check=True, capture_output=True)
    command = [sys.executable, "-m", "vgrads", "status"]
    process = subprocess.run(
        command, env=around, cwd=home, check=True, capture_output=True, text=True
    )
    return home, re.search(r"run-[0-9a-f]{10}", process.stdout)[0]


def as_sacct(path) -> str:
    """A log as the tutorial's call of sacct prints it."""
    log = read_history(path)
    lines = ["JobID|User|Partition|Submit|Start|End|State|NCPUS|Timelimit"]
    for n in range(len(log)):
        at = log.submit_s[n] + 1_700_000_000
        start = at + log.wait_s[n]
        minutes = max(1, int(log.request_s[n] // 60))
        lines.append(
            f"{n}|u{log.user[n]}|batch|{at:.0f}|{start:.0f}|{start + log.run_s[n]:.0f}|COMPLETED|{log.procs[n]}|{minutes // 60}:{minutes % 60:02}:00"
        )
    return "\n".join(lines) + "\n"


@pytest.mark.more
@pytest.mark.parametrize("command", [marked(c) for c in different()])
def test_a_command_of_the_documents_runs(vgrads, workdir, command, request):
    line = as_run(command)
    if "{run}" in line:
        home, name = request.getfixturevalue("ran")
        shutil.copytree(home, workdir / "home", dirs_exist_ok=True)
        line = line.replace("{run}", name)
    if "{token}" in line:
        created = vgrads("token", "create", "bob", "--json").json
        line = line.replace("{token}", created["id"])
    if line.startswith("vgrads db"):
        assert vgrads("token", "create", "bob").code == 0  # there is a database
    if line.startswith("vgrads bags fit jobs"):  # a log that has bags
        created = (
            "--model",
            "average",
            "--load",
            ".6",
            "--procs",
            64,
            "--days",
            1,
            "-o",
            "bags.swf",
        )
        assert vgrads("bags", "generate", *created).code == 0
        line = line.replace("jobs.swf.gz", "bags.swf")
    if line.startswith(
        ("vgrads runtimes show", "vgrads runtimes forget")
    ):  # what was learned before
        assert vgrads("runtimes", "learn", "trace.txt").code == 0
    if "fit.json" in line:  # kept from a fit, as the page says
        created = ("--load", ".6", "--procs", 64, "-o", "bags.swf")
        assert vgrads("bags", "generate", *created).code == 0
        (workdir / "fit.json").write_text(vgrads("bags", "fit", "bags.swf", "--json").out)
    words = shlex.split(line)[1:]
    bare = {("resume",), ("cancel",), ("db", "backup"), ("token", "create")}
    bare |= {("bags", "fit"), ("bags", "run"), ("size",)}
    answer = vgrads(*words, *(["--help"] if tuple(words) in bare else []))
    verbs = ("vgrads resume", "vgrads cancel", "vgrads change")
    ended = line.startswith(verbs)  # of a run that has ended
    assert answer.code in ((0, 2) if ended else (0,)), answer.err
    assert "Traceback" not in answer.err


def test_what_is_run_elsewhere_is_shown_somewhere():
    """No excuse outlives its command."""
    for existing in ELSEWHERE:
        assert any(command.startswith(existing) for command in commands()), existing


def test_a_plan_is_explained(vgrads, workdir):
    plan = vgrads("plan", "data/lead-storm.yaml", "--json")
    (workdir / "plan.json").write_text(plan.out)
    assert vgrads("explain", "plan.json", "lead-1/wrf").code == 0

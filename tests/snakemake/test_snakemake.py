"""``snakemake --executor vgrads`` as its users meet it: real Snakemake, real processes, held
against ``--cores``."""

import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests import waiting
from tests.portal.test_live import served
from tests.snakemake.snakemakes import BIN, HERE, PLUGIN, PYTHON, ROOT, Project, files_in, needed
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store

pytestmark = pytest.mark.more

until = partial(waiting.until, seconds=120.0)

SAMPLES = """
samples = ["a", 'b"c', "d e"]
rule all:
    input: "report.txt"
rule align:
    output: "aligned/{s}.txt"
    threads: 2
    resources: mem_mb=300, runtime=5
    shell: "echo {wildcards.s:q} $OMP_NUM_THREADS > {output:q}"
rule stats:
    input: "aligned/{s}.txt"
    output: temp("stats/{s}.txt")
    run:
        open(output[0], "w").write(str(len(open(input[0]).read())))
rule report:
    input: expand("stats/{s}.txt", s=samples)
    output: protected("report.txt")
    log: "logs/report.log"
    shell: "cat {input:q} > {output} 2> {log}"
"""
NAMED_LIKE_OURS = """
rule all:
    input: "report.txt"
rule report:
    output: "report.txt"
    run:
        open(output[0], "w").write("done\\n")
"""
DERIVED = """
word = "main"
config["word"] = "main"
module middle:
    snakefile: "middle.smk"
    config: {"word": "middle"}
use rule * from middle as middle_*
use rule middle_inner_make as again with:
    output: "again.txt"
rule all:
    default_target: True
    input: "made.txt", "again.txt", "long.txt", "here.txt"
rule long:
    output: "long.txt"
    params: letters="x" * 200_000
    shell: "echo {params.letters} | wc -c > {output}"
rule here:
    output: "here.txt"
    params: folder=lambda wildcards, resources: resources.tmpdir
    shell: "test -d {params.folder} && echo there > {output}"
"""
MIDDLE = """
module inner:
    snakefile: "inner.smk"
    config: {"word": "inner"}
use rule * from inner as inner_*
"""
INNER = """
word = "inner"
rule make:
    output: "made.txt"
    shell: f"echo {word} {{word}} {{config[word]}} {threads} {output[0]} > {output}"
"""
CHECKPOINT = """
rule all:
    input: "all.txt"
checkpoint split:
    output: directory("parts")
    shell: "mkdir -p {output}; for n in 1 2 3 4; do echo $n > {output}/$n.txt; done"
rule work:
    input: "parts/{n}.txt"
    output: "done/{n}.txt"
    shell: "awk '{{print $1 * $1}}' {input} > {output}"
def done(wildcards):
    folder = checkpoints.split.get().output[0]
    return expand("done/{n}.txt", n=sorted(glob_wildcards(folder + "/{n}.txt").n))
rule gather:
    input: done
    output: "all.txt"
    shell: "cat {input} > {output}"
"""
GROUPS = """
rule all:
    input: expand("c/{n}.txt", n=range(4))
rule one:
    output: "a/{n}.txt"
    group: "short"
    shell: "echo {wildcards.n} > {output}"
rule two:
    input: "a/{n}.txt"
    output: "b/{n}.txt"
    group: "short"
    shell: "cat {input} {input} > {output}"
rule three:
    input: "b/{n}.txt"
    output: "c/{n}.txt"
    shell: "wc -l < {input} > {output}"
"""


@pytest.fixture(autouse=True)
def _snakemake():
    needed()


@pytest.fixture
def project(tmp_path):
    return lambda text, **more: Project(tmp_path / "project", text, tmp_path / "home", **more)


def states(project):
    """State of every run in the project's database."""
    with Store(f"sqlite:///{project.home / 'vgrads.db'}") as store:
        return [run.state for run in store.list_runs()]


def test_a_folder_with_any_name(tmp_path):
    """Its name becomes that of the workflow, which has other characters and is shorter."""
    for name in ("""my "project" ü's & (x)""", "p" * 240):
        mine = Project(tmp_path / name, NAMED_LIKE_OURS, tmp_path / "home")
        code, out = mine.run("--vgrads-deadline", "30m", timeout_s=90)
        assert code == 0, out[-3000:]
        assert (mine.folder / "report.txt").read_text() == "done\n"


def test_environments_of_killed_runs_are_removed_by_the_next(project):
    mine = project(NAMED_LIKE_OURS)
    folder = mine.folder / ".snakemake" / "vgrads"
    folder.mkdir(parents=True)
    here = os.uname().nodename
    killed, running, elsewhere = (
        folder / f"environment-{name}.sh" for name in (f"{here}-0", f"{here}-{os.getpid()}", "x-0")
    )
    for path in (killed, running, elsewhere):
        path.touch()
    code, out = mine.run("--vgrads-deadline", "30m", timeout_s=90)
    assert code == 0, out[-3000:]
    assert sorted(folder.glob("environment-*")) == sorted((running, elsewhere))


@pytest.mark.long
def test_snakemakes_own_tests_of_plugins(tmp_path):
    process = subprocess.run(
        [
            *PYTHON,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir",
            ".",
            "tests",
        ],
        cwd=PLUGIN,
        capture_output=True,
        text=True,
        env={**os.environ, "VGRADS_HOME": str(tmp_path)},
        timeout=300,
        check=False,
    )
    assert "2 passed" in process.stdout, process.stdout[-4000:] + process.stderr[-2000:]


@pytest.mark.parametrize(
    "text", [SAMPLES, CHECKPOINT, GROUPS], ids=["samples", "checkpoint", "groups"]
)
def test_the_same_files_as_plain_snakemake_makes(project, tmp_path, text):
    mine = project(text)
    code, out = mine.run("--vgrads-deadline", "30m")
    assert code == 0, out
    assert "vgrads: done by" in out
    assert ("covers only the jobs known before checkpoint split" in out) == (text is CHECKPOINT)
    assert files_in(mine.folder) == mine.local(tmp_path / "plain")
    assert states(mine) == ["kept"]


def test_commands_are_those_that_snakemake_derives_in_nested_modules(project, tmp_path):
    mine = project(DERIVED)
    (mine.folder / "middle.smk").write_text(MIDDLE)
    (mine.folder / "inner.smk").write_text(INNER)
    code, out = mine.run()
    assert code == 0, out
    assert (mine.folder / "again.txt").read_text() == "inner inner inner 1 again.txt\n"
    assert (mine.folder / "long.txt").read_text() == "200001\n"
    assert files_in(mine.folder) == mine.local(tmp_path / "plain")
    respawned = [line for line in out.splitlines() if "a Snakemake process of its own" in line]
    assert len(respawned) == 1 and "vgrads: here is started by" in respawned[0]


def test_a_snakemake_in_a_slot_imports_nothing_from_the_workflows_folder(project):
    mine = project(NAMED_LIKE_OURS)
    for name in ("kernel", "workflows", "snakemake", "snakemake_executor_plugin_vgrads"):
        (mine.folder / f"{name}.py").write_text("raise SystemExit('imported')\n")
    code, out = mine.run()
    assert code == 0, out
    assert (mine.folder / "report.txt").read_text() == "done\n"


def test_what_fails_is_tried_again_by_snakemakes_rules_and_then_reported(project):
    mine = project(
        """
rule all:
    input: "ok.txt", "after.txt"
rule flaky:
    output: "ok.txt"
    retries: 2
    resources: mem_mb=lambda w, attempt: 200 * attempt
    shell:
        "echo try {resources.mem_mb} >> tries.txt; "
        "test $(wc -l < tries.txt) = 3 && echo ok > {output}"
rule broken:
    input: "ok.txt"
    output: "after.txt"
    shell: "echo what went wrong >&2; exit 7"
"""
    )
    code, out = mine.run()
    assert code == 1, out
    assert (mine.folder / "tries.txt").read_text().split() == [
        "try",
        "200",
        "try",
        "400",
        "try",
        "600",
    ]
    assert (mine.folder / "ok.txt").read_text() == "ok\n"
    assert "exit code 7" in out
    assert "what went wrong" in out
    assert "Traceback" not in out


def test_a_job_that_ended_well_and_wrote_nothing_is_tried_again(project):
    mine = project(
        'rule all:\n    input: "x"\nrule x:\n    output: "x"\n    retries: 1\n    shell: '
        '"test -e tried && echo 1 > {output}; touch tried"\n'
    )
    code, out = mine.run("--latency-wait", "0")
    assert (code, (mine.folder / "x").exists()) == (0, True), out


def test_keep_going_and_what_had_not_begun_is_left_without_it(project):
    text = """
rule all:
    input: "bad.txt", expand("good/{n}.txt", n=range(6))
rule bad:
    output: "bad.txt"
    priority: 10
    threads: 4
    resources: vgrads_s=1
    shell: "touch bad.ran; exit 1"
rule good:
    output: "good/{n}.txt"
    threads: 4
    resources: vgrads_s=5
    shell:
        "while test -e bad.ran -a ! -e go; do sleep 0.1; done; sleep 1; "
        "echo {wildcards.n} > {output}"
"""
    mine = project(text)
    process = mine.begin("--vgrads-deadline", "10m")
    until(lambda: "have not started are abandoned" in mine.output, lambda: mine.output)
    (mine.folder / "go").touch()
    code, out = process.wait(240), mine.output
    created = len(files_in(mine.folder / "good")) if (mine.folder / "good").exists() else 0
    assert code == 1, out
    assert created < 6
    assert "have not started are abandoned" in out
    code, out = mine.run("--keep-going", "--vgrads-deadline", "10m")
    assert code == 1, out
    assert len(files_in(mine.folder / "good")) == 6


def test_ctrl_c_gives_everything_back(project):
    mine = project(
        'rule all:\n    input: "x"\nrule x:\n    output: "x"\n    shell: "touch began; sleep 600"\n'
    )
    process = mine.begin()
    until((mine.folder / "began").exists)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    assert states(mine) == ["cancelled"]
    completed = subprocess.run(
        ["pgrep", "-f", str(mine.folder)], capture_output=True, text=True, check=False
    )
    assert completed.stdout == ""


def test_a_killed_snakemake_goes_on_without_losing_what_was_finished(project):
    text = """
rule all:
    input: "second.txt"
rule first:
    output: "first.txt"
    shell: "echo $$ > {output}"
rule second:
    input: "first.txt"
    output: "second.txt"
    shell: "touch began; while test ! -e go; do sleep 0.1; done; cat {input} > {output}"
"""
    mine = project(text)
    process = mine.begin()
    until((mine.folder / "began").exists)
    first = (mine.folder / "first.txt").read_text()
    process.kill()
    process.wait(30)
    until(lambda: not_served(mine))
    assert states(mine) == ["cancelled"]
    (mine.folder / "go").touch()
    assert mine.run()[0] != 0  # locked, as Snakemake has it
    subprocess.run(
        [*PYTHON, "-m", "snakemake", "--unlock"], cwd=mine.folder, check=True, capture_output=True
    )
    code, out = mine.run("--rerun-incomplete")
    assert code == 0, out
    assert (mine.folder / "second.txt").read_text() == first


SINGLE_RULE = (
    'rule all:\n    input: "x"\nrule x:\n    output: "x"\n    resources: vgrads_s=1\n    '
    'shell: "sleep 1; echo 1 > {output}"\n'
)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--vgrads-set", "storm"), "--vgrads-set needs --vgrads-of, the number of its runs"),
        (("--vgrads-of", "3"), "--vgrads-of and --vgrads-fraction need a set"),
        (
            ("--vgrads-url", "http://127.0.0.1:1", "--vgrads-sites", "here"),
            "--vgrads-sites applies only to a service that is started here",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_a_line(tmp_path, options, line):
    project = Project(tmp_path / "p", SINGLE_RULE, tmp_path / "home")
    code, out = project.run(*options)
    assert (code, out.count(line)) == (1, 1), out
    assert 'File "' not in out and "Traceback" not in out


def test_several_runs_are_a_single_set_absentees_and_latecomers_are_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    sites = tmp_path / "sites.toml"
    sites.write_text(HERE)
    with Store(f"sqlite:///{tmp_path / 'test.db'}") as store:
        AccessControl(store.engine).grant("here", "local")
        with served(store, sites) as client:
            several = [
                "--vgrads-url",
                client._url,
                "--vgrads-set",
                "dates",
                "--vgrads-of",
                "3",
                "--vgrads-fraction",
                "2/3",
            ]
            options = [*several, "--vgrads-deadline", "10m", "--vgrads-wait", "15s"]
            projects = [
                Project(tmp_path / name, SINGLE_RULE, tmp_path / "home")
                for name in ("monday", "tuesday")
            ]
            begun = [project.begin(*options) for project in projects]
            assert [process.wait(120) for process in begun] == [0, 0], [
                project.output for project in projects
            ]
            for project in projects:
                assert "1 of 3 runs of set 'dates' have not been submitted" in project.output
                assert (project.folder / "x").exists()
            runs = store.list_runs()
            until(lambda: store.list_runs()[0].state == "kept")
            assert len(runs) == 1
            code, out = Project(tmp_path / "late", SINGLE_RULE, tmp_path / "home").run(*options)
            assert (code, "has started with 2 of 3 workflows: too late" in out) == (1, True), out
            code, out = Project(tmp_path / "alone", SINGLE_RULE, tmp_path / "home").run(*several)
            assert (code, "needs --vgrads-deadline" in out) == (1, True), out


def not_served(project):
    """True where no process of a project's service is left."""
    process = subprocess.run(
        ["pgrep", "-f", "serve --own"], capture_output=True, text=True, check=False
    )
    return not any(_home_of(pid) == str(project.home) for pid in process.stdout.split())


def _home_of(pid):
    try:
        whole = Path(f"/proc/{pid}/environ").read_bytes()
        pairs = dict(entry.partition(b"=")[::2] for entry in whole.split(b"\0"))
        return pairs.get(b"VGRADS_HOME", b"").decode()
    except OSError:
        return ""


def test_an_impossible_promise(project):
    mine = project(
        'rule all:\n    input: "x", "y"\nrule x:\n    output: "x"\n    resources: '
        'vgrads_s=30\n    shell: "echo 1 > {output}"\n'
        'rule wide:\n    output: "y"\n    threads: 64\n    resources: vgrads_s=1\n    '
        'shell: "echo 1 > {output}"\n'
    )
    code, out = mine.run("--vgrads-plan-only", "--vgrads-deadline", "1h")
    assert code == 1
    assert "'wide' needs 64 processors, the widest slot on offer has 4" in out
    mine = project(
        'rule all:\n    input: "x"\nrule x:\n    output: "x"\n    resources: vgrads_s=30\n '
        '   shell: "echo 1 > {output}"\n'
    )
    code, out = mine.run("--vgrads-deadline", "10s")
    assert (code, "takes 30s" in out) == (1, True), out
    code, out = mine.run("--vgrads-plan-only")
    assert (code, "vgrads: done by" in out, (mine.folder / "x").exists()) == (0, True, False), out


def test_the_ten_lines_of_the_document(tmp_path):
    text = (ROOT / "docs" / "snakemake.md").read_text()
    lines = re.search(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1]
    assert len(lines.splitlines()) <= 10
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "VGRADS_HOME": str(tmp_path / "home"),
        "PIP_NO_INDEX": "1",
    }
    done = subprocess.run(
        ["bash", "-euc", lines],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "vgrads: done by" in done.stdout + done.stderr
    assert (tmp_path / "squares" / "7.txt").read_text() == "49\n"


WIDE = """
rule all:
    input: "wide.txt"
rule size:
    output: "size"
    shell: "echo 123 > {output}"
rule wide:
    input: "size"
    output: "wide.txt"
    threads: 4096
    resources: mem_mib=lambda wildcards, input: int(open(input[0]).read())
    shell: "echo {threads} {resources.mem_mib} > {output}"
"""


def test_threads_are_limited_to_this_machine_and_resources_are_evaluated_when_a_job_is_ready(
    project,
):
    mine = project(WIDE)
    code, out = mine.run("--vgrads-sites", "here")
    assert code == 0, out
    assert (mine.folder / "wide.txt").read_text() == f"{os.cpu_count()} 123\n"

"""The command line as a user meets it: answers, JSON, exit codes, one-line errors."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import DATA, ROOT
from tests.logs import make_log
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.portal.cli.plans.commands import describe_compilation
from vgrads.qbets.state_forecast import make_forecast
from vgrads.traces.history import read_history
from vgrads.traces.swf import write_swf
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.formats.wfformat import write_wfformat


@pytest.fixture
def log(write):
    return write("log.swf", write_swf(make_log(800, seed=1)))


def test_help_answers_for_every_command(vgrads):
    for name in (
        "bound",
        "probability",
        "trajectory",
        "backtest",
        "plan",
        "run",
        "demo",
        "gantt",
        "status",
        "serve",
    ):
        answer = vgrads(name, "--help")
        assert (answer.code, "Example" in answer.out) == (0, True), name


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['vgrads', '--help']\ntry:\n import vgrads.portal.main as c; "
        "c.main()\nexcept SystemExit: pass\nprint([m for m in ('numpy', 'scipy', 'pandas', "
        "'fastapi', 'sqlmodel', 'networkx') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_the_service_starts_without_planning_and_execution(tmp_path):
    heavy = (
        *("numpy", "scipy", "pandas", "statsmodels", "networkx", "numba", "pulp", "libcloud"),
        *("cryptography", "alembic", "authlib", "joserfc", "matplotlib", "msgpack"),
        *("vgrads.planner.make", "vgrads.planner.plan", "vgrads.execmgr.core.states"),
        *("vgrads.execmgr.runner", "vgrads.dispatch.document", "vgrads.policies.policy"),
        *("vgrads.workflows.sets", "vgrads.qbets.forecast", "vgrads.api.plans.planning"),
        *("vgrads.api.wiring", "vgrads.portal.jobs.worker", "vgrads.portal.jobs.bags"),
    )
    code = (
        "import sys\nfrom vgrads.portal import main\nmain.load_commands(['serve'])\n"
        "from vgrads.portal.jobs import forkserver\nfrom vgrads.portal.web import serving\n"
        "from vgrads.portal.web.settings import load_settings\n"
        "settings = load_settings(None)\n"
        "with serving.Store(settings.database) as store:\n"
        "    app = serving.make_service(settings, store)\n"
        f"print([m for m in {heavy} if m in sys.modules])\n"
        "print([r.path for r in app.routes if 'dependant' in vars(r)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"VGRADS_HOME": str(tmp_path)},
    )
    assert done.stdout.strip().splitlines()[-2:] == ["[]", "[]"]


def test_bound_and_probability_agree(vgrads, log):
    bound = vgrads(
        "bound", log, "--procs", 4, "--walltime", "2h", "--probability", ".9", "--json"
    ).json
    assert bound["reason"] is None
    chance = vgrads(
        "probability",
        log,
        "--procs",
        4,
        "--walltime",
        "2h",
        "--within",
        f"{bound['bound_s']}s",
        "--json",
    ).json
    assert chance["probability"] >= 0.9
    assert set(bound) >= {
        "bound_s",
        "probability",
        "confidence",
        "method",
        "jobs",
        "since",
        "reason",
    }
    assert set(chance) >= {"probability", "within_s", "confidence", "method", "jobs"}
    assert "waits at most" in vgrads("bound", log).out
    assert bound["cluster"]["by"] == "product"  # of a job whose user nobody named
    named = vgrads("bound", log, "--user", "1", "--json").json
    assert named["cluster"]["by"] == "backlog"


def test_too_little_history_is_null_with_a_reason(vgrads, write):
    few = write("few.swf", write_swf(make_log(12)))
    answer = vgrads("bound", few, "--json")
    assert (answer.code, answer.json["bound_s"], answer.json["reason"]) == (
        0,
        None,
        "59 waits needed, 12 known",
    )


def test_nothing_after_at_is_looked_at(vgrads, write):
    whole = make_log(800, seed=1)
    cut = float(whole.submit_s[400])
    log = write("a.swf", write_swf(whole))
    later = whole.submit_s > cut
    other = replace(
        whole,
        wait_s=np.where(later, whole.wait_s + 3600.0, whole.wait_s),
        procs=np.where(later, 1, whole.procs),
    )
    changed = write("b.swf", write_swf(other))
    answers = [vgrads("bound", path, "--at", cut, "--json").json for path in (log, changed)]
    assert answers[0]["bound_s"] == answers[1]["bound_s"]
    assert answers[0]["jobs"] == answers[1]["jobs"]


def test_trajectory(vgrads, log):
    answer = vgrads(
        "trajectory",
        log,
        "--procs",
        4,
        "--walltime",
        "2h",
        "--start-by",
        "6h",
        "--probability",
        ".8",
        "--json",
    ).json
    assert answer["probability"] >= 0.8
    assert len(answer["trajectory"]) == 721
    assert answer["walltime_s"] == 7200 + 21600 - answer["submit_in_s"]
    refused = vgrads("trajectory", log, "--start-by", "1m", "--probability", ".99", "--json").json
    assert refused["submit_in_s"] is None
    assert refused["best"]["probability"] < 0.99


def test_backtest(vgrads, log):
    answer = vgrads("backtest", log, log, "--json")
    assert [row["history"] for row in answer.json["rows"]] == ["log", "log"]
    row = answer.json["rows"][0]
    assert row["jobs"] == row["scored"] + row["unscored"] == 800
    assert 0.9 <= row["coverage"] <= 1
    assert "default" in vgrads("backtest", log, "--by", "queue").out


def test_plan_lead(vgrads, tmp_path):
    gantt = tmp_path / "plan.html"
    answer = vgrads("plan", DATA / "lead-storm.yaml", "--gantt", gantt, "--json")
    assert answer.code == 0
    plan = answer.json
    assert (plan["feasible"], plan["needed"], plan["deadline_s"]) == (True, 6, 7200)
    assert plan["scheduled"] >= 6
    assert [phase["name"] for phase in plan["phases"]] == [
        "minimal",
        "trade-off",
        "additional",
        "cloud",
        "comparing",
        "improving",
    ]
    assert 0.9 <= plan["promise"]["probability"] <= 1
    slots = {slot["id"]: slot for slot in plan["slots"]}
    assert all(
        p["end_s"] <= 7200 and p["start_s"] >= slots[p["slot"]]["start_s"]
        for p in plan["placements"]
    )
    assert plan["cost_usd"] == pytest.approx(sum(slot["cost_usd"] for slot in plan["slots"]))
    page = gantt.read_text()
    assert page.count("<svg") == 1
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_run_lead_in_virtual_time_and_draw_it_again(vgrads, tmp_path):
    answer = vgrads(
        "run",
        DATA / "lead.yaml",
        "--json",
        "--seed",
        3,
        "--as-stated",
        "--gantt",
        tmp_path / "a.html",
    )
    outcome = answer.json["outcome"]
    assert (answer.code, outcome["kept"]) == (0, True)
    assert outcome["in_time"] >= 1
    status = vgrads("status", answer.json["run"], "--json").json["runs"][0]
    assert (status["state"], status["outcome"]["kept"]) == ("kept", True)
    for name in ("b.html", "b.svg"):
        assert vgrads("gantt", answer.json["run"], "-o", tmp_path / name).code == 0
    assert "<rect" in (tmp_path / "b.svg").read_text()
    for command in ("plan", "run"):
        vgrads(command, DATA / "lead.yaml", "--gantt", tmp_path / f"{command}.svg")
    for name in ("b", "plan", "run"):
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert drawn.startswith("<svg")
        assert '<rect width="100%" height="100%" fill="#fff" />' in drawn
    same = vgrads("run", DATA / "lead.yaml", "--json", "--seed", 3, "--as-stated").json["outcome"]
    assert same == outcome


def test_demo_says_whether_it_compiles_what_was_promised_and_what_happened(
    vgrads, tmp_path, monkeypatch
):
    answer = vgrads("demo", "--gantt", tmp_path / "gantt.html")
    assert answer.code == 0
    words = " ".join(answer.out.split())
    assert words.count("the promise was") == 2
    assert "Promised 6 of 8 workflows within 2h with probability 0." in words
    assert "at least 1 workflow within" in words
    assert "; 1 was done in time" in words
    assert "Execution" in (tmp_path / "gantt-lead.html").read_text()
    charts = sorted(path.name for path in tmp_path.glob("gantt*"))
    assert charts == ["gantt-lead-storm.html", "gantt-lead.html"]  # one of each set
    assert all(str(tmp_path / name) in answer.out for name in charts)
    again = vgrads("demo", "--gantt", tmp_path / "gantt.html")
    assert again.out.startswith("Nothing is compiled:")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))  # of a new machine
    assert describe_compilation().startswith("Compiled first, once on this machine:")


def test_real_commands_run_on_this_machine(vgrads, tmp_path):
    answer = vgrads("run", DATA / "local" / "local.yaml", "--out", tmp_path / "out", "--json")
    assert (answer.code, answer.json["outcome"]["in_time"]) == (0, 4), answer.err
    results = {
        p.relative_to(tmp_path / "out"): p.read_text()
        for p in (tmp_path / "out").glob("*/results/*")
    }
    result = {str(name): text.strip() for name, text in results.items()}
    assert result["chain-1/results/total.txt"] == "338350"
    story = (DATA / "local" / "story.txt").read_text().splitlines()
    for n in (1, 2):
        assert result[f"diamond-{n}/results/story2.txt"].splitlines() == [
            line.upper() if row < 4 else line.lower() for row, line in enumerate(story)
        ]
    counts = [sum(letter in line for line in story) for letter in "eo"]
    assert result["forkjoin-1/results/report.txt"].split() == [
        str(n) for n in (*counts, max(map(len, story)))
    ]


def test_a_real_task_that_fails_breaks_the_promise_and_says_why(vgrads, write):
    sites = (DATA / "local" / "local.toml").read_text()
    write("local.toml", sites)
    task = (
        "{id: a, runtime_s: 1, command: 'echo sorry >&2; exit 3'}, {id: b, runtime_s: 1, "
        "parents: [a], command: 'true'}"
    )
    path = write(
        "set.yaml",
        (
            "name: s\ndeadline: 20s\nsites: local.toml\nworkflows:\n  - {name: w, tasks: "
            f"[{task}]}}\n"
        ),
    )
    answer = vgrads("run", path)
    assert answer.code == 1
    assert "exit code 3: sorry" in answer.out
    missing = task.replace("echo sorry >&2; exit 3", "true").replace(
        "runtime_s: 1, command", "runtime_s: 1, outputs: [x], command", 1
    )
    path.write_text(
        "name: s\ndeadline: 20s\nsites: local.toml\nworkflows:\n  - {name: w, tasks: "
        f"[{missing}]}}\n"
    )
    assert "did not write 'x'" in vgrads("run", path).out


@pytest.mark.more
def test_recorded_workflow_on_real_logs(vgrads, write, shared):
    swf = shared / "swf"
    sites = "".join(
        (
            f'[[site]]\nname = "{name}"\nkind = "batch"\nprocs = {procs}\n[[site.queue]]\nname '
            f'= "default"\nhistory = "{swf / file}"\n'
        )
        for name, procs, file in (
            ("kth", 100, "KTH-SP2-1996-2.1-cln.swf.gz"),
            ("sdsc", 128, "SDSC-SP2-1998-4.2-cln.swf.gz"),
        )
    )
    file = shared / "workflows" / "wfformat" / "montage-chameleon-2mass-005d-001.json"
    path = write(
        "set.yaml",
        (
            "name: montage\ndeadline: 24h\nfraction: 1/2\nsites: "
            f"{write('sites.toml', sites)}\nworkflows:\n  - {{file: {file}, count: 2}}\n"
        ),
    )
    requested = {at: vgrads("plan", path, "--at", at, "--json") for at in (8_000_000, 12_000_000)}
    plans = {at: answer.json for at, answer in requested.items()}
    assert {answer.code for answer in requested.values()} == {0}
    chances = {
        at: {s["site"]: s["probability"] for s in plan["slots"]} for at, plan in plans.items()
    }
    assert chances[8_000_000] != chances[12_000_000]
    for at, plan in plans.items():
        slot = next(s for s in plan["slots"] if s["id"].endswith("-default-1"))
        within_s = slot["start_s"] - slot["submit_s"]
        file = "KTH-SP2-1996-2.1-cln" if slot["site"] == "kth" else "SDSC-SP2-1998-4.2-cln"
        existing = make_forecast(read_history(swf / f"{file}.swf.gz"), at, AS_QUESTION)
        chance = existing.probability(slot["procs"], 86_400.0, within_s)
        assert slot["probability"] == pytest.approx(float(chance), abs=0.02)
    run = vgrads("run", path, "--at", 8_000_000, "--json")
    assert run.json["outcome"]["needed"] == 1


BAD_SETS = {
    "cycle": (
        "tasks: [{id: a, runtime_s: 1, parents: [b]}, {id: b, runtime_s: 1, parents: [a]}]",
        2,
        "cycle: ",
    ),
    "not a number": ("tasks: [{id: a, runtime_s: x}]", 2, "workflows.0.tasks.0.runtime_s"),
    "too wide": ("tasks: [{id: a, runtime_s: 1, procs: 100000}]", 3, "needs 100,000 processors"),
    "too long": ("tasks: [{id: a, runtime_s: 10000}]", 3, "lacking: "),
    "no file": ("file: nowhere.json", 2, "nowhere.json: no such file"),
}


@pytest.mark.parametrize("name", BAD_SETS)
def test_bad_sets_end_with_a_line(vgrads, write, name):
    tasks, code, words = BAD_SETS[name]
    path = write("set.yaml", f"name: s\ndeadline: 1h\nworkflows:\n  - {{name: w, {tasks}}}\n")
    answer = vgrads("plan", path)
    assert answer.code == code
    assert words in answer.err
    assert answer.err.count("\n") == (3 if code == 3 else 1)  # what is lacking, what would do
    assert "set.yaml" in answer.err
    if code == 3:
        assert vgrads("plan", path, "--json").json["feasible"] is False


def test_a_cut_off_workflow_file_is_named_with_its_line(vgrads, write):
    text = json.dumps(write_wfformat(load_workflow(DATA / "lead.json")), indent=1)
    write("cut.json", text[: len(text) // 2])
    answer = vgrads(
        "plan", write("set.yaml", "name: s\ndeadline: 2h\nworkflows:\n  - {file: cut.json}\n")
    )
    assert answer.code == 2
    assert "cut.json" in answer.err
    assert "line" in answer.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bound", "nowhere.swf"), "no such file"),
        (("bound", "LOG", "--probability", "1.5"), "--probability"),
        (("bound", "LOG", "--walltime", "soon"), "--walltime"),
        (("bound", "LOG", "--queue", "weekend"), "it has: default"),
        (("bound", "LOG", "--method", "magic"), "choose one of state, qbets, bmbp"),
        (("bound", "LOG", "--at", "noon"), "--at"),
        (("bound", "LOG", "--format", "xls"), "known: swf"),
        (("backtest", "LOG", "--by", "moon"), "--by"),
        (("plan", "nowhere.yaml"), "no such file"),
        (("run", "SET", "--speed", "fast"), "--speed"),
        (("gantt", "run-0"), "no run"),
        (("bound", "LOG", "--procs", "many"), "--procs"),
        (("nonsense",), "nonsense"),
        (("serve", "--host", "0.0.0.0"), "loopback"),
    ],
)
def test_bad_usage_is_exit_2(vgrads, log, arguments, words):
    names = {"LOG": log, "SET": DATA / "lead.yaml"}
    answer = vgrads(*(names.get(a, a) for a in arguments))
    assert answer.code == 2
    assert words in answer.err
    assert "Traceback" not in answer.err


def test_the_installed_command_is_there():
    script = ROOT / ".venv" / "bin" / "vgrads"
    if not script.exists():
        pytest.skip("this checkout has no .venv")
    done = subprocess.run(
        [script, "--help"], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0


GRID = (
    "grid storm for 2h by 6h with {} under $20 {{ solvers = tight 16..32 nodes farm = loose 10 "
    "nodes }}"
)


def test_offers_print_a_tree_and_draw_a_chart(vgrads, write, tmp_path):
    required = write("storm.grid", GRID.format("90%"))
    answer = vgrads("sites", "offers", required, "--json", "--gantt", tmp_path / "o.html")
    offer = answer.json
    assert (answer.code, offer["enough"], offer["tree"]["kind"]) == (0, True, "grid")
    assert offer["probability"] >= 0.9
    assert {group["name"] for group in offer["groups"]} == {"solvers", "farm"}
    page = (tmp_path / "o.html").read_text()
    assert "Offer" in page
    assert all(slot in page for group in offer["groups"] for slot in group["slots"])
    text = vgrads("sites", "offers", required).out
    assert "solvers: not utkeuca/nodes" in text
    assert "ready in time with probability" in text
    assert vgrads("sites", "offers", required, "--json").json["tree"] == offer["tree"]


def test_an_offer_that_is_not_sure_enough_is_exit_3_with_the_best(vgrads, write):
    far = GRID.format("99.9%").replace("16..32", "3000")
    answer = vgrads("sites", "offers", write("a.grid", far), "--json")
    assert answer.code == 3
    assert not answer.json["enough"]
    assert "more probable nodes for 'solvers'" in answer.err
    answer = vgrads(
        "sites", "offers", write("b.grid", "grid storm for 2h { x = loose many nodes }")
    )
    assert answer.code == 2
    assert "b.grid" in answer.err


@pytest.mark.parametrize("command", ["bound", "probability", "trajectory"])
def test_a_job_wider_than_the_machine_is_refused(vgrads, command):
    more = {"bound": (), "probability": ("--within", "1h"), "trajectory": ("--start-by", "1h")}[
        command
    ]
    answer = vgrads(command, DATA / "histories" / "mayhem.swf.gz", "--procs", 65, *more)
    assert (answer.code, "--procs: 65 processors are more than" in answer.err) == (2, True)

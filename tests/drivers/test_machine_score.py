"""The script that measures a machine: it runs by itself, and what it prints is read with care."""

import ast
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.agent.programs.machine_score import MachineScore, measure, parse_score, score_script
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.store import Store

LINE = '{"cpu_score": 500.5, "io_score": 300, "cores": 8, "memory_mib": 64000.5}'


def test_a_score_is_read_whatever_a_shell_prints_around_it():
    expected = MachineScore(cpu_score=500.5, io_score=300.0, cores=8, memory_mib=64000.5)
    assert parse_score(f"Welcome!\n{LINE}\nbye {{}}\n") == expected
    assert parse_score(LINE.replace("64000.5", "null")).memory_mib is None


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("", "no line"),
        ("bash: python3: command not found", "command not found"),
        (LINE[:-1], "not valid JSON"),
        (LINE.replace("500.5", "0"), "cpu_score"),
        (LINE.replace("300", "-3"), "io_score"),
        (LINE.replace("300", "NaN"), "io_score"),
        (LINE.replace("300", '"3"'), "io_score"),
        (LINE.replace("8", "8.5"), "cores"),
        (LINE.replace("8", "true"), "cores"),
        (LINE.replace("500.5", "1" + "0" * 400), "cpu_score"),
        (LINE.replace("io_", "oi_"), "io_score"),
    ],
)
def test_a_bad_answer_says_what_is_wrong(text, output):
    with pytest.raises(ValueError, match=output):
        parse_score(text)


@given(st.text(max_size=60), st.integers(0, len(LINE)), st.integers(0, 20))
def test_mangled_answers_are_refused_or_sound(put, at, length):
    try:
        score = parse_score(LINE[:at] + put + LINE[at + length :])
    except ValueError:
        return
    assert score.cpu_score > 0 and score.io_score > 0 and score.cores >= 1


def test_measuring_leaves_nothing_behind(tmp_path):
    score = measure(str(tmp_path), cpu_s=0.02, file_mib=1)
    assert score.cpu_score > 0 and score.io_score > 0 and score.cores >= 1
    assert not list(tmp_path.iterdir())


def test_the_script_needs_nothing_of_ours_and_an_old_python(tmp_path):
    text = score_script()
    tree = ast.parse(text, feature_version=(3, 8))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names
    quick = text.replace("CPU_S = 1.5", "CPU_S = 0.02").replace("FILE_MIB = 256", "FILE_MIB = 1")
    script = tmp_path / "score.py"
    script.write_text(quick)
    done = subprocess.run(
        [sys.executable, "-I", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(done.stdout)) == {"cpu_score", "io_score", "cores", "memory_mib"}
    assert parse_score(done.stdout).cpu_score > 0
    refused = subprocess.run(
        [sys.executable, str(script), "gone"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1 and "cannot measure" in refused.stderr


@pytest.mark.more
def test_the_benchmark_runs_at_a_site_as_any_task_does_and_is_stored(vgrads, write):
    sites = write(
        "sites.toml", '[[site]]\nname = "here"\nkind = "local"\nprocs = 1\ndriver = "local"\n'
    )
    answer = vgrads("sites", "check", sites, "--benchmark", "--json")
    assert answer.code == 0
    (score,) = answer.json["scores"]
    assert (score["site"], score["problem"]) == ("here", None)
    assert score["cpu"] > 0 < score["io"]
    with Store() as store:
        assert RunTimeRecords(store.engine).scores()["here"].cpu == pytest.approx(
            score["cpu"], abs=0.1
        )

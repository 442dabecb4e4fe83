"""The results of a bag as files: outputs, a table, what tasks printed."""

import csv
import json
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest


@pytest.fixture
def run(vgrads, write):
    def call(*options, verb="run", **fields):
        path = write("bag.json", json.dumps(fields or SIMPLE))
        return vgrads("bags", verb, path, *options)

    return call


SIMPLE = {
    "name": 'b "q" c',
    "command": "echo out {x}; echo err {x} >&2; echo {x} > {task}.txt; test {state} != bad",
    "parameters": {"x": ["a", "b,c"], "state": ["good", "bad"]},
    "outputs": ["{task}.txt"],
    "retries": 1,
}


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_has_outputs_a_table_and_what_was_printed(run, vgrads, tmp_path):
    out = tmp_path / "my 'results'" / "x"
    answer = run("--out", out, "--json")
    (bag,) = answer.json["bags"]
    assert (answer.code, bag["results"]) == (1, str(out))
    assert {path.name for path in out.iterdir()} == {
        "0.txt",
        "2.txt",
        "results.csv",
        "stdout.txt",
        "stderr.txt",
    }
    assert (out / "2.txt").read_text() == "b,c\n"
    rows = table(out / "results.csv")
    assert [(row["task"], row["x"], row["parameter_state"], row["state"]) for row in rows] == [
        ("0", "a", "good", "done"),
        ("1", "a", "bad", "failed"),
        ("2", "b,c", "good", "done"),
        ("3", "b,c", "bad", "failed"),
    ]
    assert [(row["exit_code"], row["attempts"]) for row in rows] == [("0", "1"), ("1", "2")] * 2
    assert all(row["site"] == "local" and row["node"] for row in rows)
    assert all(float(row["run_s"]) > 0 for row in rows)
    assert rows[3]["command"].startswith("echo out b,c;") or "'b,c'" in rows[3]["command"]
    printed = (out / "stdout.txt").read_text().split("==> task ")[1:]
    assert sorted(printed) == [
        f"{n} <==\nout {x}\n" for n, x in enumerate(("a", "a", "b,c", "b,c"))
    ]
    assert (out / "stderr.txt").read_text().count("err") == 4
    # once more into the same folder, after a retry that changes nothing
    assert vgrads("bags", "retry", bag["id"], 0, "--out", out, "--separate").code == 1
    assert (out / "printed" / "1.out").read_text() == "out a\n"
    assert (out / "printed" / "3.err").read_text() == "err b,c\n"
    assert [row["reused"] for row in table(out / "results.csv")] == ["False"] * 4


def test_every_run_names_the_folder_of_its_results(run, vgrads, tmp_path):
    answer = run("--json")
    folder = Path(answer.json["bags"][0]["results"])
    assert folder.is_dir() and len(table(folder / "results.csv")) == 4
    bag = answer.json["bags"][0]["id"]
    again = run("--out", tmp_path / "all.csv")  # only what failed is done again
    assert again.code == 1 and f"Results: {tmp_path}/all.csv" in "".join(again.out.splitlines())
    rows = table(tmp_path / "all.csv")
    assert [row["reused"] for row in rows] == ["True", "False"] * 2
    assert all(row["site"] == "local" and row["node"] for row in rows)
    answer = vgrads("bags", "results", bag, "--out", tmp_path / "later", "--json")
    assert answer.json == {"bag": bag, "results": str(tmp_path / "later")}
    assert (tmp_path / "later" / "0.txt").read_text() == "a\n"
    (folder / "0.txt").unlink()  # it is gone: the folder has the others
    assert vgrads("bags", "results", bag, "--out", tmp_path / "less").code == 0
    assert not (tmp_path / "less" / "0.txt").exists() and (tmp_path / "less" / "2.txt").exists()


def test_several_bags_have_a_folder_each(vgrads, write, tmp_path):
    bag = {"command": "echo {x}", "parameters": {"x": [1]}}
    files = [write(f"{n}.json", json.dumps({"name": n, **bag})) for n in ("one", "two")]
    answer = vgrads("bags", "run", *files, "--out", tmp_path / "out")
    assert answer.code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"one", "two"}
    refused = vgrads("bags", "run", *files, "--out", tmp_path / "t.csv")
    assert refused.code == 2 and "takes one bag" in refused.err


def test_where_results_cannot_be_written_nothing_runs(run, write, tmp_path):
    write("file", "")
    answer = run("--out", tmp_path / "file")
    assert (answer.code, "--out" in answer.err) == (2, True), answer
    answer = run("--out", tmp_path / "file" / "x")
    assert (answer.code, "cannot be written" in answer.err) == (2, True), answer
    assert not (tmp_path / "home" / "dispatchers").exists()


def test_a_folder_that_cannot_be_written_at_the_end_loses_nothing(run, vgrads, tmp_path):
    out = tmp_path / "out"
    (out / "0.txt").mkdir(parents=True)  # where an output belongs
    answer = run("--out", out, "--json")
    (bag,) = answer.json["bags"]
    assert (answer.code, bag["done"], bag["results"]) == (2, 2, None)
    assert "results cannot be written" in answer.err
    assert f"vgrads bags results {bag['id']} --out DIR" in " ".join(answer.err.split())
    (out / "0.txt").rmdir()
    assert vgrads("bags", "results", bag["id"], "--out", out).code == 0
    assert (out / "0.txt").read_text() == "a\n"


def test_an_output_with_the_name_of_the_table_stays_what_it_is(run, tmp_path):
    bag = {"name": "x", "command": "echo {x} > {x}", "parameters": {"x": ["results.csv"]}}
    answer = run("--json", **bag, outputs=["{x}"])
    folder = Path(answer.json["bags"][0]["results"])
    assert (folder / "results.csv").read_text() == "results.csv\n"
    answer = run("--out", tmp_path / "out", **bag, outputs=["{x}"])
    assert (answer.code, "a file 'results.csv' of its own" in answer.err) == (2, True), answer
    assert run("--out", tmp_path / "t.csv", **bag, outputs=["{x}"]).code == 0


WRITES_PARQUET = bool(find_spec("pyarrow") or find_spec("fastparquet"))


@pytest.mark.skipif(not WRITES_PARQUET, reason="cannot write it")
def test_a_parquet_table_has_the_types_of_its_columns_also_without_values(run, tmp_path):
    lost = {"name": "x", "command": "kill -9 $PPID", "parameters": {"x": ["1"]}, "retries": 0}
    for number, bag in enumerate([SIMPLE, lost]):
        run("--out", tmp_path / f"{number}.parquet", **bag)
    done, failed = (pd.read_parquet(tmp_path / f"{n}.parquet") for n in (0, 1))
    assert done["exit_code"].tolist() == [0, 1, 0, 1]
    for name in ("exit_code", "run_s", "peak_mib", "reused", "command"):
        assert done[name].dtype == failed[name].dtype


@pytest.mark.skipif(WRITES_PARQUET, reason="can write it")
def test_parquet_without_a_writer_is_refused_before_anything_runs(run, tmp_path):
    answer = run("--out", tmp_path / "t.parquet")
    assert (answer.code, "install pyarrow" in answer.err) == (2, True), answer
    assert not (tmp_path / "home" / "dispatchers").exists()

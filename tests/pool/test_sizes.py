"""``vgrads size``: sets, bags and matrices against hosts; what is asked wrongly is told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.pool.models import Resources, wavefront_best, wavefront_s

SET = """
name: s
deadline: 1h
fraction: 1
workflows:
  - name: w
    tasks:
      - {id: a, runtime_s: 100}
      - {id: b, runtime_s: 100, parents: [a]}
      - {id: c, runtime_s: 100, parents: [a]}
      - {id: d, runtime_s: 100, parents: [b, c], procs: 2}
"""
BAG = "name: b\ncommand: 'true'\nparameters: {x: {range: [100]}}\nruntime_s: 60\n"


def sizes(answer):
    assert answer.code == 0, answer.err
    message = json.loads(answer.out)
    return message, {item["hosts"]: item for item in message["sizes"]}


def test_a_set_is_as_quick_as_its_longest_way_and_its_deadline_counts(vgrads, write):
    message, by = sizes(vgrads("size", write("set.yaml", SET), "--most", 8, "--json"))
    assert 1 not in by  # a task needs two processors
    assert by[2]["seconds"] == 300.0
    assert message["worth"]["quickest"]["hosts"] == 2
    assert message["worth"]["in time"]["hosts"] == 2
    message, by = sizes(
        vgrads("size", write("set.yaml", SET), "--most", 8, "--deadline", "299s", "--json")
    )
    assert message["deadline_s"] == 299.0
    assert "in time" not in message["worth"]


def test_without_a_price_nothing_is_cheapest_and_the_largest_number_is_no_knee(vgrads, write):
    bag = write("bag.yaml", BAG)
    worth = {}
    for most in (16, 256):
        message, by = sizes(vgrads("size", bag, "--most", most, "--json"))
        worth[most] = message["worth"]
        assert "cheapest" not in worth[most]
        assert worth[most].get("knee", {}).get("hosts") != max(by)
    assert "knee" not in worth[16]  # more nodes would be better still
    assert worth[256]["knee"]["hosts"] < 256
    assert "cheapest" not in vgrads("size", bag).out
    assert "cheapest" in vgrads("size", bag, "--price", 1).out


def test_a_bag_goes_in_rounds_and_begun_hours_are_paid(vgrads, write):
    bag = write("bag.yaml", BAG)
    options = ("--most", 128, "--price", 1, "--billing", "1h", "--wait", "30s", "--deadline", "12m")
    message, by = sizes(vgrads("size", bag, *options, "--json"))
    assert by[8]["seconds"] == 30.0 + 13 * 60.0
    assert by[8]["cost_usd"] == 8.0  # a begun hour each
    assert by[1]["cost_usd"] == 2.0
    fewest = min(item["hosts"] for item in message["sizes"] if item["seconds"] <= 720.0)
    assert message["worth"]["in time"]["hosts"] == fewest
    cheapest = message["worth"]["cheapest"]
    assert cheapest["seconds"] <= 720.0  # one node costs $2, but is too late
    assert cheapest["cost_usd"] == min(n["cost_usd"] for n in by.values() if n["seconds"] <= 720.0)
    hopeless = vgrads("size", bag, *options[:-1], "31s").out
    assert next(line for line in hopeless.splitlines() if "cheapest" in line).endswith("too late")
    _, slower = sizes(vgrads("size", bag, "--dispatch", "6s", "--json"))
    assert slower[1]["seconds"] == 100 * 66.0
    _, fed = sizes(vgrads("size", bag, "--capacity", 5, "--json"))
    assert min(item["seconds"] for item in fed.values()) == 100 * 60.0 / 5


def test_a_wavefront_pays_its_dispatch_in_the_curve_as_in_the_models(vgrads):
    options = ("--wavefront", "1000", "--cell", "1s", "--most", 1000, "--json")
    _, plain = sizes(vgrads("size", *options))
    assert plain[1000]["seconds"] == 1_999.0
    message, late = sizes(vgrads("size", *options, "--dispatch", "5s"))
    assert late[1000]["seconds"] == 8_991.0 == message["how"]["seconds"]
    assert all(late[nodes]["seconds"] > plain[nodes]["seconds"] for nodes in plain)
    _, oblong = sizes(vgrads("size", "--wavefront", "10x40", "--procs", 4, "--most", 3, "--json"))
    assert oblong[1]["seconds"] == wavefront_s(10, 4, 1.0, 40)


def test_all_pairs_pay_it_too(vgrads):
    options = ("--allpairs", "100x50", "--cell", "2s", "--procs", 2, "--most", 10, "--json")
    _, plain = sizes(vgrads("size", *options))
    assert plain[10]["seconds"] == 100 * 50 * 2.0 / 20
    message, late = sizes(vgrads("size", *options, "--dispatch", "10s"))
    assert late[10]["seconds"] > plain[10]["seconds"] + 4.5 * 10.0
    assert message["how"]["seconds"] <= late[10]["seconds"]


@given(
    st.integers(1, 80),
    st.integers(1, 80),
    st.integers(1, 40),
    st.integers(1, 8),
    st.floats(0.0, 20.0),
)
def test_the_best_blocks_are_no_worse_than_none_and_no_better_than_possible(
    rows, cols, nodes, cores, dispatch_s
):
    machines = Resources(nodes=nodes, cores=cores, dispatch_s=dispatch_s)
    best = wavefront_best((rows, cols), 1.0, machines)
    assert best.seconds <= wavefront_s(rows, nodes * cores, 1.0 + dispatch_s, cols) + 1e-6
    assert best.seconds >= max(rows + cols - 1, rows * cols / (nodes * cores)) - 1e-6
    assert best.seconds >= dispatch_s
    assert 1 <= best.nodes <= nodes


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--wavefront", "12by3"), "is not a matrix size"),
        (("--allpairs", "0x5"), "a matrix must have cells"),
        (("--wavefront", "5", "--cell", "0s"), ""),
        (("--wavefront", "5", "--allpairs", "5"), "give one of"),
        ((), "give one of"),
        (("--wavefront", "5", "--picture", "x.gif"), "does not end in"),
    ],
)
def test_what_is_requested_wrongly_is_reported(vgrads, words, text):
    answer = vgrads("size", *words)
    assert answer.code == 2
    assert text in answer.err


def test_a_bag_without_runtime_and_a_task_that_is_too_wide_are_reported(vgrads, write):
    answer = vgrads("size", write("bag.yaml", BAG.replace("runtime_s: 60\n", "")))
    assert answer.code == 2
    assert "runtime_s" in answer.err
    answer = vgrads("size", write("set.yaml", SET), "--most", 1)
    assert answer.code == 2
    assert "needs 2 processors" in answer.err


def test_a_table_and_a_picture(vgrads, tmp_path):
    path = tmp_path / "size.svg"
    answer = vgrads("size", "--wavefront", "50", "--dispatch", "1s", "--most", 16, "-o", path)
    assert answer.code == 0
    assert "quickest" in answer.out
    assert "Configuration chosen by the models" in answer.out
    assert path.read_text().lstrip().startswith("<?xml")

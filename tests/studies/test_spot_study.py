"""The study of jobs on spot nodes, on small traces of its own."""

import gzip
import json

import numpy as np
import pytest
from vgrads_studies.spot.late import main
from vgrads_studies.spot.traces import prior_for, read_trace, read_traces

from vgrads.kernel.errors import InputError


@pytest.fixture
def folder(tmp_path):
    draws = np.random.default_rng(5)
    for name, hours, chance in (
        ("availability_1-node_aws-01-01-2022_us-west-1a_v100_1", 110, 0.05),
        ("availability_1-node_aws-02-02-2022_us-east-1b_v100_1", 30, 0.2),
        ("availability_1-node_aws-01-01-2022_us-east-1b_v100_1", 30, 0.2),
    ):
        state, data = 1, []
        for chance_of_tick in draws.random(hours * 12):
            state ^= int(chance_of_tick < chance)
            data.append(state)
        document = {"metadata": {"gap_seconds": 300}, "data": data}
        with gzip.open(tmp_path / f"{name}.json.gz", "wt") as file:
            json.dump(document, file)
    return tmp_path


def test_a_step_has_a_node_only_if_it_had_it_all_the_time(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [1, 1, 2, 0, 4, 1, 1]}))
    assert read_trace(path).available.tolist() == [True, False, True]


def test_a_prior_knows_neither_the_date_nor_the_zone(folder):
    traces = read_traces(folder)
    west = next(trace for trace in traces if "us-west" in trace.name)
    assert west.origin == ("01-01-2022", "us-west-1a")
    assert len(prior_for(west, traces)) == 1
    east = next(trace for trace in traces if trace.origin == ("02-02-2022", "us-east-1b"))
    assert len(prior_for(east, traces)) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metadata": {"gap_seconds": 0}, "data": [1]}'])
def test_a_file_that_is_no_trace_is_one_clear_error(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError, match=r"t\.json"):
        read_traces(tmp_path)
    with pytest.raises(InputError, match="no traces"):
        read_traces(tmp_path / "nowhere")


@pytest.mark.long
def test_the_study_compares_rules_and_misses_no_deadline(folder, capsys):
    main([str(folder), "--starts", "1", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["summary"]["cells"] == 4 and answer["summary"]["missed"] == 0
    for cell in answer["cells"]:
        costs = cell["costs_usd"]
        assert costs["clairvoyant"] <= min(costs.values()) + 0.6  # it rounds to minutes

"""Matrices as kinds of a bag's document: one run, one status, one place of results."""

import json

import pytest

PAIRS = {"kind": "allpairs", "a": "items", "b": "items", "function": "./common"}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / 'my "project" ü'
    items = place / "items"
    items.mkdir(parents=True)
    for number in (1, 2, 3):
        (items / str(number)).write_text("".join(f"{n}\n" for n in range(number, 6)))
    program = place / "common"
    program.write_text('#!/bin/sh\ncomm -12 "$1" "$2" | wc -l\n')
    program.chmod(0o755)
    return place


def put(folder, document, name="pairs.yaml"):
    file = folder / name
    file.write_text(json.dumps(document))
    return file


def test_a_matrix_is_run_resumed_and_read_as_a_bag(vgrads, folder, tmp_path):
    file = put(folder, PAIRS | {"out": "results.txt"})
    assert vgrads("bags", "run", file).code == 0
    lines = (folder / "results.txt").read_text().splitlines()
    assert len(lines) == 9 and lines[0].endswith(" 5")
    again = vgrads("bags", "run", file)
    assert again.code == 0 and "9 of 9 cells" in again.out
    (bag,) = vgrads("bags", "status", "--json").json["bags"]
    assert (bag["name"], bag["state"]) == ("pairs.matrix", "done")
    assert vgrads("bags", "results", bag["id"], "--out", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "cells.txt").read_text().splitlines() == lines


def test_a_wavefront_takes_the_same_fields_as_its_command(vgrads, folder):
    edges = [f"{n} -1 1" for n in range(-1, 3)] + [f"-1 {n} 1" for n in range(3)]
    (folder / "edges.txt").write_text("\n".join(edges) + "\n")
    program = folder / "paths"
    program.write_text('#!/bin/sh\necho $(( $(cat "$1") + $(cat "$2") + $(cat "$3") ))\n')
    program.chmod(0o755)
    document = {"kind": "wavefront", "edges": "edges.txt", "function": ["./paths"], "block": 2}
    file = put(folder, document | {"out": "cells.txt", "matrix": "w.matrix"}, "w.yaml")
    assert vgrads("bags", "run", file).code == 0
    by_document = (folder / "cells.txt").read_text()
    options = ("--block", 2, "--matrix", folder / "v.matrix", "-o", folder / "v.txt")
    program_of = (folder / "edges.txt", folder / "paths")
    assert vgrads("wavefront", *program_of, *options).code == 0
    assert (folder / "v.txt").read_text() == by_document


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "pairs"}, "unknown kind 'pairs'"),
        ({"bb": "items"}, "bb: unknown key; did you mean 'b'?"),
        ({"block": 9000}, "block"),
        ({"procs": 0}, "procs"),
        ({"sites": "x.toml"}, "sites: unknown key"),
    ],
)
def test_a_wrong_document_is_refused_with_its_file_and_field(vgrads, folder, change, words):
    answer = vgrads("bags", "run", put(folder, PAIRS | change))
    assert answer.code == 2
    assert words in answer.err and "pairs.yaml" in answer.err
    assert not list(folder.glob("*.matrix"))


def test_a_matrix_is_run_alone(vgrads, folder):
    files = put(folder, PAIRS), put(folder, {"commands": ["true"]}, "b.yaml")
    answer = vgrads("bags", "run", *files)
    assert answer.code == 2 and "is run alone" in answer.err


@pytest.mark.parametrize(
    "option", [("--rerun",), ("--policy", "next-available"), ("--separate",), ("--contact", "x")]
)
def test_an_option_of_bags_alone_is_refused_for_a_matrix(vgrads, folder, option):
    answer = vgrads("bags", "run", put(folder, PAIRS), *option)
    assert answer.code == 2
    assert f"{option[0]}: does not apply to a matrix" in answer.err
    assert not list(folder.glob("*.matrix"))

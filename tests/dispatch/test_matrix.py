"""All-Pairs and Wavefront from files to lines: stores that are torn, functions of three kinds, runs
that go on."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.examples import examples
from vgrads.api.bags.answers import why
from vgrads.api.bags.matrices import Digests, MatrixProblem, lay_out, lines_of, program
from vgrads.api.bags.matrices import about as matrix_about
from vgrads.dispatch.core.tasks import BLOCKED, DONE, PENDING
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.block_files import judge_blocks, keep_values
from vgrads.dispatch.storage.folder import keep_bag
from vgrads.dispatch.storage.matrix_store import MatrixStore, join_values, split_values
from vgrads.exchange.values import AttemptEnd, Message
from vgrads.kernel.clock import SimClock
from vgrads.kernel.errors import InputError
from vgrads.workflows.generated.allpairs import AllPairs
from vgrads.workflows.generated.blocks import MOST_CELLS, MOST_S, BlockGrid, block_of

GRIDS = st.builds(
    BlockGrid,
    st.sampled_from(["wavefront", "allpairs"]),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 5),
) | st.builds(
    lambda n, side: BlockGrid("allpairs", n, n, side, side, half=True),
    st.integers(1, 9),
    st.integers(1, 5),
)
SUM = """\
def cell(x, y, d):
    return (int(x) + int(y) + int(d)) % 1000003
def pair(a, b):
    return sum(a) * 7 + sum(b)
def sour(x, y, d):
    if int(x) == 1:
        raise ValueError("one is enough")
    return 1
"""
LIBRARY = """\
#include <stdio.h>
#include <stdlib.h>
long cell(const char *x, size_t nx, const char *y, size_t ny, const char *d, size_t nd, char *out, size_t room) {
    long s = strtol(x, 0, 10) + strtol(y, 0, 10) + strtol(d, 0, 10);
    return snprintf(out, room, "%ld", s % 1000003);
}
long pair(const char *a, size_t na, const char *b, size_t nb, char *out, size_t room) {
    long s = 0, t = 0;
    for (size_t i = 0; i < na; i++) s += (unsigned char)a[i];
    for (size_t i = 0; i < nb; i++) t += (unsigned char)b[i];
    return snprintf(out, room, "%ld", s * 7 + t);
}
long wide(const char *a, size_t na, const char *b, size_t nb, char *out, size_t room) {
    if (room >= 100000) for (size_t i = 0; i < 100000; i++) out[i] = *a;
    return 100000;
}
long sour(const char *a, size_t na, const char *b, size_t nb, char *out, size_t room) { return -3; }
"""
PROGRAM = """\
#!/bin/sh
read x < "$1"; read y < "$2"; read d < "$3"
echo $(( (x + y + d) % 1000003 ))
"""


# blocks


@given(GRIDS)
def test_every_cell_is_in_a_single_block(grid):
    results = [cell for task in range(grid.order.size) for cell in grid.inside(task)]
    whole = [
        (i, j) for i, j in product(range(grid.rows), range(grid.cols)) if j >= i or not grid.half
    ]
    assert sorted(results) == whole
    assert [grid.count(task) for task in range(grid.order.size)] == [
        len(list(grid.inside(task))) for task in range(grid.order.size)
    ]
    assert grid.cells == len(whole)


@given(
    st.sampled_from(["wavefront", "allpairs"]),
    st.integers(1, 2000),
    st.integers(1, 2000),
    st.floats(1e-7, 1e4),
    st.integers(1, 2000),
)
@settings(max_examples=examples(50))
def test_a_block_is_neither_too_large_nor_fewer_than_the_places_where_cells_are_long(
    kind, rows, cols, cell_s, places
):
    side = block_of(BlockGrid(kind, rows, cols, 1, 1), cell_s, places)
    assert 1 <= side <= max(rows, cols)
    assert side * side <= MOST_CELLS
    assert side == 1 or side * side * cell_s <= MOST_S
    if kind == "allpairs" and cell_s >= 10.0:
        assert AllPairs(-(-rows // side), -(-cols // side)).size >= min(rows * cols, places)


def test_blocks_grow_as_cells_become_shorter():
    sides = [
        block_of(BlockGrid("wavefront", 1000, 1000, 1, 1), cell_s, 64)
        for cell_s in (100.0, 1.0, 0.01, 0.0001)
    ]
    assert sides == sorted(sides)
    assert sides[0] == 1 < sides[-1]


# the store


def about(grid):
    return {
        "grid": grid.as_json(),
        "what": {"first cell": [0, 0]},
        "a": ["a0", "a1"],
        "b": ["b0", "b1", "b2"],
    }


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(0, 60))
def test_values_come_back_and_what_is_none_is_refused(values, cut):
    body = join_values(values)
    assert split_values(body, len(values)) == values
    if cut < len(body):
        with pytest.raises(InputError):
            split_values(body[:cut], len(values))


def filled(path):
    """A file of six blocks of a cell each, and how long it was after each."""
    store = MatrixStore(path, about(BlockGrid("allpairs", 2, 3, 1, 1)), write=True)
    sizes = [path.stat().st_size]
    for block in range(6):
        store.append([(block, join_values([b"value %d\n" % block]))])
        sizes.append(path.stat().st_size)
    store.close()
    return sizes


def test_a_store_torn_at_every_byte_keeps_what_was_whole_and_goes_on(tmp_path):
    path = tmp_path / "m"
    sizes = filled(path)
    body = path.read_bytes()
    for cut in range(sizes[0], len(body) + 1):
        path.write_bytes(body[:cut])
        whole = sum(size <= cut for size in sizes) - 1
        looked = MatrixStore(path)
        assert looked.count == whole
        assert path.stat().st_size == cut  # who looks mends nothing
        looked.close()
        store = MatrixStore(path, write=True)
        assert [store.has(n) for n in range(6)] == [n < whole for n in range(6)]
        store.append((n, join_values([b"value %d\n" % n])) for n in range(whole, 6))
        assert path.read_bytes() == body
        store.close()


def test_a_store_that_was_being_begun_is_begun_anew_and_a_foreign_file_is_not_touched(tmp_path):
    path = tmp_path / "m"
    sizes = filled(path)
    body = path.read_bytes()
    for cut in range(sizes[0]):
        path.write_bytes(body[:cut])
        MatrixStore(path, about(BlockGrid("allpairs", 2, 3, 1, 1)), write=True).close()
        assert path.read_bytes() == body[: sizes[0]]
    path.write_bytes(b"my thesis")
    with pytest.raises(InputError, match="not a matrix file"):
        MatrixStore(path, about(BlockGrid("allpairs", 2, 3, 1, 1)), write=True)
    assert path.read_bytes() == b"my thesis"


def test_behind_a_damaged_block_the_others_count(tmp_path):
    path = tmp_path / "m"
    sizes = filled(path)
    body = path.read_bytes()
    for at in range(sizes[2], sizes[3]):
        path.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        store = MatrixStore(path, write=True)
        assert [store.has(n) for n in range(6)] == [True, True, False, True, True, True]
        store.append([(2, join_values([b"value 2\n"]))])
        assert [v for _, _, v in store.cells()] == [b"value %d\n" % n for n in range(6)]
        store.close()


def test_lines_are_row_by_row_and_a_single_run_writes_at_a_time(tmp_path):
    path = tmp_path / "m"
    filled(path)
    store = MatrixStore(path, write=True)
    assert list(lines_of(store))[:4] == [
        "a0 b0 value 0\n",
        "a0 b1 value 1\n",
        "a0 b2 value 2\n",
        "a1 b0 value 3\n",
    ]
    with pytest.raises(InputError, match="another run"):
        MatrixStore(path, write=True)
    store.close()


# between matrix and journal


class Counted:
    """A dispatcher over a Wavefront of four blocks of four cells, whose values are all 1."""

    def __init__(self, folder):
        problem = MatrixProblem(
            kind="wavefront", rows=4, cols=4, border=[b"1"] * 9, function=program(["true"])
        )
        digests, grid = Digests.of(problem), problem.grid(2)
        lay_out(folder / "bags" / "0000", problem, digests, grid, folder / "m")
        MatrixStore(folder / "m", matrix_about(problem, digests, grid, 1.0), write=True).close()
        self.bag = keep_bag(folder, 0, BagDocument(name="m", command="block"), folder)
        self.manager = DispatchManager(DispatcherConfig(folder=folder, secret=b"s"), SimClock(0.0))

    def add(self):
        self.manager.add(0, self.bag.bag, self.bag.files)
        return self.manager.state.bags[0].tasks

    def close(self):
        self.manager.close()


def test_what_is_in_the_matrix_and_not_in_the_journal_is_not_run_again(tmp_path):
    counted = Counted(tmp_path)
    store = MatrixStore(tmp_path / "m", write=True)
    store.append([(0, join_values([b"1"] * 4)), (1, join_values([b"1"] * 4))])
    store.close()
    tasks = counted.add()
    assert list(tasks.status) == [DONE, DONE, PENDING, BLOCKED]
    assert counted.bag.files.around(2) == [b"1"] * 5
    counted.manager.journal.write(counted.manager.journal.take())
    payload = why(tmp_path, 0, 3)
    assert (payload["state"], payload["reasons"]) == (
        "not ready",
        ["it needs task 1: done, task 2: waits"],
    )
    assert payload["command"].endswith("vgrads-block 2 4 2 4 block.3")
    counted.close()


def test_what_the_journal_says_is_done_must_be_in_the_matrix(tmp_path):
    counted = Counted(tmp_path)
    with pytest.raises(InputError, match="lacks blocks"):
        counted.bag.files.had([DONE, PENDING, BLOCKED, BLOCKED])
    assert counted.bag.files.had([PENDING, BLOCKED, BLOCKED, BLOCKED]) == []
    counted.close()


@pytest.mark.parametrize(
    "body",
    [None, b"", join_values([b"1"] * 3), join_values([b"1"] * 4)[:-1], join_values([b"1"] * 4)],
)
def test_an_end_counts_when_its_values_are_whole(tmp_path, body):
    counted = Counted(tmp_path)
    counted.add()
    files = counted.bag.files
    if body is not None:
        files.arriving(0, 1).mkdir(parents=True)
        (files.arriving(0, 1) / "block.0").write_bytes(body)
    message = Message(
        agent="h",
        incarnation="1",
        seq=1,
        ends=[(0, AttemptEnd(0, 0, 1.0, 0, 1)), (7, AttemptEnd(0, 0, 1.0, 0, 1))],
    )
    (_, end), other = judge_blocks(message, {0: files}).ends
    assert end.code == (0 if body == join_values([b"1"] * 4) else -1000)
    assert other == message.ends[1]
    if end.code == 0:
        for _ in range(2):  # a full disk makes it try again
            keep_values({0: files}, [(0, 0, 1, True), (0, 1, 1, False)])
        assert files.store.values(0) == [b"1"] * 4
        assert files.store.count == 1
        assert (tmp_path / "m").read_bytes().count(b"vgm1") == 2
    counted.close()


# real runs


def wavefront_of(rows, cols):
    """Edges as lines, and what must come out."""
    r = {(n, -1): n + 2 for n in range(-1, rows)} | {(-1, n): n + 3 for n in range(cols)}
    edges = "".join(f"{i} {j} {v}\n" for (i, j), v in r.items())
    for i, j in product(range(rows), range(cols)):
        r[i, j] = (r[i - 1, j] + r[i, j - 1] + r[i - 1, j - 1]) % 1000003
    cells = [f"{i} {j} {r[i, j]}" for i, j in product(range(rows), range(cols))]
    return edges, cells, r


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder in which a user stands, with functions of all kinds."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "f.py").write_text(SUM)
    (folder / "cell").write_text(PROGRAM)
    (folder / "cell").chmod(0o755)
    (folder / "lib.c").write_text(LIBRARY)
    return folder


def compiled(place):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", "lib.so", "lib.c"], cwd=place, check=True
    )
    return place / "lib.so"


def items(place, count):
    (place / "items").mkdir()
    draw = random.Random(3)
    for n in range(count):
        (place / "items" / f"i{n:02}").write_bytes(draw.randbytes(50 + n))
    return [(place / "items" / f"i{n:02}").read_bytes() for n in range(count)]


@pytest.mark.more
@pytest.mark.parametrize(
    "how",
    [
        ("./cell",),
        ("--procs", 2, "./cell"),
        ("--python", "f.py:cell"),
        ("--library", "lib.so", "--symbol", "cell"),
        ("--library", "lib.so", "--symbol", "cell", "--procs", 2),
    ],
)
def test_a_wavefront_of_every_kind_of_function(vgrads, place, how):
    if "--library" in how:
        compiled(place)
    edges, cells, _ = wavefront_of(11, 8)
    (place / "edges.txt").write_text(edges)
    done = vgrads("wavefront", "edges.txt", "--block", 4, "-o", "r.txt", *how)
    assert done.code == 0, done
    assert (place / "r.txt").read_text().splitlines() == cells
    assert vgrads("matrix", "wavefront.matrix").out.splitlines() == cells
    again = vgrads("wavefront", "edges.txt", *how)
    assert "has 88 of 88 cells" in again.out  # nothing was run
    assert "tasks" not in again.out


@pytest.mark.parametrize("name", ["json", "array"])
def test_a_function_may_lie_in_a_file_called_like_a_module_of_python(vgrads, place, name):
    (place / "f.py").rename(place / f"{name}.py")
    edges, cells, _ = wavefront_of(3, 2)
    (place / "edges.txt").write_text(edges)
    done = vgrads("wavefront", "edges.txt", "-o", "r.txt", "--python", f"{name}.py:cell")
    assert done.code == 0, done
    assert (place / "r.txt").read_text().splitlines() == cells


def test_a_part_of_a_wavefront_with_edges_as_files(vgrads, place):
    _, _, r = wavefront_of(12, 12)
    (place / "R").mkdir()
    for i, j in [(4, 6 + n) for n in range(4)] + [(5 + n, 6) for n in range(3)]:
        (place / "R" / f"R.{i}.{j}").write_text(f"{r[i, j]}\n")
    done = vgrads(
        "wavefront", "R", "-X", 5, "-Y", 7, "-W", 3, "-H", 3, "--block", 2, "-o", "r.txt", "./cell"
    )
    assert done.code == 0, done
    expected = [f"{i} {j} {r[i, j]}" for i, j in product(range(5, 8), range(7, 10))]
    assert (place / "r.txt").read_text().splitlines() == expected
    (place / "R" / "R.6.6").unlink()
    wrong = vgrads("wavefront", "R", "-X", 5, "-Y", 7, "-W", 3, "-H", 3, "--matrix", "n", "./cell")
    assert wrong.code == 2
    assert "R.6.6 is missing" in wrong.err


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        ("--python", "f.py:pair"),
        ("--library", "lib.so", "--symbol", "pair", "--procs", 2),
        ("cmp", "--verbose"),
    ],
)
def test_all_pairs_of_every_kind_of_function(vgrads, place, how, half):
    if "--library" in how:
        compiled(place)
    bodies = items(place, 7)
    if (
        how[0] == "cmp"
    ):  # of the PATH, with an argument of its own; equal files print nothing, so: not equal
        how = ("--", "printf", "%s,%s")
    more = ("--symmetric",) if half else ()
    done = vgrads("allpairs", "items", "items", "--block", 3, "-o", "r.txt", *more, *how)
    assert done.code == 0, done
    expected = []
    for i, j in product(range(7), range(7)):
        value = sum(bodies[i]) * 7 + sum(bodies[j])
        if "printf" in how:
            value = f"a/{i}/i{i:02},b/{j}/i{j:02}"
        if j >= i or not half:
            expected.append(f"items/i{i:02} items/i{j:02} {value}")
    assert (place / "r.txt").read_text().splitlines() == expected


def test_long_values_are_whole(vgrads, place):
    compiled(place)
    for n in range(6):
        (place / f"{n}").write_text(f"{n}")
    (place / "list").write_text("".join(f"{n}\n" for n in range(6)))
    done = vgrads("allpairs", "list", "list", "--library", "lib.so", "--symbol", "wide", "-o", "r")
    assert done.code == 0, done
    lines = (place / "r").read_text().splitlines()
    assert lines == [f"{i} {j} {str(i) * 100000}" for i, j in product(range(6), range(6))]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("allpairs", "items", "none", "./cell"), "none: cannot be read"),
        (("allpairs", "items", "list", "./cell"), "list: line 2: 'gone' is missing"),
        (("allpairs", "items", "items", "./f.py"), "./f.py: is not executable"),
        (("allpairs", "items", "items", "no-such-program"), "no program of this name"),
        (("allpairs", "items", "items", "./none"), "./none: no such file"),
        (("allpairs", "items", "items"), "FUNCTION: is missing"),
        (("allpairs", "items", "items", "true"), "cell 0 0 (i00, i00): F printed nothing"),
        (("allpairs", "items", "items", "false"), "cell 0 0 (i00, i00): F exited with code 1"),
        (("allpairs", "items", "items", "--python", "f.py:nothing"), "has no attribute 'nothing'"),
        (("allpairs", "items", "items", "--python", "pair"), "is not a function"),
        (("allpairs", "items", "items", "--python", "f.py:pair", "--procs", "2"), "one processor"),
        (("allpairs", "items", "two", "--symmetric", "true"), "not the same items"),
        (("allpairs", "items", "items", "--python", "f.py:pair", "true"), "given twice"),
        (
            ("wavefront", "edges.txt", "--python", "f.py:sour"),
            "cell 0 1: F raised ValueError: one is enough",
        ),
        (("wavefront", "wrong.txt", "./cell"), "wrong.txt: line 1: is not an edge"),
        (("wavefront", "empty.txt", "./cell"), "the edge R.-1.-1 is missing"),
        (("matrix", "edges.txt"), "is not a matrix file"),
        (("matrix", "none"), "none: cannot be opened"),
    ],
)
def test_what_is_wrong_is_reported(vgrads, place, command, text):
    items(place, 3)
    (place / "list").write_text("items/i00\ngone\n")
    (place / "two").write_text("items/i00\nitems/i01\n")
    (place / "edges.txt").write_text("-1 -1 0\n-1 0 0\n-1 1 1\n0 -1 0\n")
    (place / "wrong.txt").write_text("1 2\n")
    (place / "empty.txt").write_text("")
    done = vgrads(*command)
    assert done.code == 2, done
    assert text in done.err, done
    assert not (place / "allpairs.matrix").exists()


LATER = """\
import os
def cell(x, y, d):
    value = (int(x) + int(y) + int(d)) % 1000003
    assert value != {value} or not os.path.exists({flag!r}), "flagged"
    return value
"""


def test_a_cell_that_fails_later_is_named_and_the_rest_goes_on_when_it_is_mended(vgrads, place):
    edges, cells, _ = wavefront_of(40, 40)
    (place / "edges.txt").write_text(edges)
    flag = place / "flag"
    flag.touch()
    source = LATER.format(value=cells[35 * 40 + 3].split()[2], flag=str(flag))
    (place / "f.py").write_text(source)
    command = (
        "wavefront",
        "edges.txt",
        "--python",
        "f.py:cell",
        "--block",
        10,
        "--retries",
        0,
        "-o",
        "r.txt",
    )
    first = vgrads(*command)
    assert first.code == 1
    assert "cell 35 3: F raised AssertionError: flagged" in first.out
    existing = vgrads("matrix", "wavefront.matrix", "--json").json
    assert existing["done"] == 1200  # the last row of blocks needs its first block
    flag.unlink()
    second = vgrads(*command)
    assert second.code == 0, second
    assert "has 1,200 of 1,600 cells" in second.out
    assert (place / "r.txt").read_text().splitlines() == cells


def test_the_matrix_of_another_problem_is_refused(vgrads, place):
    items(place, 3)
    assert vgrads("allpairs", "items", "items", "--python", "f.py:pair").code == 0
    (place / "items" / "i01").write_bytes(b"changed")
    other = vgrads("allpairs", "items", "items", "--python", "f.py:pair")
    assert other.code == 2
    assert "belongs to another problem: items differs" in other.err
    other = vgrads("allpairs", "items", "items", "--python", "f.py:cell")
    assert "belongs to another problem: function, items differ" in other.err


SLOW = """\
import os, time
def cell(x, y, d):
    value = (int(x) + int(y) + int(d)) % 1000003
    with open({log!r}, "a") as file:
        file.write(f"{{x.decode()}} {{y.decode()}} {{d.decode()}}\\n")
    time.sleep(0.002)
    return value
"""


def begun(place, home, blocks, *words):
    """A run as a process, when so many blocks are in its matrix file."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "vgrads",
            "wavefront",
            "edges.txt",
            "--python",
            "f.py:cell",
            "--block",
            "6",
            *words,
        ],
        cwd=place,
        env={**os.environ, "VGRADS_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    path, end_s = place / "wavefront.matrix", time.monotonic() + 60
    while time.monotonic() < end_s and process.poll() is None:
        if path.exists() and path.stat().st_size > 4000:
            store = MatrixStore(path)
            count = store.count
            store.close()
            if count >= blocks:
                return process
    raise AssertionError("it did not get so far")


@pytest.mark.more
@pytest.mark.parametrize("how", ["killed", "interrupted, its folder lost"])
def test_a_run_that_ends_in_its_midst_goes_on_and_runs_nothing_again_that_is_recorded(
    vgrads, place, tmp_path, how
):
    edges, cells, _ = wavefront_of(36, 36)
    (place / "edges.txt").write_text(edges)
    log = tmp_path / "log"
    (place / "f.py").write_text(SLOW.format(log=str(log)))
    process = begun(place, tmp_path / "home", 6)
    process.send_signal(signal.SIGKILL if "killed" in how else signal.SIGINT)
    process.wait(30)
    with_store = MatrixStore(place / "wavefront.matrix")
    had = [with_store.grid.area(n) for n in range(36) if with_store.has(n)]
    with_store.close()
    if "lost" in how:
        shutil.rmtree(tmp_path / "home")
    assert 6 <= len(had) < 36
    before = log.read_text().count("\n")
    second = vgrads("wavefront", "edges.txt", "--python", "f.py:cell", "-o", "r.txt")
    assert second.code == 0, second
    assert (place / "r.txt").read_text().splitlines() == cells
    inputs = [line.split() for line in log.read_text().splitlines()]
    r = wavefront_of(36, 36)[2]
    existing = {
        (str(r[i - 1, j]), str(r[i, j - 1]), str(r[i - 1, j - 1]))
        for top, bottom, left, right in had
        for i, j in product(range(top, bottom), range(left, right))
    }
    assert not existing & {tuple(item) for item in inputs[before:]}
    tried = 16 + int(0.5 / 0.002)  # before a block was chosen
    lost = 36 * (os.cpu_count() or 1)
    assert len(inputs) <= 36 * 36 + tried + lost, "more than a block for each processor was lost"


def test_simulated_sites_tell_how_long_it_would_take(vgrads, place):
    items(place, 5)
    done = vgrads(
        "allpairs",
        "items",
        "items",
        "--python",
        "f.py:pair",
        "--block",
        2,
        "--sites",
        ROOT / "data" / "sites.toml",
        "--json",
    )
    assert done.code == 0, done
    assert json.loads(done.out)["bags"][0]["done"] == 9
    assert not (place / "allpairs.matrix").exists()

"""What was issued is recorded, whatever happens afterwards, and an answer never waits for it."""

import fcntl
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import DATA
from tests.waiting import until
from vgrads.api.queues.issued import IssuedForecast, issued_of
from vgrads.portal.records.forecasts.journal import ForecastJournal, read_documents
from vgrads.portal.records.forecasts.rows import ForecastRecords


def forecast(number=0, **more):
    fields = {"site": "s", "queue": "q", "procs": 4, "walltime_s": 60.0, "kind": "bound"}
    fields |= {"method": "state", "bounds": ((0.5, 10.0), (0.95, None)), **more}
    return IssuedForecast(instant_s=float(number), **fields)


def test_a_forecast_is_what_was_issued_after_a_round_trip():
    issued = forecast(probabilities=((60.0, 0.25),), owner="ann", retrospective=True)
    assert issued_of(issued.as_json()) == issued
    assert issued_of(issued.as_json()).id == issued.id
    assert forecast(1).id != forecast(2).id


def test_forecasts_are_stored_once_with_the_number_of_repetitions(store):
    journal, records = ForecastJournal(store.url), ForecastRecords(store.engine)
    journal.append([forecast(1), forecast(2)])
    journal.append([forecast(1)])
    assert records.fold(journal) == 3
    journal.append([forecast(1)])
    assert records.fold(journal) == 1
    assert journal.is_empty
    rows = {row.instant_s: row.times for row in records.matchable("s", "q", -1.0)}
    assert rows == {1.0: 3, 2.0: 1}


def test_what_several_store_at_once_is_counted_once(store):
    """A service scores, and ``vgrads score`` beside it."""
    journal, records = ForecastJournal(store.url), ForecastRecords(store.engine)
    journal.append([forecast(number) for number in range(1500)])
    begin, counts = threading.Barrier(3), []

    def fold():
        begin.wait()
        counts.append(records.fold(journal))

    threads = [threading.Thread(target=fold) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 1500
    assert {row.times for row in records.matchable("s", "q", -1.0)} == {1}


def test_torn_lines_and_foreign_ones_cost_only_themselves(store):
    journal, records = ForecastJournal(store.url), ForecastRecords(store.engine)
    journal.append([forecast(1)])
    (path,) = (store_home(store) / "forecasts").glob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"site": "s", "que')
    journal.append([forecast(2)])
    journal.write([{"site": 3}, {"bounds": "x"}])
    assert records.fold(journal) == 2


def store_home(store):
    return ForecastJournal(store.url)._path.parent.parent


def test_what_a_process_took_and_did_not_store_is_stored_by_the_next(store):
    journal, records = ForecastJournal(store.url), ForecastRecords(store.engine)
    journal.append([forecast(1)])
    assert len(journal.take()) == 1
    assert not journal.is_empty
    journal.append([forecast(2)])
    assert records.fold(journal) == 2


def test_nothing_is_lost_while_the_journal_is_taken_again_and_again(store):
    """Writers that opened the file before it was moved write into a file that is still read."""
    journal, count, over = ForecastJournal(store.url), 300, threading.Event()
    numbers = []

    def take():
        while not over.is_set():
            collect()

    def collect():
        for path in journal.take():
            numbers.extend(document["instant_s"] for document in read_documents(path))
            path.unlink()

    taker = threading.Thread(target=take)
    taker.start()

    def write(first):
        for n in range(first, first + count):
            journal.write([forecast(n + 1).as_json()])

    writers = [threading.Thread(target=write, args=(k * count,)) for k in range(4)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    taker.join()
    collect()
    assert sorted(numbers) == [float(n + 1) for n in range(4 * count)]


def test_a_writer_that_waits_while_the_journal_is_moved_writes_into_the_next(store):
    """It has opened the file that is taken, and gets its lock only afterwards."""
    journal = ForecastJournal(store.url)
    journal.append([forecast(1)])
    path = journal._path
    aside = path.with_name(f"{path.stem}.0.taken")
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        inode = path.stat().st_ino
        writer = threading.Thread(target=journal.append, args=([forecast(2)],))
        writer.start()
        until(lambda: f":{inode} 0 EOF" in waiting_locks(), "the writer waits")
        path.rename(aside)
    writer.join()
    assert [d["instant_s"] for d in read_documents(aside)] == [1.0]
    assert [d["instant_s"] for d in read_documents(path)] == [2.0]


def waiting_locks():
    """The locks of this machine that somebody waits for."""
    lines = Path("/proc/locks").read_text().splitlines()
    return "\n".join(line for line in lines if "->" in line)


def test_an_answer_that_was_given_is_recorded_though_its_process_is_killed(store):
    program = (
        "import os, signal\n"
        "from tests.portal.forecasts.test_journal import forecast\n"
        "from vgrads.portal.records.forecasts.journal import ForecastJournal\n"
        f"ForecastJournal({store.url!r}).append([forecast(7)])\n"
        "print('answer', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=DATA.parent, check=False
    )
    assert process.returncode == -signal.SIGKILL
    assert process.stdout == b"answer\n"
    assert ForecastRecords(store.engine).fold(ForecastJournal(store.url)) == 1


@pytest.mark.parametrize("trouble", ["full", "no folder"])
def test_an_answer_does_not_depend_on_its_record(vgrads, tmp_path, trouble):
    """The disk is full, or nothing can be written into the home."""
    home = tmp_path / "home"
    if trouble == "full":
        journal = ForecastJournal()._path  # its name: of the database of this home
        journal.parent.mkdir(parents=True)
        journal.symlink_to("/dev/full")
    else:
        home.write_text("a file where the folder should be")
    log = DATA / "histories" / "mayhem.swf.gz"
    ForecastJournal().append([forecast()])  # no error
    answer = vgrads("bound", log, "--procs", 8, "--method", "qbets", "--json")
    assert answer.code == 0
    assert answer.json["bound_s"] > 0

"""Records that are appended to files: whole or absent, whatever happens while they are written."""

import base64
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import DATA
from tests.waiting import until
from vgrads.dispatch.core.tasks import DONE, PENDING
from vgrads.dispatch.parameters import GrowingCommands
from vgrads.dispatch.storage.file_records import (
    FileRecords,
    read_committed_outputs,
    read_sent_inputs,
)
from vgrads.dispatch.storage.journal import DispatchJournal, read_state
from vgrads.dispatch.storage.matrix_store import MatrixStore
from vgrads.dispatch.storage.outputs import OutputReader, Outputs
from vgrads.dispatch.storage.request_lines import append_request, read_requests
from vgrads.exchange.messages import PrintedOutput
from vgrads.execmgr.tasks.provenance import RECORDS, CompletedTask, append_record, records_in
from vgrads.kernel.errors import InputError
from vgrads.kernel.record_file import (
    LINES,
    LISTED_LINES,
    AppendedRecords,
    Expected,
    FixedFraming,
    PackedFraming,
    RecordFile,
    read_json_lines,
)

HEAD = struct.Struct("<4sII")
PACKED = PackedFraming(
    {b"tst1": HEAD, b"tst2": HEAD}, lambda fields: Expected(fields[1], fields[2])
)


def packed(body, kind=b"tst1"):
    return PACKED.pack(kind, len(body), zlib.crc32(body), body=body)


FRAMINGS = {
    "lines": (LINES, [b"%d\n" % n * (n + 1) for n in range(3)], 6),
    "packed": (PACKED, [packed(b"tst" * (n + 1), b"tst%d" % (n % 2 + 1)) for n in range(4)], 4),
    "fixed": (FixedFraming(5), [b"%05d" % n for n in range(4)], 4),
}


@pytest.fixture(params=list(FRAMINGS))
def framed(request, tmp_path):
    framing, parts, count = FRAMINGS[request.param]
    return tmp_path / "records", framing, parts, count


def bodies(path, framing):
    return [record.body for record in AppendedRecords(path, framing).more()]


def test_a_file_torn_at_every_byte_is_read_up_to_its_last_record_and_goes_on(framed):
    path, framing, parts, count = framed
    with RecordFile(path, framing, durable=False) as file:
        for part in parts:
            file.append(part)
    body = path.read_bytes()
    assert body == b"".join(parts)
    expected = bodies(path, framing)
    ends = [record.end for record in AppendedRecords(path, framing).more()]
    assert len(ends) == count
    assert ends[-1] == len(body)
    for cut in range(len(body) + 1):
        for tail in (b"", bytes(3)):  # what was never written in its place
            if tail and isinstance(framing, FixedFraming):
                continue  # these have no checksum
            path.write_bytes(body[:cut] + tail)
            whole = [end for end in ends if end <= cut]
            assert bodies(path, framing) == expected[: len(whole)]
            assert path.stat().st_size == cut + len(tail)  # who reads changes nothing
            with RecordFile(path, framing, durable=False) as file:
                assert file.size == max(whole, default=0)
                file.append(body[file.size :])
            assert path.read_bytes() == body


def test_a_reader_goes_on_where_it_stopped(framed):
    path, framing, parts, count = framed
    reader, read = AppendedRecords(path, framing), []
    with pytest.raises(FileNotFoundError):
        list(reader.more())
    with RecordFile(path, framing, durable=False) as file:
        for part in parts:
            for half in (part[: len(part) // 2], part[len(part) // 2 :]):
                os.write(file.file, half)
                read += [record.body for record in reader.more()]
            assert reader.at == path.stat().st_size
    assert read == bodies(path, framing)
    assert len(read) == count


def test_records_longer_than_what_is_read_at_once_are_read_whole(tmp_path):
    long = [os.urandom(n << 19) for n in (1, 3, 5)]
    packed_path, lines_path = tmp_path / "packed", tmp_path / "lines"
    with RecordFile(packed_path, PACKED) as file:
        file.append(b"".join(map(packed, long)))
    lines = [body.replace(b"\n", b" ") for body in long]
    with RecordFile(lines_path, LINES) as file:
        file.append(b"".join(line + b"\n" for line in lines))
        os.write(file.file, b"x" * (3 << 20))
    assert bodies(packed_path, PACKED) == long
    assert bodies(lines_path, LINES) == lines
    with RecordFile(lines_path, LINES) as file:
        assert file.size == sum(map(len, lines)) + 3


def test_what_complete_records_follow_is_never_cut_off(tmp_path):
    path, parts = tmp_path / "records", [packed(b"record %d" % n) for n in range(4)]
    whole = b"".join(parts)
    damaged = range(len(parts[0]), len(parts[0]) + len(parts[1]))
    for at in damaged:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with RecordFile(path, PACKED, durable=False) as file:
            assert file.size == len(whole)
        records = list(AppendedRecords(path, PACKED).more())
        assert [r.body for r in records] == [b"record 0", b"record 2", b"record 3"]
        assert records[1].start - records[0].end == len(parts[1])  # the gap is visible


def test_a_length_that_is_damaged_reads_no_more_than_the_file(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(HEAD.pack(b"tst1", 2**32 - 1, 0) + packed(b"next"))
    assert bodies(path, PACKED) == [b"next"]


def test_a_file_of_something_else_is_not_cut(tmp_path):
    path = tmp_path / "thesis"
    path.write_bytes(b"my thesis")
    with pytest.raises(InputError, match="other contents"):
        RecordFile(path, PACKED)
    assert path.read_bytes() == b"my thesis"


def test_where_the_disk_is_full_nothing_of_it_is_there(framed):
    """The limit of a process stands for the disk: it too lets a part of the bytes through."""
    path, framing, parts, _ = framed
    whole = b"".join(parts)
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.kernel.test_record_file import FRAMINGS\n"
        "from vgrads.kernel.record_file import RecordFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "name, path, limit = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])\n"
        "framing, parts, _ = FRAMINGS[name]\n"
        "with RecordFile(path, framing) as file:\n"
        "    file.append(parts[0])\n"
        "    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))\n"
        "    try:\n"
        "        file.append(b''.join(parts[1:]))\n"
        "    except OSError as error:\n"
        "        print(error.errno, path.stat().st_size, file.size)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\n"
        "    file.append(b''.join(parts[1:]))\n"
    )
    (name,) = (name for name, value in FRAMINGS.items() if value[0] is framing)
    answer = subprocess.run(
        [sys.executable, "-c", program, name, path, str(len(whole) - 1)],
        capture_output=True,
        text=True,
        check=True,
        cwd=DATA.parent,
    )
    size = str(len(parts[0]))
    assert answer.stdout.split() == [str(errno.EFBIG), size, size]
    assert path.read_bytes() == whole


def test_several_processes_append_and_every_record_is_whole(tmp_path):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from vgrads.dispatch.storage.request_lines import append_request\n"
        "for n in range(50):\n"
        "    append_request(Path(sys.argv[1]), {'of': sys.argv[2], 'n': n, 'long': 'x' * 9000})\n"
    )
    path = tmp_path / "requests"
    processes = [
        subprocess.Popen([sys.executable, "-c", program, path, name], cwd=DATA.parent)
        for name in "abc"
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    requests = read_requests(path)
    for name in "abc":
        assert [r["n"] for r in requests if r["of"] == name] == list(range(50))


def test_a_process_killed_while_it_appends_leaves_the_others_their_records(tmp_path):
    path = tmp_path / "requests"
    append_request(path, {"n": 0})
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time\n"
            "from pathlib import Path\n"
            "from vgrads.kernel.record_file import LINES, RecordFile\n"
            "file = RecordFile(Path(sys.argv[1]), LINES, lock='wait')\n"
            "os.write(file.file, b'{\"n\": ')\n"
            "print('torn', flush=True)\n"
            "time.sleep(600)\n",
            path,
        ],
        stdout=subprocess.PIPE,
        cwd=DATA.parent,
    )
    assert process.stdout.readline() == b"torn\n"
    with pytest.raises(BlockingIOError):
        RecordFile(path, LINES, lock="refuse")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert append_request(path, {"n": 1}) == 1
    assert read_requests(path) == [{"n": 0}, {"n": 1}]


def test_who_waits_while_the_file_is_moved_away_writes_into_the_next(tmp_path):
    path, aside = tmp_path / "records", tmp_path / "aside"

    def write(body):
        with RecordFile(path, LINES, lock="wait") as file:
            file.append(body)

    write(b"1\n")
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        inode = path.stat().st_ino
        writer = threading.Thread(target=write, args=(b"2\n",))
        writer.start()
        until(lambda: waits_for(inode), "the writer waits")
        path.rename(aside)
    writer.join()
    assert (aside.read_bytes(), path.read_bytes()) == (b"1\n", b"2\n")


def waits_for(inode):
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{inode} 0 EOF" in line for line in lines)


def test_a_file_that_must_exist_is_not_created(tmp_path):
    with pytest.raises(FileNotFoundError):
        RecordFile(tmp_path / "records", LINES, mode=None)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_closed_where_it_cannot_be_used(tmp_path):
    (tmp_path / "records").write_bytes(b"my thesis")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for lock in ("none", "wait", "refuse"):
        with pytest.raises(InputError):
            RecordFile(tmp_path / "records", PACKED, lock=lock)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_unreadable_lines_cost_only_themselves(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b'\n{"n": 1}\n{"n": \n\xff\xfe{}\n' + bytes(9) + b'\n[2]\n\n{"n": 3}')
    assert list(read_json_lines(path)) == [{"n": 1}, [2], {"n": 3}]


# files as they were written before there was one mechanism

SEGMENT = (
    "dmdqNN4AAAASmLvKeAFlUEFuwkAMzIV/RD6jtuHID/oGFCFv4oCrrI12N0UI5St9UF+Fvb0UcZuxx7Mzu/lpmuYAAU"
    "+wbe8gSwyUYN9+bFsYdJFieGcYyzH7+M0XgpGMQLAb0KvUC3ByJT6d/aarwkvSwc86WyUqicmZ+2UuFR96IxPyrN/V"
    "pXK9kJhuwjnT2m9+a8QvZaHxNSWPJgX0159CsgyYBAure0Hngjyrh4PsRHT0Fl7of85IUdPtGDn48qlvtbDgbuE44n"
    "C2UE7fnZOMuX7Tp0wsXG42w2K1w/LX9r6u/QP7pWc0dmdqMzgAAAChrg+dAQwAAAAAAAAAAAAAAAAAAAAEIgAAAAAA"
    "AAAAAAAAAAAAAJYAAAAAAAEAAAAAPwAAAAAAAAAAAAA="
)
PRINTED = "dmdvMQEAAAABAAQAAAABAAAA/vpuFW91dApldmdvMgIAAAABAAAAAAACAAAAfMDtwAQAAADDqWRtRnM="
MATRIX = (
    "dmdtMf////95AAAAy88V2HsiZ3JpZCI6IHsia2luZCI6ICJhbGxwYWlycyIsICJyb3dzIjogMiwgImNvbHMiOiAxLC"
    "AiaGlnaCI6IDEsICJ3aWRlIjogMSwgImhhbGYiOiBmYWxzZX0sICJhIjogWyJhMCIsICJhMSJdLCAiYiI6IFsiYjAi"
    "XX12Z20xAAAAAAUAAAAQxLeFAQAAAHh2Z20x/v///wUAAACH2IC0YmFnLTF2Z20xAQAAAAYAAADe+K0PAgAAAHl6"
)


def earlier(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(text))


def test_a_dispatchers_journal_of_before_is_read_and_goes_on(tmp_path):
    earlier(tmp_path / "seg-000001.log", SEGMENT)
    (bag,) = read_state(tmp_path).bags.values()
    assert list(bag.tasks.status) == [DONE, PENDING]
    size = (tmp_path / "seg-000001.log").stat().st_size
    DispatchJournal(tmp_path).close()
    assert (tmp_path / "seg-000001.log").stat().st_size == size


def test_printed_texts_of_before_are_read_and_go_on(tmp_path):
    path = tmp_path / "printed.bin"
    earlier(path, PRINTED)
    before = [PrintedOutput(0, 1, 1, "out\n", "e"), PrintedOutput(0, 2, 1, "", "é", "dmFs")]
    assert list(OutputReader(path).more()) == before
    later = Outputs(path)
    later.append(before[::-1])
    later.close()
    assert list(OutputReader(path).more()) == before + before[::-1]
    body = base64.b64decode(PRINTED)
    assert path.read_bytes()[: len(body)] == body


def test_a_matrix_of_before_is_read_and_goes_on(tmp_path):
    path = tmp_path / "m"
    earlier(path, MATRIX)
    body = path.read_bytes()
    path.write_bytes(body[:-1])  # torn
    store = MatrixStore(path, write=True)
    assert (store.run, store.values(0), store.has(1)) == ("bag-1", [b"x"], False)
    store.append([(1, struct.pack("<I", 2) + b"yz")])
    store.close()
    assert path.read_bytes() == body


def test_requests_and_commands_of_before_are_read_and_a_torn_one_is_cut_off(tmp_path):
    path, commands = tmp_path / "goals.ndjson", tmp_path / "commands.ndjson"
    path.write_bytes(b'{"tasks": [7, 9]}\n{"tasks": null}\n{"tas')
    assert append_request(path, {"tasks": [1]}, expected=2) == 2
    assert read_requests(path) == [{"tasks": [7, 9]}, {"tasks": None}, {"tasks": [1]}]
    commands.write_bytes(b'"a"\n"b"\n"c')
    with RecordFile(commands, LINES, lock="wait") as file:
        file.append(b'"d"\n')
    assert list(GrowingCommands(commands)) == ["a", "b", "d"]


def test_records_of_files_of_before_are_read_and_a_torn_one_shifts_no_other(tmp_path):
    (tmp_path / "inputs.ndjson").write_bytes(b'["in", "d1"]\n["in2", "d')
    whole = struct.pack("<IIQQ", 3, 0, 3, 7)
    (tmp_path / "outputs.bin").write_bytes(whole + whole[:5])
    (tmp_path / "f").write_bytes(b"abcd")
    records = FileRecords(tmp_path)
    records.sent("in2", "d2")
    records.committed(4, [tmp_path / "f"])
    records.close()
    assert read_sent_inputs(tmp_path) == {"in": "d1", "in2": "d2"}
    read = read_committed_outputs(tmp_path)
    assert read[["task", "at", "size"]].tolist() == [(3, 0, 3), (4, 0, 4)]


def test_provenance_of_before_is_read_whole_and_goes_on(tmp_path):
    """Its last line had no line break: it must not be taken for torn."""
    completed = CompletedTask(key=("w", "a"), siblings="/s", recipe="r", reads={}, outputs={})
    append_record(tmp_path, completed)
    path = tmp_path / RECORDS
    assert path.read_bytes() == (
        b'\n{"key": ["w", "a"], "beside": "/s", "recipe": "r", "run": "", "reads": {}, '
        b'"outputs": {}}'
    )
    with path.open("ab") as file:
        file.write(b'\n{"key": ["w", "b"')
    append_record(tmp_path, replace(completed, key=("w", "c")))
    assert set(records_in(tmp_path)) == {("w", "a"), ("w", "c")}
    with RecordFile(path, LISTED_LINES) as file:
        assert file.size == path.stat().st_size

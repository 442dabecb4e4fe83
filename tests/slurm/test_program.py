"""The program behind the commands, as it is installed, against a service on a socket."""

import ast
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.http_service import answering
from tests.waiting import until
from vgrads.kernel.errors import InputError
from vgrads.slurm import program
from vgrads.slurm.installation import MARKER, install, is_ours

FINE = {"out": "Submitted batch job 7\n", "err": "", "code": 0}
SHELL = "/bin/sh"


@pytest.fixture
def place(tmp_path):
    """A folder whose path is short enough for a socket, with the commands in ``bin``."""
    socket = tmp_path / "s"
    assert len(str(socket)) < 100
    install(tmp_path / "bin", sys.executable, str(socket))
    return tmp_path


def current_umask():
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def call(place, *words, input_text=None, **environment):
    """Run an installed command in that folder."""
    done = subprocess.run(
        [place / "bin" / words[0], *words[1:]],
        cwd=place,
        env={"PATH": f"{place}/tools:/usr/bin:/bin", "LANG": "C.UTF-8", **environment},
        input=b"" if input_text is None else input_text,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert b"Traceback" not in done.stderr
    return done


def test_a_command_travels_with_what_matters(place):
    with answering(str(place / "s"), [FINE]) as service:
        done = call(place, "sbatch", "-J", "two words", "x.sh", HOME="/h", SLURM_JOB_ID="3")
    assert (done.stdout, done.stderr, done.returncode) == (b"Submitted batch job 7\n", b"", 0)
    ((path, headers, body),) = service.requests
    assert path == "/v1/slurm/sbatch"
    assert headers["Content-Type"] == "application/json"
    assert body["arguments"] == ["-J", "two words", "x.sh"]
    assert body["folder"] == str(place)
    assert body["environment"]["HOME"] == "/h"
    assert (body["script"], body["pads"], body["host"]) == (None, True, os.uname().nodename)
    assert body["umask"] == current_umask()
    assert len(bytes.fromhex(body["request"])) == 16


@pytest.mark.parametrize("command", program.COMMANDS)
def test_the_environment_travels_with_sbatch_and_srun_alone(place, command):
    with answering(str(place / "s"), [FINE]) as service:
        call(place, command, SECRET="x", SQUEUE_FORMAT="%i", SLURM_TIME_FORMAT="%s")
    environment = service.requests[0][2]["environment"]
    assert environment["SQUEUE_FORMAT"] == "%i"
    assert environment["SLURM_TIME_FORMAT"] == "%s"
    assert ("SECRET" in environment) == (command in ("sbatch", "srun"))


def test_each_call_has_an_id_of_its_own(place):
    with answering(str(place / "s"), [FINE, FINE]) as service:
        call(place, "sbatch", "x")
        call(place, "sbatch", "x")
    first, second = (body["request"] for _, _, body in service.requests)
    assert first != second


def test_outputs_and_exit_status(place):
    answer = {"out": "o\udcff\n", "err": "squeue: é\n", "code": 3}
    with answering(str(place / "s"), [answer]):
        done = call(place, "squeue")
    assert (done.stdout, done.stderr, done.returncode) == (b"o\xff\n", "squeue: é\n".encode(), 3)


def test_bytes_that_are_no_text_arrive_unchanged(place):
    with answering(str(place / "s"), [FINE]) as service:
        subprocess.run(
            [b"bin/sbatch", b"a\xff\xc3\xa9"],
            cwd=place,
            env={b"X": b"\xfe", b"PATH": b"/bin"},
            check=True,
            capture_output=True,
        )
    body = service.requests[0][2]
    assert program.to_bytes(body["arguments"][0]) == b"a\xff\xc3\xa9"
    assert program.to_bytes(body["environment"]["X"]) == b"\xfe"


def test_a_script_is_read_when_it_is_requested(place):
    (place / "x.sh").write_bytes(b"#!/bin/sh\n\xff\n")
    with answering(str(place / "s"), [{"need": "x.sh"}, FINE]) as service:
        assert call(place, "sbatch", "x.sh").returncode == 0
    first, second = (body for _, _, body in service.requests)
    assert second["script"] == "#!/bin/sh\n\udcff\n"
    assert first | {"script": second["script"]} == second


def test_a_script_from_standard_input(place):
    with answering(str(place / "s"), [{"need": "-"}, FINE]) as service:
        call(place, "sbatch", input_text=b"#!/bin/sh\ntrue\n")
    assert service.requests[1][2]["script"] == "#!/bin/sh\ntrue\n"


def test_a_script_in_the_path(place):
    (place / "tools").mkdir()
    (place / "tools" / "tool.sh").write_text("#!/bin/sh\n")
    (place / "tools" / "tool.sh").chmod(0o755)
    with answering(str(place / "s"), [{"need": "tool.sh"}, FINE]) as service:
        assert call(place, "sbatch", "tool.sh").returncode == 0
    assert service.requests[1][2]["script"] == "#!/bin/sh\n"


def test_a_script_that_does_not_exist(place):
    with answering(str(place / "s"), [{"need": "/gone/x.sh"}]):
        done = call(place, "sbatch", "/gone/x.sh")
    assert (done.stderr, done.returncode) == (
        b"sbatch: error: Unable to open file /gone/x.sh\n",
        1,
    )


def test_a_service_that_requests_the_script_for_ever(place):
    (place / "x.sh").write_text("#!/bin/sh\n")
    with answering(str(place / "s"), lambda body: {"need": "x.sh"}):
        done = call(place, "sbatch", "x.sh")
    assert done.returncode == 1
    assert done.stderr == b"sbatch: error: the service of vgrads requests the script again\n"


def test_a_broken_connection_is_repeated_with_the_same_id(place):
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"
    busy = (503, {"message": "busy"})
    with answering(str(place / "s"), [None, cut, b"", busy, FINE]) as service:
        assert call(place, "sbatch", "--wrap=x").stdout == b"Submitted batch job 7\n"
    bodies = [body for _, _, body in service.requests]
    assert len(bodies) == 5
    assert all(body == bodies[0] for body in bodies)


def test_an_answer_in_chunks(place):
    data = json.dumps(FINE).encode()
    chunks = b"%x;a=b\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (5, data[:5], len(data) - 5, data[5:])
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    with answering(str(place / "s"), [answer]):
        assert call(place, "sbatch").stdout == b"Submitted batch job 7\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, {"message": "out of order"}), "the service of vgrads answered 500 out of order"),
        ((404, {"detail": "Not Found"}), "the service of vgrads answered 404 Not Found"),
        ((401, {}), "the service of vgrads refused the token"),
        ((200, [1]), "the service of vgrads answered 200"),
        (b"HTTP/1.1 200 OK\r\n\r\nnonsense", "the service of vgrads answered 200"),
        (
            {"execute": "ls"},
            "the service of vgrads answered in a form that is not understood",
        ),
        ({"execute": ["/gone/x"]}, "/gone/x: No such file or directory"),
        ({"also": [["/gone/x"]]}, "/gone/x: No such file or directory"),
    ],
)
def test_each_error_is_one_line(place, answer, message):
    with answering(str(place / "s"), [answer]):
        done = call(place, "squeue")
    assert (done.stderr.decode(), done.returncode) == (f"squeue: error: {message}\n", 1)


def test_another_program_is_executed_in_place(place):
    words = [SHELL, "-c", 'cat; echo "$A $0"; exit 5', "zero"]
    answer = {"execute": words, "environment": {"A": "1"}, "stdin": "given\n" * 20000}
    with answering(str(place / "s"), [answer]):
        done = call(place, "srun", "x")
    assert done.stdout == b"given\n" * 20000 + b"1 zero\n"
    assert done.returncode == 5


def test_a_program_that_is_executed_has_the_environment_and_input_of_the_command(place):
    answer = {"execute": [SHELL, "-c", 'read line; echo "$line $A"'], "environment": None}
    with answering(str(place / "s"), [answer]):
        assert call(place, "srun", input_text=b"typed\n", A="2").stdout == b"typed 2\n"


def test_further_programs_print_after_the_answer(place):
    also = [[SHELL, "-c", "echo real; exit 0"], [SHELL, "-c", "echo more; exit 4"]]
    answers = [{"out": "ours\n", "also": also}, {"out": "ours\n", "code": 2, "also": also}]
    with answering(str(place / "s"), answers):
        done = call(place, "squeue")
        assert (done.stdout, done.returncode) == (b"ours\nreal\nmore\n", 4)
        assert call(place, "squeue").returncode == 2


def test_a_service_that_comes_later(place):
    process = subprocess.Popen([place / "bin" / "sbatch", "x"], stdout=subprocess.PIPE)
    with answering(str(place / "s"), [FINE]):
        out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == (b"Submitted batch job 7\n", 0)


def test_waiting_is_asking_again(place):
    with answering(str(place / "s"), [{"wait_s": 0.01}, {"wait_s": 0}, FINE]) as service:
        assert call(place, "sbatch", "--wait", "x").returncode == 0
    assert len({body["request"] for _, _, body in service.requests}) == 1


def test_a_reader_that_goes_away(place):
    with answering(str(place / "s"), [{"out": "line\n" * 200_000, "code": 0}]):
        done = subprocess.run(
            [SHELL, "-c", f"{place}/bin/squeue | head -1"],
            capture_output=True,
            check=False,
            timeout=60,
        )
    assert (done.stdout, done.stderr) == (b"line\n", b"")


def test_an_interrupt_ends_quietly(place):
    started = place / "started"

    def answer(body):
        started.touch()
        return {"wait_s": 60.0}

    with answering(str(place / "s"), answer):
        process = subprocess.Popen(
            [place / "bin" / "sbatch", "--wait", "x"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until(started.exists, "the request")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"", b"", 130)


def serving_command(place, marks):
    """A program that serves the socket in the background, as ``vgrads slurm up`` does."""
    text = f"""\
import sys, os
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.slurm.http_service import answering
with open({str(marks)!r}, "a") as file:
    file.write("started\\n")
if os.fork():
    os._exit(0)
import time
end_s = time.monotonic() + 300
with answering({str(place / "s")!r}, lambda body: {FINE!r}):
    while time.monotonic() < end_s and not os.path.exists({str(place / "stop")!r}):
        time.sleep(0.01)
"""
    (place / "serve.py").write_text(text)
    return [sys.executable, str(place / "serve.py")]


def test_a_private_service_is_started_once(place):
    marks = place / "marks"
    install(place / "bin", sys.executable, str(place / "s"), start=serving_command(place, marks))
    processes = [
        subprocess.Popen([place / "bin" / "sbatch", "x"], stdout=subprocess.PIPE) for _ in range(4)
    ]
    try:
        outs = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        (place / "stop").touch()
    assert outs == [b"Submitted batch job 7\n"] * 4
    assert marks.read_text() == "started\n"
    assert stat.S_IMODE((place / "s.lock").stat().st_mode) == 0o600


def test_a_starter_that_is_killed_is_run_again(place):
    marks = place / "marks"
    serving = " ".join(serving_command(place, marks))
    killed = f"echo killed >>{marks}; [ $(wc -l <{marks}) -gt 2 ] || kill -9 $$; exec {serving}"
    install(place / "bin", sys.executable, str(place / "s"), start=[SHELL, "-c", killed])
    try:
        assert call(place, "sbatch", "x").stdout == b"Submitted batch job 7\n"
    finally:
        (place / "stop").touch()
    assert marks.read_text() == "killed\n" * 3 + "started\n"
    install(place / "bin", sys.executable, str(place / "t"), start=[SHELL, "-c", "kill -9 $$"])
    monotonic = call(place, "sbatch", "x", VGRADS_SLURM_SOCKET=str(place / "t"))
    assert b"it was killed 5 times" in monotonic.stderr and monotonic.returncode == 1


def test_a_private_service_that_does_not_start(place):
    start = [SHELL, "-c", "echo first; echo the port is taken >&2; exit 3"]
    install(place / "bin", sys.executable, str(place / "s"), start=start)
    done = call(place, "sbatch", "x")
    words = b"sbatch: error: the service of vgrads did not start: the port is taken\n"
    assert (done.stderr, done.returncode) == (words, 1)


def test_a_port_needs_a_token_that_others_cannot_read(place):
    token = place / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    with answering(("127.0.0.1", 0), lambda body: FINE) as service:
        address = f"http://127.0.0.1:{service.address[1]}"
        install(place / "bin", sys.executable, address, token_file=str(token))
        assert call(place, "squeue").returncode == 0
        token.chmod(0o644)
        done = call(place, "squeue")
    assert service.requests[0][1]["Authorization"] == "Bearer secret"
    assert len(service.requests) == 1
    assert done.stderr.decode() == (
        f"squeue: error: the token file {token} can be read by others; run: chmod 600 {token}\n"
    )


def test_an_address_that_is_none(place):
    done = call(place, "squeue", VGRADS_SLURM_SOCKET="http://nowhere")
    assert done.stderr.startswith(b"squeue: error: the address http://nowhere is not of the form")
    assert done.returncode == 1


def test_the_variable_is_stronger_than_the_installed_address(place):
    with answering(str(place / "other"), [FINE]):
        done = call(place, "sbatch", VGRADS_SLURM_SOCKET=str(place / "other"))
    assert done.returncode == 0


def test_a_folder_that_was_removed(place):
    gone = place / "gone"
    gone.mkdir()
    with answering(str(place / "s"), [FINE]) as service:
        words = f"cd {gone}; rmdir {gone}; exec {place}/bin/sbatch x"
        done = subprocess.run([SHELL, "-c", words], check=False, capture_output=True)
    assert done.returncode == 0
    assert service.requests[0][2]["folder"] == ""


def test_the_installed_programs(place):
    folder = place / "bin"
    names = {path.name for path in folder.iterdir()}
    assert names == set(program.COMMANDS)
    lines = (folder / "squeue").read_text().splitlines()
    assert lines[:2] == [f"#!{sys.executable} -IS", MARKER]
    assert all(path.stat().st_mode & 0o777 == 0o755 for path in folder.iterdir())
    assert all(is_ours(path) for path in folder.iterdir())


def test_a_second_installation_replaces_the_first(place):
    paths = install(place / "bin", sys.executable, "/elsewhere")
    assert {path.name for path in paths} == set(program.COMMANDS)
    assert all("ADDRESS = '/elsewhere'" in path.read_text() for path in paths)
    assert len(list((place / "bin").iterdir())) == len(program.COMMANDS)


def test_programs_of_others_stay(tmp_path):
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    (tmp_path / "srun").symlink_to("/gone")
    with pytest.raises(InputError) as caught:
        install(tmp_path, sys.executable, "/s")
    assert caught.value.where == str(tmp_path)
    assert "squeue, srun" in caught.value.what
    assert {path.name for path in tmp_path.iterdir()} == {"squeue", "srun"}
    assert (tmp_path / "squeue").read_text() == "#!/bin/sh\n"


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        install(tmp_path / "file" / "bin", sys.executable, "/s")


@pytest.mark.parametrize("interpreter", ["python3", "/a b/python3", "/" + "x" * 130])
def test_interpreters_that_cannot_begin_a_program(tmp_path, interpreter):
    with pytest.raises(InputError, match="interpreter"):
        install(tmp_path, interpreter, "/s")
    assert list(tmp_path.iterdir()) == []


def test_the_program_is_one_of_python_3_8():

    text = Path(program.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names
    first = {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    }
    assert first == {"json", "os", "socket", "sys", "time"}

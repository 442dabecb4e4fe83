"""The program behind sbatch, squeue and the others: it sends what was typed to vgrads' service.

``vgrads slurm install`` copies this file, so it imports the standard library only, and little of
it, for Python 3.8 or newer. A command is one HTTP request, ``POST /v1/slurm/COMMAND``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

ADDRESS = ""
TOKEN_FILE = ""
START: tuple[str, ...] = ()
# The installation replaces these: the socket's path or http://host:port, the file of the token for
# an address, the command that starts a private service.

STEP = "VGRADS_SLURM_STEP"
"""Variable inside a job: the program that ``srun`` is there."""
COMMANDS = ("sbatch", "squeue", "scancel", "sacct", "scontrol", "srun", "sinfo", "sacctmgr")
_STARTS = 5  # of a program that is killed, as where memory runs out
PATIENCE_S = 30.0
ANSWER_S = 300.0
_VARIABLES = tuple(b"SQUEUE_ SLURM_ SACCT_ SBATCH_ SINFO_ SCANCEL_ VGRADS_SLURM_".split())


class CommandFailure(Exception):
    """The command cannot be carried out; the message is for the user."""


class ServiceUnreachable(Exception):
    """Nothing answers, or the connection broke: a repeated request may succeed."""

    def __init__(self, message: str, absent: bool = False) -> None:
        super().__init__(message)
        self.absent = absent


def to_text(data: bytes) -> str:
    """Decode bytes of any encoding, so that ``to_bytes`` returns them unchanged."""
    return data.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """Encode text; what was no UTF-8 is again what it was."""
    return text.encode("utf-8", "surrogateescape")


def request_body(command: str, arguments: list[str]) -> dict[str, object]:
    """Return the request of a command, with the state of this process that matters to it."""
    # it can be read only by setting it
    umask = os.umask(0)
    os.umask(umask)
    environment = {
        to_text(name): to_text(value)
        for name, value in os.environb.items()
        if command in ("sbatch", "srun") or name.startswith(_VARIABLES)
    }
    try:
        folder = to_text(os.getcwdb())
    except OSError:
        folder = ""
    return {
        "arguments": [to_text(os.fsencode(word)) for word in arguments],
        "folder": folder,
        "umask": umask,
        "environment": environment,
        "script": None,
        "request": os.urandom(16).hex(),
        "host": os.uname().nodename,
        "pads": True,
    }


def _read_token() -> str:
    """Return the token of the address. Raises CommandFailure where others could read it."""
    path = os.environ.get("VGRADS_SLURM_TOKEN_FILE") or TOKEN_FILE
    if not path:
        return ""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & 0o077:
                raise CommandFailure(
                    f"the token file {path} can be read by others; run: chmod 600 {path}"
                )
            return to_text(file.read().strip())
    except OSError as error:
        raise CommandFailure(f"the token file {path}: {error.strerror}") from error


def _connect(address: str) -> socket.socket:
    if not address.startswith("http"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(ANSWER_S)
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(host_and_port(address), ANSWER_S)
    if connection.getsockname() == connection.getpeername():
        # nobody listens: TCP gave the client this port, and connected the socket to itself
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1" + bytes(7))  # no TIME-WAIT
        connection.close()
        raise ConnectionRefusedError("Connection refused")
    return connection


def host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of ``http://host:port``. Raises CommandFailure."""
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rstrip("/").rpartition(":")
    if scheme != "http" or not host or not port.isdigit():
        raise CommandFailure(f"the address {address} is not of the form http://host:port")
    return host.strip("[]"), int(port)


def send_once(address: str, token: str, command: str, body: bytes) -> tuple[int, bytes]:
    """Send one request and return status and body of the answer. Raises ServiceUnreachable."""
    host = address[len("http://") :].rstrip("/") if address.startswith("http") else "localhost"
    head = (
        f"POST /v1/slurm/{command} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    head += f"Authorization: Bearer {token}\r\n" if token else ""
    parts: list[bytes] = []
    try:
        with _connect(address) as connection:
            connection.sendall(to_bytes(f"{head}\r\n") + body)
            while not parts or parts[-1]:
                parts.append(connection.recv(65536))
    except PermissionError as error:
        raise CommandFailure(f"{address}: {error.strerror}") from error
    except OSError as error:
        absent = isinstance(error, (FileNotFoundError, ConnectionRefusedError))
        raise ServiceUnreachable(error.strerror or str(error), absent) from error
    return parse_answer(b"".join(parts))


def parse_answer(data: bytes) -> tuple[int, bytes]:
    """Return status and body of a whole HTTP answer. Raises ServiceUnreachable if it is cut."""
    head, separator, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    words = lines[0].split()
    if not separator or len(words) < 2 or not words[1].isdigit():
        raise ServiceUnreachable("the connection broke before the answer")
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = _join_chunks(body)
    elif fields.get(b"content-length", b"").isdigit():
        length = int(fields[b"content-length"])
        if len(body) < length:
            raise ServiceUnreachable("the connection broke within the answer")
        body = body[:length]
    return int(words[1]), body


def _join_chunks(data: bytes) -> bytes:
    """Return the content of chunks."""
    parts: list[bytes] = []
    while True:
        size, separator, rest = data.partition(b"\r\n")
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            length = -1
        if not separator or length < 0 or len(rest) < length:
            raise ServiceUnreachable("the connection broke within the answer")
        if length == 0:
            return b"".join(parts)
        parts.append(rest[:length])
        data = rest[length + 2 :]


def ask(address: str, command: str, body: dict[str, object]) -> dict[str, object]:
    """Return the service's answer; an unreachable service is tried again, and started if it is a
    private one. The request's id makes a repetition safe. Raises CommandFailure."""
    token = _read_token() if address.startswith("http") else ""
    # escapes keep what was no UTF-8: a surrogate cannot be encoded otherwise
    data = json.dumps(body).encode("ascii")
    end_s, pause_s, started = time.monotonic() + PATIENCE_S, 0.02, False
    while True:
        try:
            status, answer = send_once(address, token, command, data)
            if status != 503:
                return _parse_answer(status, answer)
            reason = "it is busy"
        except ServiceUnreachable as error:
            reason = "nobody listens; run: vgrads slurm up" if error.absent else str(error)
            if error.absent and not started and START and not address.startswith("http"):
                started = True
                start_service(address)
                end_s = max(end_s, time.monotonic() + PATIENCE_S)
                continue
        if time.monotonic() >= end_s:
            raise CommandFailure(f"the service of vgrads at {address}: {reason}")
        time.sleep(pause_s)
        pause_s = min(1.0, 2 * pause_s)


def _parse_answer(status: int, answer: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(answer)
    except ValueError:
        parsed = None
    if status == 200 and isinstance(parsed, dict):
        return parsed
    if status in (401, 403):
        raise CommandFailure("the service of vgrads refused the token")
    fields = parsed if isinstance(parsed, dict) else {}
    message = fields.get("message") or fields.get("detail") or ""
    raise CommandFailure(f"the service of vgrads answered {status} {message}".rstrip())


def start_service(address: str) -> None:
    """Start the private service, once among all callers. Raises CommandFailure."""
    end_s = time.monotonic() + PATIENCE_S
    try:
        lock = os.open(address + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandFailure(f"{address}.lock: {error.strerror}") from error
    while not _hold_lock(lock):
        if time.monotonic() >= end_s:
            raise CommandFailure("another command starts the service, and does not end")
        time.sleep(0.05)
    for _ in range(_STARTS):
        if listens(address) or not _start_service(address):
            break
    else:
        if not listens(address):
            why = f"the program that starts it was killed {_STARTS} times"
            raise CommandFailure(f"the service does not listen: {why}")
    while not listens(address):
        if time.monotonic() >= end_s:
            raise CommandFailure(f"the service does not listen: {_read_last_line(address)}")
        time.sleep(0.05)
    os.close(lock)


def _start_service(address: str) -> bool:
    """Run the command that starts the service, to its end; return True where a signal ended it."""
    from subprocess import DEVNULL, TimeoutExpired, call

    try:
        with open(address + ".log", "wb") as log:
            code = call(
                START, stdin=DEVNULL, stdout=log, stderr=log, timeout=60, start_new_session=True
            )
    except (OSError, TimeoutExpired) as error:
        raise CommandFailure(f"the service of vgrads did not start: {error}") from error
    if code > 0:
        raise CommandFailure(f"the service of vgrads did not start: {_read_last_line(address)}")
    return code < 0


def _hold_lock(lock: int) -> bool:
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def listens(address: str) -> bool:
    """Return True where a service accepts connections."""
    try:
        _connect(address).close()
    except OSError:
        return False
    return True


def _read_last_line(address: str) -> str:
    with open(address + ".log", "a+b") as file:
        file.seek(0)
        lines = to_text(file.read()).strip().splitlines()
    return lines[-1] if lines else f"see {address}.log"


def read_script(path: str) -> str:
    """Return the text of a script here or in PATH, ``-`` for standard input."""
    try:
        if path == "-":
            with open(0, "rb", closefd=False) as file:
                return to_text(file.read())
        name = to_bytes(path)
        if b"/" not in name and not os.path.exists(name):
            from shutil import which

            name = os.fsencode(which(os.fsdecode(name)) or name)
        with open(name, "rb") as file:
            return to_text(file.read())
    except OSError as error:
        raise CommandFailure(f"Unable to open file {path}") from error


def write_all(descriptor: int, text: str) -> None:
    """Write text without a buffer."""
    data = memoryview(to_bytes(text))
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            # another program has made this terminal or pipe non-blocking
            time.sleep(0.01)


def write_padded(descriptor: int, text: str) -> None:
    """Write a table, with runs of one character (NUL, length, character) written out."""
    for part in f"0 {text}".split("\0"):  # its beginning follows a run of no blanks
        rest = part.lstrip("0123456789")
        count = int(part[: len(part) - len(rest)] or 0)
        for at in range(0, count, 65536):
            write_all(descriptor, rest[:1] * min(65536, count - at))
        write_all(descriptor, rest[1:])


def execute(words: list[str], environment: object, stdin: object) -> None:
    """Become another program. Raises CommandFailure where that fails."""
    variables = dict(os.environb)
    if isinstance(environment, dict):
        variables = {to_bytes(str(n)): to_bytes(str(v)) for n, v in environment.items()}
    if isinstance(stdin, str):
        # not a pipe: a text that is longer than its buffer would block here
        descriptor = os.memfd_create("stdin")
        write_all(descriptor, stdin)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.dup2(descriptor, 0)
    arguments = [to_bytes(word) for word in words]
    try:
        os.execve(arguments[0], arguments, variables)
    except OSError as error:
        raise CommandFailure(f"{words[0]}: {error.strerror}") from error


def run_also(words: list[str]) -> int:
    """Run another program to its end, with the outputs of this one; return its exit status."""
    arguments = [to_bytes(word) for word in words]
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    try:
        process = os.posix_spawn(arguments[0], arguments, os.environ, file_actions=actions)
    except OSError as error:
        raise CommandFailure(f"{words[0]}: {error.strerror}") from error
    _, status = os.waitpid(process, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _split_words(value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise CommandFailure("the service of vgrads answered in a form that is not understood")
    return [str(word) for word in value]


def finish(answer: dict[str, object]) -> int:
    """Print a final answer, run what it names, and return the exit status."""
    write_padded(1, str(answer.get("out") or ""))
    write_all(2, str(answer.get("err") or ""))
    code = answer.get("code")
    codes = [code if isinstance(code, int) else 0]
    also = answer.get("also")
    if isinstance(also, list):
        codes += [run_also(_split_words(words)) for words in also]
    return next((number for number in codes if number), 0)


def carry_out(command: str, arguments: list[str]) -> int:
    """Ask the service until it has a final answer, and return the exit status."""
    if command == "srun" and STEP in os.environ:  # inside a job, where no service may be reached
        execute([sys.executable, "-IS", os.environ[STEP], *arguments], None, None)
    address = os.environ.get("VGRADS_SLURM_SOCKET") or ADDRESS
    if not address:
        raise CommandFailure("set VGRADS_SLURM_SOCKET, or run: vgrads slurm install")
    body = request_body(command, arguments)
    while True:
        answer = ask(address, command, body)
        if "need" in answer:
            if body["script"] is not None:
                raise CommandFailure("the service of vgrads requests the script again")
            body["script"] = read_script(str(answer["need"]))
        elif "wait_s" in answer:
            wait_s = answer["wait_s"]
            time.sleep(min(60.0, max(0.0, wait_s if isinstance(wait_s, (int, float)) else 1.0)))
        elif "execute" in answer:
            execute(_split_words(answer["execute"]), answer.get("environment"), answer.get("stdin"))
        else:
            return finish(answer)


def main(argv: list[str]) -> int:
    """Run the command whose name the program has; return the exit status."""
    command = os.path.basename(argv[0])
    try:
        if command not in COMMANDS:
            raise CommandFailure("this program is called " + ", ".join(COMMANDS))
        return carry_out(command, argv[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except Exception as error:
        kind = "" if isinstance(error, CommandFailure) else f"{type(error).__name__}: "
        os.write(2, to_bytes(f"{command}: error: {kind}{error}\n"))
    return 1


if __name__ == "__main__":
    os._exit(main(sys.argv))

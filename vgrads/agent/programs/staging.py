"""Fetch a task's remote inputs and send its outputs: a program that runs with the task.

``python -I staging.py fetch|send`` in the task's folder, which holds the list. It is part of the
task's process, so it ends with the task. Files are streamed: none is held in memory, whatever its
size. Fetched files stay in a folder of the run or the agent, for later tasks there that need them.
Needs the standard library, Python 3.8 or newer; for s3 also fsspec and s3fs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import ipaddress
import json
import os
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import IO, Any, Callable, Iterator, Union
from urllib.parse import unquote, urlsplit

LIST = ".staging"
"""File in a task's folder that lists the files to fetch and to send."""
STAGED_MARK = ".staged"
"""File in a task's folder with the error, and whether it may be temporary."""
_CHUNK = 2**20
_ANSWER_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # between tries; each is twice as long
_TEMPORARY, _FAULT = 75, 65  # sysexits(3): a temporary failure, wrong data


class Fault(Exception):
    """A permanent error."""


def main(what: str) -> int:
    """Transfer all files, with tries until the time of the list is over; return the exit code."""
    here = Path.cwd()
    work = json.loads((here / LIST).read_text())
    if not work.get("private", True):
        urllib.request.install_opener(public_opener())
    until_s = time.monotonic() + work.get("patience_s", 0.0)
    try:
        for file in work[what]:
            if what == "fetch":
                stored = Path(work["kept"]).absolute()
                again(
                    partial(_place_input, here / file["name"], file, stored), file["url"], until_s
                )
            else:
                folders = [Path(folder) / file["name"] for folder in work["folders"]]
                again(partial(_take, folders, file), file["url"], until_s)
    except Fault as error:
        return _print(here, str(error), _FAULT)
    except Exception as error:  # libraries of a server's protocol may raise anything
        return _print(
            here,
            f"{file['url']}: {_describe_error(error)}",
            _FAULT if _is_permanent(error) else _TEMPORARY,
        )
    return 0


def again(
    transfer: Callable[[], None],
    url: str,
    until_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Transfer a file; after a temporary error try again with growing pauses. Raise the error if
    it remains until ``until_s`` (monotonic)."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return transfer()
        except Fault:
            raise
        except Exception as error:  # libraries of a server's protocol may raise anything
            if _is_permanent(error) or time.monotonic() + pause_s > until_s:
                raise
            with contextlib.suppress(OSError):  # on a full disk the next try is still made
                print(
                    f"{url}: {_describe_error(error)}; next try in {pause_s:.0f} s", file=sys.stderr
                )
        sleep(pause_s)
        pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)


def _print(here: Path, reason: str, code: int) -> int:
    (here / STAGED_MARK).write_text(json.dumps({"reason": reason, "luck": code == _TEMPORARY}))
    with contextlib.suppress(OSError):
        print(reason, file=sys.stderr)
    return code


def _is_permanent(error: Exception) -> bool:
    """Return True where a retry would fail too: there is no such file, or no permission to read
    it."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in (408, 425, 429)
    return isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError))


class NotPublic(Fault):
    """The address of a server is not public."""


def public_opener() -> urllib.request.OpenerDirector:
    """Return an opener that connects to public addresses only, after redirects too; without a
    proxy, which would resolve names itself."""
    opener = urllib.request.OpenerDirector()  # build_opener() adds ftp, file and data
    for handler in (
        _Http,
        _Https,
        _Redirects,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # to IPv4 (RFC 6052)


def is_public(number: _Address) -> bool:
    """Return True for an address in the public network; of one that stands for an address of IPv4
    (RFC 4291, 3056, 6052), where that is public."""
    if isinstance(number, ipaddress.IPv6Address):
        inside = number.ipv4_mapped or number.sixtofour
        if number in _TRANSLATED:
            inside = ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
        if inside is not None:
            return is_public(inside)
        if number.teredo is not None or number.is_site_local:
            return False
    return number.is_global and not number.is_multicast and not number.is_reserved


def _connect_public(
    where: tuple[str, int],
    timeout_s: float | None = None,
    source: tuple[str, int] | None = None,
) -> socket.socket:
    """Connect to the address that was checked: a name may have another one at the next question."""
    failed: OSError = OSError(f"{where[0]} has no address")
    for *_, address in socket.getaddrinfo(*where, type=socket.SOCK_STREAM):
        number = ipaddress.ip_address(str(address[0]).partition("%")[0])
        if not is_public(number):
            raise NotPublic(
                f"{where[0]} has the address {number}, which is not public: the operator can allow "
                "it with 'private_addresses = true' of the site"
            )
        try:
            return socket.create_connection((str(address[0]), where[1]), timeout_s, source)
        except OSError as error:
            failed = error
    raise failed


class _HttpConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        self._create_connection = _connect_public
        super().connect()


class _HttpsConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        self._create_connection = _connect_public
        super().connect()


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpConnection, request)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpsConnection, request)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # type: ignore[no-untyped-def]
        self, req, fp, code, msg, headers, newurl
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise NotPublic(f"the server refers to {newurl}, which is no address of http or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _describe_error(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"does not answer: {error.reason}"
    if isinstance(error, (TimeoutError, ConnectionError)):
        return f"does not answer: {error or type(error).__name__}"
    return str(error) or type(error).__name__


def _place_input(target: Path, file: dict[str, Any], stored_path: Path) -> None:
    """Place an input in the task's folder: a link to the fetched file, or a file of its own where
    the task also writes it."""
    whole = (
        stored_path / hashlib.sha256(f"{file['url']} {file['digest']}".encode()).hexdigest()[:32]
    )
    stored_path.mkdir(parents=True, exist_ok=True)
    with _lock_node(whole.with_suffix(".lock")):
        if not whole.exists():
            _fetch(file, whole)
    target.parent.mkdir(parents=True, exist_ok=True)
    if file["writes"]:
        shutil.copyfile(whole, target)
    else:
        target.symlink_to(whole)


@contextlib.contextmanager
def _lock_node(path: Path) -> Iterator[None]:
    """Lock: one process of a node at a time, as far as the file system supports it; two that fetch
    the same file only take longer."""
    with path.open("w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(file: dict[str, Any], whole: Path) -> None:
    """Fetch the file; it gets its final name once it is complete and verified."""
    kind, _, expected = file["digest"].partition(":")
    digest = hashlib.new(kind or "sha256")
    draft = whole.with_suffix(f".{os.uname().nodename}.{os.getpid()}")
    for left in whole.parent.glob(
        f"{whole.name}.{os.uname().nodename}.*"
    ):  # left by killed processes
        if not Path(f"/proc/{left.suffix[1:]}").exists():
            left.unlink(missing_ok=True)
    try:
        with _open_url(file["url"]) as source, draft.open("wb") as to:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                to.write(chunk)
            _refuse_cut(source, to.tell())
        if expected and digest.hexdigest() != expected:
            raise Fault(
                f"{file['url']} has {kind}:{digest.hexdigest()}, {kind}:{expected} is stated"
            )
        draft.chmod(0o444)
        draft.replace(whole)
    finally:
        draft.unlink(missing_ok=True)


def _refuse_cut(source: object, came: int) -> None:
    """Raise an error for a body that ends early, which looks like a short one."""
    length = source.headers.get("Content-Length") if hasattr(source, "headers") else None
    if length is not None and int(length) != came:
        raise OSError(f"ended after {came} of {length} bytes")


def _open_url(url: str) -> Any:
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
        return urllib.request.urlopen(request, timeout=_ANSWER_S)
    return _parse_path(url).open("rb") if scheme == "file" else _open_object(url, "rb")


def _parse_path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _open_object(url: str, mode: str) -> Any:
    """Open a file in an object store."""
    try:
        import fsspec  # noqa: PLC0415 only where one is asked for

        return fsspec.open(url, mode).open()
    except ImportError as error:
        raise Fault(
            f"{url}: s3 is not installed where the task runs (pip install 'vgrads[s3]'): {error}"
        ) from error


def _take(folders: list[Path], file: dict[str, Any]) -> None:
    """Send an output to its URL."""
    created = next((folder for folder in folders if folder.is_file()), None)
    if created is None:
        raise Fault(f"did not write '{file['name']}'")
    ways: dict[str, Callable[[str, IO[bytes], int], None]] = {"file": _put_file, "s3": _put_object}
    with created.open("rb") as source:
        ways.get(urlsplit(file["url"]).scheme, _put)(file["url"], source, created.stat().st_size)


def _put(url: str, source: IO[bytes], size: int) -> None:
    headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, data=source, headers=headers, method="PUT")
    with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
        answer.read()


def _put_file(url: str, source: IO[bytes], _: int) -> None:
    target = _parse_path(url)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name[:200]}.{os.uname().nodename}.{os.getpid()}")
    try:
        with draft.open("wb") as to:
            shutil.copyfileobj(source, to, _CHUNK)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _put_object(url: str, source: IO[bytes], _: int) -> None:
    with _open_object(url, "wb") as to:
        shutil.copyfileobj(source, to, _CHUNK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

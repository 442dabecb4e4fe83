"""Brings a task's inputs that lie elsewhere, and takes its outputs there: a program that runs where
the task runs.

``python -I staging.py fetch|send`` in the task's folder, which holds the list. It is part of the
task's process, so whatever ends the task ends it. Files are streamed: none is held in memory,
however large. What was fetched stays in a folder of the run: the next task there that wants it
finds it. Needs the standard library; for s3 also fsspec and s3fs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

LIST = ".staging"
"""In a task's folder: what is to be brought and taken."""
SAID = ".staged"
"""There: what went wrong, and whether that may be bad luck."""
_CHUNK = 2**20
_ANSWER_S = 30.0
_LUCK, _FAULT = 75, 65  # sysexits(3): a temporary failure, wrong data


class Fault(Exception):
    """It would be so each time."""


def main(what: str) -> int:
    """Do all of it; the exit code."""
    here = Path.cwd()
    work = json.loads((here / LIST).read_text())
    try:
        for file in work[what]:
            if what == "fetch":
                _bring(here / file["name"], file, Path(work["kept"]))
            else:
                _take([Path(folder) / file["name"] for folder in work["folders"]], file)
    except Fault as error:
        return _say(here, str(error), _FAULT)
    except Exception as error:  # whatever the libraries of a server's protocol raise
        return _say(here, f"{file['url']}: {_words(error)}", _FAULT if _for_good(error) else _LUCK)
    return 0


def _say(here: Path, reason: str, code: int) -> int:
    (here / SAID).write_text(json.dumps({"reason": reason, "luck": code == _LUCK}))
    print(reason, file=sys.stderr)
    return code


def _for_good(error: Exception) -> bool:
    """True where asking again would be answered alike: there is no such file, or not for us."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in (408, 425, 429)
    return isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError)


def _words(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"does not answer: {error.reason}"
    if isinstance(error, TimeoutError | ConnectionError):
        return f"does not answer: {error or type(error).__name__}"
    return str(error) or type(error).__name__


def _bring(target: Path, file: dict[str, Any], kept: Path) -> None:
    """An input in the task's folder: a link to what was fetched, or where the task writes it too, a
    copy."""
    whole = kept / hashlib.sha256(f"{file['url']} {file['digest']}".encode()).hexdigest()[:32]
    kept.mkdir(parents=True, exist_ok=True)
    with _alone(whole.with_suffix(".lock")):
        if not whole.exists():
            _fetch(file, whole)
    target.parent.mkdir(parents=True, exist_ok=True)
    if file["writes"]:
        shutil.copyfile(whole, target)
    else:
        target.symlink_to(whole)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One of a host at a time, as far as the file system can say; two that fetch the same only take
    longer."""
    with path.open("w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(file: dict[str, Any], whole: Path) -> None:
    """The file under its lasting name, once all of it is there and is what it is said to be."""
    kind, _, stated = file["digest"].partition(":")
    digest = hashlib.new(kind or "sha256")
    draft = whole.with_suffix(f".{os.uname().nodename}.{os.getpid()}")
    for left in whole.parent.glob(
        f"{whole.name}.{os.uname().nodename}.*"
    ):  # by those who were killed
        if not Path(f"/proc/{left.suffix[1:]}").exists():
            left.unlink(missing_ok=True)
    try:
        with _reading(file["url"]) as source, draft.open("wb") as to:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                to.write(chunk)
            _refuse_cut(source, to.tell())
        if stated and digest.hexdigest() != stated:
            raise Fault(f"{file['url']} has {kind}:{digest.hexdigest()}, {kind}:{stated} is stated")
        draft.chmod(0o444)
        draft.replace(whole)
    finally:
        draft.unlink(missing_ok=True)


def _refuse_cut(source: object, came: int) -> None:
    """A body that ends early looks like a short one."""
    stated = source.headers.get("Content-Length") if hasattr(source, "headers") else None
    if stated is not None and int(stated) != came:
        raise OSError(f"ended after {came} of {stated} bytes")


def _reading(url: str) -> Any:
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
        return urllib.request.urlopen(request, timeout=_ANSWER_S)
    return _path(url).open("rb") if scheme == "file" else _elsewhere(url, "rb")


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _elsewhere(url: str, mode: str) -> Any:
    """A file in a store of objects."""
    try:
        import fsspec  # noqa: PLC0415 only where one is asked for

        return fsspec.open(url, mode).open()
    except ImportError as error:
        raise Fault(
            f"{url}: s3 is not installed where the task runs (pip install 'vgrads[s3]'): {error}"
        ) from error


def _take(places: list[Path], file: dict[str, Any]) -> None:
    """An output to its URL."""
    made = next((place for place in places if place.is_file()), None)
    if made is None:
        raise Fault(f"did not write '{file['name']}'")
    ways: dict[str, Callable[[str, IO[bytes], int], None]] = {"file": _put_file, "s3": _put_object}
    with made.open("rb") as source:
        ways.get(urlsplit(file["url"]).scheme, _put)(file["url"], source, made.stat().st_size)


def _put(url: str, source: IO[bytes], size: int) -> None:
    headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, data=source, headers=headers, method="PUT")
    with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
        answer.read()


def _put_file(url: str, source: IO[bytes], _: int) -> None:
    target = _path(url)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name[:200]}.{os.uname().nodename}.{os.getpid()}")
    try:
        with draft.open("wb") as to:
            shutil.copyfileobj(source, to, _CHUNK)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _put_object(url: str, source: IO[bytes], _: int) -> None:
    with _elsewhere(url, "wb") as to:
        shutil.copyfileobj(source, to, _CHUNK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

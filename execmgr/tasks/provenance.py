"""What the outputs of tasks were made of, kept in their run's folder: a later run of the same set
asks it what need not be done again.

A task's record holds its recipe (command, environment, names), a trace of each file that counts for
it, and a trace of each of its outputs. Files count that it declares, and those beside the set that
its command names, or that a file names which counts; of absolute names those of files. What a
program finds in another way is not seen: it must be declared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from vgrads.planner.snapshot import TaskKey
from vgrads.workflows.manner import Manner
from vgrads.workflows.remote import RemoteFile

RECORDS = ".provenance"
"""In a run's folder: how its tasks were done, a line each."""
MOST_BESIDE = 1000
"""Files beside a set that its tasks find in their folders."""
_MOST_READ = 2**30
"""Bytes of a file beyond which its content is not read: its size and the time of its last change
must do."""
_MOST_SEARCHED = 2**20  # bytes of a file in which names of others are looked for
_MOST_KNOWN = 2**16  # files whose content is remembered
_MODULES = (".py", ".pm", ".so")  # which programs name without the ending
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")  # where the shell matches no patterns
_INTO = re.compile(r">{1,2}[|&]?\s*[^\s;|&<>()]+")  # what the shell writes to
_WORD = re.compile(r"[^\s'\"`;|&<>()${}=,:]+")


Seen = tuple[Path, int, int]
"""A file or folder, its bytes, when it was last changed (ns since 1970)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A file or folder as it was: bytes, last change (ns since 1970), digest of the content; empty
    where it is too large."""

    size: int
    changed_ns: int
    digest: str = ""

    def same(self, other: Trace) -> bool:
        """Whether the content was the same."""
        if self.size != other.size:
            return False
        if self.digest and other.digest:
            return self.digest == other.digest
        return self.changed_ns == other.changed_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How a task was done: ``run`` whose manager saw it, empty: of the folder that the record lies
    in."""

    key: TaskKey
    beside: str
    recipe: str
    reads: Mapping[str, Trace]
    outputs: Mapping[str, Trace]
    run: str = ""


class Doing(Protocol):
    """What a task is, as far as it matters here: an order, or a task of a set."""

    @property
    def command(self) -> str: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def fetches(self) -> tuple[RemoteFile, ...]: ...
    @property
    def sends(self) -> tuple[RemoteFile, ...]: ...


def can_stand(task: Doing) -> bool:
    """Whether it can be told at all that a task need not run again: it makes files here, of what
    can be compared."""
    known = all(file.digest for file in task.fetches)
    return bool(task.command and task.outputs) and not task.sends and known


def recipe_of(task: Doing, manner: Manner, key: TaskKey) -> str:
    """A digest of what a task does, but for the content of files; resources do not belong to it."""
    box = manner.boxed
    told = [
        task.command,
        sorted(manner.env),
        manner.setup,
        manner.conda or "",
        manner.venv or "",
        manner.workdir or "",
        [box.image, box.options] if box else [],
        task.inputs,
        task.outputs,
        [(file.name, file.of(*key).url, file.digest) for file in task.fetches],
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def files_beside(folder: Path) -> dict[str, Path]:
    """The files beside a set by name, the first ones of very many."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return {path.name: path for path in files[:MOST_BESIDE]}


def reads_of(task: Doing, manner: Manner, beside: Beside) -> dict[str, Path]:
    """Files that count for a task and that it does not declare, by name."""
    text = _text_of(task.command, manner)
    words = _words(text)
    found = {word: Path(word) for word in words if word.startswith("/") and _is_file(Path(word))}
    if manner.workdir:
        places = {name: Path(manner.workdir, name) for name in (*words, *task.inputs)}
        found |= {
            f"{manner.workdir}/{name}": place
            for name, place in places.items()
            if not name.startswith("/") and name not in task.outputs and _is_file(place)
        }
    by_variables = "\n".join(value for _, value in manner.env)
    named = (
        beside.named(text)
        | beside.named(by_variables)
        | beside.matched(_words(_QUOTED.sub("", text)))
    )
    return found | beside.reached_from(named, task.outputs)


def _text_of(command: str, manner: Manner) -> str:
    """All that may name a file that is read."""
    image = manner.boxed.image if manner.boxed else ""
    whole = (_INTO.sub(" ", command), *manner.setup, image, manner.conda or "", manner.venv or "")
    return "\n".join(whole)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long for a name
        return False


def _words(text: str) -> set[str]:
    return {word.removeprefix("./") for word in _WORD.findall(text)}


class Beside:
    """The files beside a set by name, to be found by how commands, and they themselves, call
    them."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files
        self._called = {name: name for name in files}
        self._called |= {Path(name).stem: name for name in files if Path(name).suffix in _MODULES}
        self._odd = [name for name in files if _words(name) != {name}]
        self._known: dict[str, tuple[tuple[int, int], set[str]]] = {}

    def named(self, text: str) -> set[str]:
        """Those that are named in a text; of one with blanks or signs in its name, as it stands or
        behind backslashes."""
        plain = text.replace("\\", "") if self._odd else ""
        found = {self._called[word] for word in _words(text) if word in self._called}
        return found | {name for name in self._odd if name in text or name in plain}

    def matched(self, words: Iterable[str]) -> set[str]:
        """Those that one of these words matches as a pattern."""
        patterns = [word for word in words if set(word) & set("*?[")]
        return {name for name in self.files if any(fnmatchcase(name, one) for one in patterns)}

    def reached_from(self, names: set[str], but: Collection[str]) -> dict[str, Path]:
        """These, and what they name in turn, ``but`` some; OSError where one is gone."""
        found: dict[str, Path] = {}
        names = names.difference(but)
        while names:
            found |= {name: self.files[name] for name in names}
            names = {n for name in names for n in self._mentioned(name)} - found.keys() - {*but}
        return found

    def _mentioned(self, name: str) -> set[str]:
        seen = _seen(self.files[name])
        if name not in self._known or self._known[name][0] != seen:
            text = _content(self.files[name], seen[0])
            says = (word for word in _words(text) if sum(map(str.isalnum, word)) > 1)
            found = self.named(text) | self.named(text.replace(".", " ")) | self.matched(says)
            self._known[name] = seen, found
        return self._known[name][1]


def _content(file: Path, size: int) -> str:
    """A text; of one that is large or no text, nothing."""
    if size > _MOST_SEARCHED:
        return ""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _seen(path: Path) -> tuple[int, int]:
    """Size and last change of a file or of all that a folder holds; OSError where nothing is
    there."""
    found = path.stat()
    if not path.is_dir():
        return found.st_size, found.st_mtime_ns
    inside = [one.lstat() for one in path.rglob("*")]
    changed_ns = max((one.st_mtime_ns for one in inside), default=found.st_mtime_ns)
    return sum(one.st_size for one in inside), changed_ns


def look(path: Path) -> Trace:
    """A file or folder without a look at its content; OSError where nothing is there."""
    return Trace(*_seen(path))


def trace(path: Path) -> Trace:
    """A file or folder with its digest; OSError where nothing is there."""
    size, changed_ns = _seen(path)
    if size > _MOST_READ:
        return Trace(size, changed_ns)
    if path.is_dir():  # where much may change unseen
        return Trace(size, changed_ns, _digest(path))
    return Trace(size, changed_ns, _known_digest(path, size, changed_ns))


@lru_cache(maxsize=_MOST_KNOWN)
def _known_digest(path: Path, size: int, changed_ns: int) -> str:  # noqa: ARG001 the key
    return _digest(path)


def _digest(path: Path) -> str:
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    whole = hashlib.sha256()
    for one in sorted(path.rglob("*")):
        content = one.readlink() if one.is_symlink() else "" if one.is_dir() else _digest(one)
        whole.update(f"{one.relative_to(path)}\0{content}\0".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def seen_of(paths: Mapping[str, Path]) -> dict[str, Seen]:
    """Files that count for a task, as they are; OSError where one is not there."""
    return {name: (path, *_seen(path)) for name, path in paths.items()}


def as_seen(was: Mapping[str, Seen]) -> dict[str, Trace]:
    """The same with their digests; OSError where one was changed since."""
    return {name: _as_it_was(*one) for name, one in was.items()}


def _as_it_was(path: Path, *seen: int) -> Trace:
    found = trace(path)
    if not seen == (found.size, found.changed_ns) == _seen(path):
        raise OSError(f"'{path}' was changed meanwhile")
    return found


def line_of(made: Made) -> str:
    """A record as a line of :data:`RECORDS`, with its line break before it: what a full disk cut
    off harms no other."""
    kept = {
        "key": made.key,
        "beside": made.beside,
        "recipe": made.recipe,
        "run": made.run,
        "reads": _as_lists(made.reads),
        "outputs": _as_lists(made.outputs),
    }
    return f"\n{json.dumps(kept)}"


def _as_lists(traces: Mapping[str, Trace]) -> dict[str, list[object]]:
    return {name: [one.size, one.changed_ns, one.digest] for name, one in traces.items()}


def records_in(folder: Path) -> dict[TaskKey, Made]:
    """The newest record of each task in a run's folder; what cannot be read is left out."""
    found: dict[TaskKey, Made] = {}
    try:
        lines = (folder / RECORDS).read_text(errors="replace").split("\n")
    except OSError:
        return found
    for line in lines:
        try:
            kept = json.loads(line)
            traces = {
                what: {name: Trace(*one) for name, one in kept[what].items()}
                for what in ("reads", "outputs")
            }
            workflow, task = kept["key"]
            made = Made(
                key=(workflow, task),
                beside=kept["beside"],
                recipe=kept["recipe"],
                run=kept["run"],
                **traces,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        found[made.key] = made
    return found

"""Provenance of tasks' outputs, stored in their run's folder: a later run of the same set uses it
to skip tasks that are up to date.

A task's record holds its recipe (command, environment, names), a fingerprint of each file that
counts for it, and a fingerprint of each of its outputs. Files count if the task declares them; of
sibling files of the set, those that its command or a counting file names; of absolute names, those
of existing files. Files that a program finds in another way are not detected: they must be
declared.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vgrads.execmgr.tasks.file_reader import ReadsFiles
from vgrads.kernel.record_file import LISTED_LINES, RecordFile, read_json_lines
from vgrads.kernel.user_files import (
    Identity,
    copy_user_file,
    database_parts,
    read_user_file,
    size_and_mtime,
)
from vgrads.workflows.remote import RemoteFile
from vgrads.workflows.task_environment import TaskEnvironment

if TYPE_CHECKING:
    from vgrads.planner.snapshot import TaskKey

RECORDS = ".provenance"
"""In a run's folder: records of its tasks, one per line."""
MAX_SIBLINGS = 1000
"""Sibling files of a set that its tasks find in their folders."""
_MOST_SEARCHED = 2**20  # bytes of a file that is searched for file names
_MODULES = (".py", ".pm", ".so")  # programs name these without the extension
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")  # where the shell matches no patterns
_INTO = re.compile(r">{1,2}[|&]?\s*[^\s;|&<>()]+")  # targets of output redirection
_WORD = re.compile(r"[^\s'\"`;|&<>()${}=,:]+")
_ABSOLUTE = re.compile(r"(?<![^\s'\"`;|&<>()${}=,:])/[^\s'\"`;|&<>()${}=,:]+")


FileState = tuple[Path, int, int]
"""A file or folder, its size in bytes, its last change (ns since 1970)."""


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """State of a file or folder: bytes, last change (ns since 1970), digest of the content; empty
    if it is too large."""

    size: int
    changed_ns: int
    digest: str = ""

    def same(self, other: FileFingerprint) -> bool:
        """Return whether the content was the same."""
        if self.size != other.size:
            return False
        if self.digest and other.digest:
            return self.digest == other.digest
        return self.changed_ns == other.changed_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedTask:
    """Record of a completed task: ``run`` whose manager ran it, empty: the run of the record's
    folder."""

    key: TaskKey
    siblings: str
    recipe: str
    reads: Mapping[str, FileFingerprint]
    outputs: Mapping[str, FileFingerprint]
    run: str = ""


class TaskSpec(Protocol):
    """Fields of a task that matter for provenance, of an order or of a task of a set."""

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


def can_stand(task: TaskSpec) -> bool:
    """Return whether a task can be up to date at all: it writes local files, from inputs that can
    be compared."""
    has_digests = all(file.digest for file in task.fetches)
    return bool(task.command and task.outputs) and not task.sends and has_digests


def recipe_of(task: TaskSpec, environment: TaskEnvironment, key: TaskKey) -> str:
    """Return a digest of the definition of a task, without the content of files; resources are not
    part of it."""
    box = environment.boxed
    message = [
        task.command,
        sorted(environment.env),
        environment.setup,
        environment.conda or "",
        environment.venv or "",
        environment.workdir or "",
        [box.image, box.options] if box else [],
        task.inputs,
        task.outputs,
        [(file.name, file.of(*key).url, file.digest) for file in task.fetches],
    ]
    return hashlib.sha256(json.dumps(message).encode()).hexdigest()


def sibling_files(folder: Path) -> dict[str, Path]:
    """Return the sibling files of a set by name; only the first ones if there are very many."""
    own = database_parts()  # a set may lie in the folder of the database
    files = [path for path in sorted(folder.iterdir()) if _is_file(path, own)]
    return {path.name: path for path in files[:MAX_SIBLINGS]}


def reads_of(
    task: TaskSpec, environment: TaskEnvironment, sibling_files: SiblingFiles
) -> dict[str, Path]:
    """Return files that count for a task and that it does not declare, by name."""
    text = _join_text(task.command, environment)
    words = _split_words(text)
    paths = {word: Path(word) for word in words if word.startswith("/") and _is_file(Path(word))}
    if environment.workdir:
        folders = {name: Path(environment.workdir, name) for name in (*words, *task.inputs)}
        paths |= {
            f"{environment.workdir}/{name}": folder
            for name, folder in folders.items()
            if not name.startswith("/") and name not in task.outputs and _is_file(folder)
        }
    by_variables = "\n".join(value for _, value in environment.env)
    named = (
        sibling_files.named(text)
        | sibling_files.named(by_variables)
        | sibling_files.matched(_split_words(_QUOTED.sub("", text)))
    )
    return paths | sibling_files.reached_from(named, task.outputs)


def absolute_names(text: str) -> set[str]:
    """Return the absolute names in a command, without targets of output redirection."""
    return set(_ABSOLUTE.findall(_INTO.sub(" ", text)))


def writes_elsewhere(text: str) -> bool:
    """Return whether a command redirects output to a file with an absolute name."""
    targets = (match.group().lstrip(">|& \t\"'") for match in _INTO.finditer(text))
    return any(
        name.startswith(("/", "~", "$")) and not name.startswith("/dev/") for name in targets
    )


def _join_text(command: str, environment: TaskEnvironment) -> str:
    """Return all text that may name an input file."""
    image = environment.boxed.image if environment.boxed else ""
    whole = (
        _INTO.sub(" ", command),
        *environment.setup,
        image,
        environment.conda or "",
        environment.venv or "",
    )
    return "\n".join(whole)


def _is_file(path: Path, refused: Collection[Identity] = ()) -> bool:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in refused


def _split_words(text: str) -> set[str]:
    return {word.removeprefix("./") for word in _WORD.findall(text)}


class SiblingFiles:
    """The sibling files of a set by name, searchable by the names that commands and files use."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files
        self._called = {name: name for name in files}
        self._called |= {Path(name).stem: name for name in files if Path(name).suffix in _MODULES}
        # names that are more than one word of a text: they are searched in the whole text
        self._odd = [name for name in files if _split_words(name) != {name}]
        self._cache: dict[str, tuple[tuple[int, int], set[str]]] = {}

    def named(self, text: str) -> set[str]:
        """Return the files that a text names; a name with blanks or special characters may be
        verbatim or escaped by backslashes."""
        plain = text.replace("\\", "") if self._odd else ""
        texts = {self._called[word] for word in _split_words(text) if word in self._called}
        return texts | {name for name in self._odd if name in text or name in plain}

    def matched(self, words: Iterable[str]) -> set[str]:
        """Return the files that any of these words matches as a pattern."""
        patterns = [word for word in words if set(word) & set("*?[")]
        return {name for name in self.files if any(fnmatchcase(name, word) for word in patterns)}

    def reached_from(self, names: set[str], but: Collection[str]) -> dict[str, Path]:
        """Return these files and the files that they name, recursively, except ``but``; OSError if
        one is gone."""
        paths: dict[str, Path] = {}
        names = names.difference(but)
        while names:
            paths |= {name: self.files[name] for name in names}
            names = {n for name in names for n in self._mentioned(name)} - paths.keys() - {*but}
        return paths

    def _mentioned(self, name: str) -> set[str]:
        observed = size_and_mtime(self.files[name])
        if name not in self._cache or self._cache[name][0] != observed:
            text = _read_content(self.files[name], observed[0])
            # patterns like '*' occur in any program, and would match every file
            output = (word for word in _split_words(text) if sum(map(str.isalnum, word)) > 1)
            # modules are named with points between them, as in 'helpers.read'
            texts = self.named(text) | self.named(text.replace(".", " ")) | self.matched(output)
            self._cache[name] = observed, texts
        return self._cache[name][1]


def _read_content(file: Path, size: int) -> str:
    """Return the text of a file; empty if it is large or not text."""
    if size > _MOST_SEARCHED:
        return ""
    try:
        return read_user_file(file).decode()
    except (OSError, UnicodeDecodeError):
        return ""


def look(path: Path) -> FileFingerprint:
    """Return the fingerprint of a file or folder without reading its content; OSError if it is
    missing."""
    return FileFingerprint(*size_and_mtime(path))


def is_same(was: FileFingerprint, now: Path | FileFingerprint, files: ReadsFiles) -> bool:
    """Return whether a file has the same content as it had; it is read only where its size or time
    of change differ. OSError if it is missing, or cannot be read."""
    if isinstance(now, FileFingerprint):
        return was.same(now)
    unread = not now.is_dir() and look(now) == replace(was, digest="")
    return unread or was.same(traces({str(now): now}, files)[str(now)])


def traces(paths: Mapping[str, Path], files: ReadsFiles) -> dict[str, FileFingerprint]:
    """Return the fingerprints of files and folders with digests, read in another process; OSError
    if one is missing, or cannot be read."""
    answers = files.read([str(path) for path in paths.values()], folders=True)
    result = {}
    for name, path in paths.items():
        answer = answers[str(path)]
        if not isinstance(answer, tuple):
            raise OSError(f"'{path}' {answer or 'does not exist'}")
        result[name] = FileFingerprint(*answer)
    return result


def states_of(paths: Mapping[str, Path]) -> dict[str, FileState]:
    """Return the current state of files that count for a task; OSError if one is missing."""
    return {name: (path, *size_and_mtime(path)) for name, path in paths.items()}


def compute_fingerprints(
    was: Mapping[str, FileState], files: ReadsFiles
) -> dict[str, FileFingerprint]:
    """Return their fingerprints with digests; OSError if any has changed since, or cannot be
    read."""
    result = traces({name: path for name, (path, *_) in was.items()}, files)
    for name, (path, *state) in was.items():
        if state != [result[name].size, result[name].changed_ns]:
            raise OSError(f"'{path}' was changed in the meantime")
    return result


def append_record(folder: Path, completed: CompletedTask) -> None:
    """Append a record to :data:`RECORDS` of a run's folder. OSError where that fails."""
    stored = {
        "key": completed.key,
        "beside": completed.siblings,
        "recipe": completed.recipe,
        "run": completed.run,
        "reads": _convert_to_lists(completed.reads),
        "outputs": _convert_to_lists(completed.outputs),
    }
    # not durable: a lost record costs only that the task runs again
    with RecordFile(folder / RECORDS, LISTED_LINES, durable=False) as records:
        # the first line break ends a line that a crash has cut off
        records.append(f"\n{json.dumps(stored)}".encode())


def _convert_to_lists(traces: Mapping[str, FileFingerprint]) -> dict[str, list[object]]:
    return {name: [trace.size, trace.changed_ns, trace.digest] for name, trace in traces.items()}


def records_in(folder: Path) -> dict[TaskKey, CompletedTask]:
    """Return the newest record of each task in a run's folder; unreadable lines are ignored."""
    completed: dict[TaskKey, CompletedTask] = {}
    for stored in _read_records(folder):
        try:
            traces = {
                what: {name: FileFingerprint(*item) for name, item in stored[what].items()}
                for what in ("reads", "outputs")
            }
            workflow, task = stored["key"]
            created = CompletedTask(
                key=(workflow, task),
                siblings=stored["beside"],
                recipe=stored["recipe"],
                run=stored["run"],
                **traces,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        completed[created.key] = created
    return completed


def _read_records(folder: Path) -> Iterator[Any]:
    with suppress(OSError):
        yield from read_json_lines(folder / RECORDS)


def link_file(source: Path | str, target: Path | str) -> None:
    """Create a hard link, or a copy if that is not possible."""
    with suppress(OSError):
        os.link(source, target, follow_symlinks=False)
        return
    if Path(source).is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)
    else:
        copy_user_file(source, target)

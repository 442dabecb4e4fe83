"""The installation of Slurm's commands: one program, written once and linked for each of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vgrads.kernel.errors import InputError
from vgrads.slurm import program

MARKER = "# vgrads-slurm-command: written by vgrads slurm install; do not edit"
"""The second line of the program, by which an installed one is recognised."""
_LONGEST_SHEBANG = 127
_CONSTANTS = {"ADDRESS": '""', "TOKEN_FILE": '""', "START: tuple[str, ...]": "()"}


def program_text(
    interpreter: str, address: str, token_file: str = "", start: Sequence[str] = ()
) -> str:
    """Return the program with its first line and its constants.

    Raises InputError where the interpreter cannot stand in a first line.
    """
    first = f"#!{interpreter} -IS"
    if not Path(interpreter).is_absolute() or len(first.encode()) > _LONGEST_SHEBANG:
        raise InputError(
            f"'{interpreter}' cannot begin a program",
            where="interpreter",
            fix=f"use an absolute path of less than {_LONGEST_SHEBANG - 6} bytes",
        )
    if any(letter.isspace() for letter in interpreter):
        raise InputError(f"'{interpreter}' has spaces", where="interpreter", fix="use a link")
    text = Path(program.__file__).read_text(encoding="utf-8")
    values = {
        "ADDRESS": repr(address),
        "TOKEN_FILE": repr(token_file),
        "START: tuple[str, ...]": repr(tuple(start)),
    }
    for name, empty in _CONSTANTS.items():
        line = f"\n{name} = {empty}\n"
        # a constant that was renamed in the program must not stay without its value
        assert line in text, name
        text = text.replace(line, f"\n{name} = {values[name]}\n", 1)
    return f"{first}\n{MARKER}\n{text}"


def is_ours(path: Path) -> bool:
    """Whether a file is a program that an installation wrote."""
    try:
        with path.open("rb") as file:
            head = file.read(1024).split(b"\n")
    except OSError:
        return False
    return len(head) > 1 and head[1] == MARKER.encode()


def install(
    folder: Path,
    interpreter: str,
    address: str,
    *,
    token_file: str = "",
    start: Sequence[str] = (),
) -> list[Path]:
    """Write the eight commands into a folder, which is made, and return their paths.

    ``address`` is the path of the service's socket or ``http://host:port``, ``start`` the command
    that starts a private service. Programs of an earlier installation are replaced; where the
    folder has others of these names, or cannot be written, InputError is raised and nothing
    changes.
    """
    text = program_text(interpreter, address, token_file, start)
    paths = [folder / name for name in program.COMMANDS]
    # the commands of a real Slurm must not be replaced
    foreign = [path.name for path in paths if _exists(path) and not is_ours(path)]
    if foreign:
        raise InputError(
            f"has programs that vgrads did not write: {', '.join(foreign)}",
            where=str(folder),
            fix="choose another folder",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".vgrads-slurm-{os.getpid()}"
        try:
            draft.write_text(text, encoding="utf-8", errors="surrogateescape")
            draft.chmod(0o755)
            for path in paths:
                _link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=str(folder), fix="choose another folder"
        ) from error
    return paths


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _link(draft: Path, path: Path) -> None:
    """Put the draft's content at a path at once: a link, or a copy where links do not work."""
    step = path.with_name(f"{draft.name}-{path.name}")
    try:
        try:
            step.hardlink_to(draft)
        except OSError:
            step.write_bytes(draft.read_bytes())
            step.chmod(0o755)
        step.replace(path)
    finally:
        step.unlink(missing_ok=True)

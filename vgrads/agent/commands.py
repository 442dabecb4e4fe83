"""Commands as the words of a process: without a shell where none is needed, in parts where they are
long.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import re
import shlex

SHELL = "/bin/sh"
_SIGNS = re.compile(r"[\\|&;<>()$`*?\[\]#~{}!^\x00-\x08\x0a-\x1f\x7f]")
"""What a shell may take for more than a letter, wherever it stands."""
_OF_THE_SHELL = frozenset(
    [
        ".",
        ":",
        "[",
        "alias",
        "bg",
        "break",
        "case",
        "cd",
        "command",
        "continue",
        "do",
        "done",
        "echo",
        "elif",
        "else",
        "esac",
        "eval",
        "exec",
        "exit",
        "export",
        "fc",
        "fg",
        "fi",
        "for",
        "function",
        "getopts",
        "hash",
        "if",
        "in",
        "jobs",
        "kill",
        "local",
        "printf",
        "pwd",
        "read",
        "readonly",
        "return",
        "select",
        "set",
        "shift",
        "source",
        "test",
        "then",
        "time",
        "times",
        "trap",
        "type",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
    ]
)
_PART = 32_000
"""Characters of an argument at most: the system takes 128 KiB (MAX_ARG_STRLEN), and a character has
up to four bytes."""
JOINED = 'IFS=; eval "unset IFS; set --\n$*"'
"""Runs a command that comes in parts: its arguments."""


def words_of(command: str) -> list[str]:
    """The words of a command that means the same without a shell; empty where it needs one."""
    if _SIGNS.search(command):
        return []
    try:
        words = shlex.split(command) if "'" in command or '"' in command else _blanks(command)
    except ValueError:  # the shell says what is wrong with the quotes
        return []
    return [] if not words or words[0] in _OF_THE_SHELL or "=" in words[0] else words


def parts_of(command: str) -> list[str]:
    """A command as arguments none of which is too long for the system."""
    return [command[at : at + _PART] for at in range(0, len(command), _PART)] or [""]


def shell_words(command: str) -> list[str]:
    """The words that have a shell run a command, however long it is."""
    parts = parts_of(command)
    return [SHELL, "-c", command] if len(parts) == 1 else [SHELL, "-c", JOINED, SHELL, *parts]


def too_long(error: OSError, command: str) -> OSError:
    """An error of beginning a process, in words where the command was too long."""
    if error.errno != errno.E2BIG:
        return error
    kib = len(os.fsencode(command)) // 1024
    return OSError(
        f"its command ({kib} KiB) and environment are longer than the system takes: put it "
        "into a script, an input of the task"
    )


def _blanks(command: str) -> list[str]:
    """Split at what a shell splits at: other blanks of Unicode belong to words."""
    return [word for part in command.split(" ") for word in part.split("\t") if word]

"""Commands as arguments of a process: without a shell where none is needed, in parts where they are
long.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import re
import shlex

SHELL = "/bin/sh"
_SIGNS = re.compile(r"[\\|&;<>()$`*?\[\]#~{}!^\x00-\x08\x0a-\x1f\x7f]")
"""Characters with a special meaning to a shell in any position."""
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
"""Maximum length of an argument in characters: the system accepts 128 KiB (MAX_ARG_STRLEN), and a
character has up to four bytes."""
JOINED = 'IFS=; eval "unset IFS; set --\n$*"'
"""Shell code that runs a command passed in parts as its arguments."""


def words_of(command: str) -> list[str]:
    """Return the words of a command that has the same meaning without a shell; empty where it needs
    one."""
    if _SIGNS.search(command):
        return []
    try:
        words = (
            shlex.split(command) if "'" in command or '"' in command else _split_at_blanks(command)
        )
    except ValueError:  # the shell reports the error in the quotes
        return []
    return [] if not words or words[0] in _OF_THE_SHELL or "=" in words[0] else words


def parts_of(command: str) -> list[str]:
    """Split a command into arguments that fit the system's limit."""
    return [command[at : at + _PART] for at in range(0, len(command), _PART)] or [""]


def shell_words(command: str) -> list[str]:
    """Return the argument list with which a shell runs a command of any length."""
    parts = parts_of(command)
    return [SHELL, "-c", command] if len(parts) == 1 else [SHELL, "-c", JOINED, SHELL, *parts]


def too_long(error: OSError, command: str) -> OSError:
    """Return the message of an error at process start; explains commands that are too long."""
    if error.errno != errno.E2BIG:
        return error
    kib = len(os.fsencode(command)) // 1024
    return OSError(
        f"its command ({kib} KiB) and environment are longer than the system allows: put it "
        "into a script, an input of the task"
    )


def _split_at_blanks(command: str) -> list[str]:
    """Split at the shell's blanks: other Unicode blanks belong to words."""
    return [word for part in command.split(" ") for word in part.split("\t") if word]

"""Batch scripts: their first line, and the options in their ``#SBATCH`` lines.

Source: sbatch(1). Quotes, backslashes and comments are read as Slurm reads them: no space is
needed after ``#SBATCH``, an unquoted ``#`` begins a comment, and only lines before the first
command count.
"""

from __future__ import annotations

from vgrads.slurm.errors import SlurmError, command_error

_MAGIC = "#SBATCH"


def wrapped(command: str) -> str:
    """Return the script of ``--wrap``."""
    return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"


def check_script(script: str) -> None:
    """Raise SlurmError where a script is not one."""
    if not script:
        raise command_error("sbatch", "Batch script is empty!")
    if not script.strip():
        raise command_error("sbatch", "Batch script contains only whitespace!")
    if not script.startswith("#!"):
        raise command_error(
            "sbatch",
            "This does not look like a batch script.  The first",
            "line must start with #! followed by the path to an interpreter.",
            "For instance: #!/bin/sh",
        )
    if "\r\n" in script:
        raise command_error(
            "sbatch",
            "Batch script contains DOS line breaks (\\r\\n)",
            "instead of expected UNIX line breaks (\\n).",
        )
    if "\0" in script:
        raise command_error(
            "sbatch",
            "The Slurm controller does not allow scripts that",
            "contain a NULL character '\\0'.",
        )


def script_lines(script: str, name: str) -> list[list[str]]:
    """Return the words of each ``#SBATCH`` line before the first command.

    Raises SlurmError where a quote is not closed; ``name`` is the script's.
    """
    result = []
    for number, line in enumerate(script.split("\n"), 1):
        if line.startswith(_MAGIC):
            result.append(_split_words(line[len(_MAGIC) :], f"{name}: line {number}"))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return result


def _split_words(text: str, where: str) -> list[str]:
    words: list[str] = []
    word: str | None = None
    quote, escaped = "", False
    start = 0
    for position, letter in enumerate(text):
        if escaped:
            word, escaped = (word or "") + letter, False
        elif letter == "\\":
            word, escaped = word or "", True
        elif quote:
            word, quote = (
                (word or "") + (letter if letter != quote else ""),
                ("" if letter == quote else quote),
            )
        elif letter in "'\"":
            word, quote = word or "", letter
        elif letter == "#":
            break
        elif letter.isspace():
            if word is not None:
                words, word, start = [*words, word], None, position
        else:
            word = (word or "") + letter
    if quote:
        rest = text[start:] if words else text.lstrip()
        raise SlurmError(f"sbatch: fatal: {where}: Unmatched `{quote}` in [{rest}]")
    return words + ([] if word is None else [word])

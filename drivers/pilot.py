"""The script that a slot runs, the same at every batch site, and the marks that it writes.

All external values are quoted once, here. The script records when the slot is ready and how it
ended, in a file named after the slot, so the end is known even if the batch system has forgotten
the job. It enforces the slot's own time limit, because batch systems round theirs (Slurm: to
minutes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.drivers.api import SlotSpec, SlotState, mark
from vgrads.drivers.every_node import KEY, READ_KEY, Launch, alone
from vgrads.drivers.shell import here_document, quote

TIMED_OUT = 124
"""Exit status of ``timeout`` at the time limit."""
CANNOT_WORK = 69
"""Exit status of a pilot that can never work at this site: no Python there, or a too old one."""
MARKS = "--vgrads-marks--"
_RETENTION_DAYS = 30
_NO_WORDS = "^$|^srun: error: .*: Exited with exit code [0-9]+$"
"""Lines that are not output of the pilot: ``srun`` repeats the pilot's exit status, before or after
its output."""

_TEMPLATE = """\
#!/bin/sh
# A slot of vgrads.
{exports}
D={folder}
mkdir -p "$D" || exit 1
cd "$D" || exit 1
# A slot that has run: a repeated job has nothing to do.
( set -C; : >{name}.state ) 2>/dev/null || exit 0
find . -name 'vg-*' -mtime +{retention_days} -exec rm -f {{}} + 2>/dev/null
echo ready >>{name}.state
{prepare}( cd "$HOME" && exec timeout -k 10 {seconds} {words} ) >{name}.out 2>&1 {input}
code=$?
{tidy}said=$(tail -n 40 {name}.out | tr -d '\\000' | LC_ALL=C grep -Ev {no_words} |
  tail -n 1 | cut -c 1-300)
printf 'end %s %s\\n' "$code" "$said" >>{name}.state
exit $code
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """Records of a slot's script: ready, and the exit status and last line of output at its end."""

    ready: bool = False
    code: int | None = None
    message: str = ""

    @property
    def permanent(self) -> bool:
        """True if every pilot would end in this way."""
        return self.code == CANNOT_WORK

    @property
    def outcome(self) -> tuple[SlotState, str] | None:
        """Return the terminal state of the slot and its reason; None before its end."""
        if self.code is None:
            return None
        if self.code == TIMED_OUT:
            return SlotState.EXPIRED, "reached its end"
        if self.permanent:
            fix = "set access.python to an interpreter of Python 3.8 or newer there"
            return SlotState.FAILED, f"no pilot can run there: {self.message} ({fix})"
        if self.code == 0:
            return SlotState.RELEASED, "the pilot ended"
        return (
            SlotState.FAILED,
            f"the pilot ended with exit code {self.code}: {self.message}".rstrip(": "),
        )


def write_slot_script(spec: SlotSpec, folder: str, launch: Launch | None = None) -> str:
    """Return the script of a slot for the batch system; ``launch``: how its pilot starts there."""
    # timeout takes 0 as no limit
    seconds = max(1, round(spec.duration_s))
    # without a pilot: longer than the slot, so that the slot's own limit ends it
    launch = launch or alone(
        write_pilot_command(spec) if spec.pilot else f"exec sleep {seconds + 60}"
    )
    key = spec.environment.get(KEY)
    return _TEMPLATE.format(
        exports=write_exports(spec),
        input=here_document("", key).strip() if key and not launch.key_file else "</dev/null",
        folder=folder_word(folder),
        name=mark(spec.id),
        seconds=seconds,
        retention_days=_RETENTION_DAYS,
        no_words=quote(_NO_WORDS),
        prepare=launch.prepare,
        words=launch.words,
        tidy=launch.tidy,
    )


def write_pilot_command(spec: SlotSpec) -> str:
    """Return the command of the slot's pilot, which first reads the key from standard input."""
    return READ_KEY + spec.pilot if spec.pilot and KEY in spec.environment else spec.pilot or ""


def write_exports(spec: SlotSpec) -> str:
    """Return lines that export the slot's environment, without its key; ValueError for a name that
    no shell accepts."""
    environment = {**spec.environment, "VGRADS_SLOT": spec.id, "VGRADS_PROCS": str(spec.procs)}
    # the slot reads the key itself: environments of processes are readable (KEY)
    environment.pop(KEY, None)
    for key in environment:
        if not key.isidentifier() or not key.isascii():
            raise ValueError(f"not a valid name of an environment variable: {key!r}")
    return "\n".join(f"export {key}={quote(value)}" for key, value in environment.items())


def folder_word(folder: str) -> str:
    """Return the folder of the marks as a word of a script."""
    return quote(folder) if folder else '"$HOME/.vgrads/slots"'


def write_marks_command(folder: str, names: Sequence[str]) -> str:
    """Return a command that prints the marks of these slots, after a separator line."""
    files = " ".join(f"{name}.state" for name in names)
    read = f"cd {folder_word(folder)} 2>/dev/null && grep -H . {files} /dev/null 2>/dev/null"
    return f"echo {MARKS}\n( {read} )\ntrue\n" if names else f"echo {MARKS}\n"


def parse_marks(text: str) -> dict[str, Mark]:
    """Parse the marks by the slots' names at the site."""
    marks: dict[str, Mark] = {}
    for line in text.splitlines():
        name, _, note = line.partition(".state:")
        if note == "ready":
            marks.setdefault(name, Mark(ready=True))
        elif note.startswith("end "):
            code, _, message = note.removeprefix("end ").partition(" ")
            # a mark without a number was not written whole
            marks[name] = Mark(ready=True, code=int(code) if code.isdigit() else 1, message=message)
    return marks

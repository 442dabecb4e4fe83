"""The script that a slot runs, the same at every batch site, and the marks that it leaves.

Everything that comes from outside is quoted once, here. The script notes when the slot is ready and
how it ended, in a file named after the slot; so the end is known even where the batch system has
forgotten the job. It keeps the slot's own time limit, for batch systems round theirs (Slurm: to
minutes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.drivers.api import SlotSpec, SlotState, mark
from vgrads.drivers.every_node import Launch, alone
from vgrads.drivers.shell import quote

TIMED_OUT = 124
"""The exit status of ``timeout`` when the time is up."""
CANNOT_WORK = 69
"""The exit status of a pilot that can never work where it is: no Python there, or none that has
vgrads."""
MARKS = "--vgrads-marks--"
_KEPT_DAYS = 30
_NO_WORDS = "^$|^srun: error: .*: Exited with exit code [0-9]+$"
"""Lines that are nobody's last words: ``srun`` repeats the pilot's exit status, before or after
what it said."""

_TEMPLATE = """\
#!/bin/sh
# A slot of vgrads.
{exports}
D={folder}
mkdir -p "$D" || exit 1
cd "$D" || exit 1
# A slot that has run: a repeated job has nothing to do.
( set -C; : >{name}.state ) 2>/dev/null || exit 0
find . -name 'vg-*' -mtime +{kept_days} -exec rm -f {{}} + 2>/dev/null
echo ready >>{name}.state
{prepare}( cd "$HOME" && exec timeout -k 10 {seconds} {words} ) >{name}.out 2>&1 </dev/null
code=$?
{tidy}said=$(tail -n 40 {name}.out | tr -d '\\000' | LC_ALL=C grep -Ev {no_words} |
  tail -n 1 | cut -c 1-300)
printf 'end %s %s\\n' "$code" "$said" >>{name}.state
exit $code
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a slot's script has noted: ready, and with which status and last words it ended."""

    ready: bool = False
    code: int | None = None
    said: str = ""

    @property
    def permanent(self) -> bool:
        """True where every pilot would end so."""
        return self.code == CANNOT_WORK

    @property
    def outcome(self) -> tuple[SlotState, str] | None:
        """The end of the slot in our terms; None while there is none."""
        if self.code is None:
            return None
        if self.code == TIMED_OUT:
            return SlotState.EXPIRED, "reached its end"
        if self.permanent:
            fix = "access.python names an interpreter there that has vgrads"
            return SlotState.FAILED, f"no pilot can work there: {self.said} ({fix})"
        if self.code == 0:
            return SlotState.RELEASED, "the pilot ended"
        return SlotState.FAILED, f"the pilot ended with exit code {self.code}: {self.said}".rstrip(
            ": "
        )


def slot_script(spec: SlotSpec, folder: str, launch: Launch | None = None) -> str:
    """The script of a slot, as it is handed to the batch system; ``launch``: how its pilot starts
    there."""
    exports = environment_exports(spec)
    seconds = max(1, round(spec.duration_s))
    launch = launch or alone(spec.pilot or f"exec sleep {seconds + 60}")
    return _TEMPLATE.format(
        exports=exports,
        folder=folder_word(folder),
        name=mark(spec.id),
        seconds=seconds,
        kept_days=_KEPT_DAYS,
        no_words=quote(_NO_WORDS),
        prepare=launch.prepare,
        words=launch.words,
        tidy=launch.tidy,
    )


def environment_exports(spec: SlotSpec) -> str:
    """Lines that export the slot's environment; ValueError for a name that no shell takes."""
    environment = {**spec.environment, "VGRADS_SLOT": spec.id, "VGRADS_PROCS": str(spec.procs)}
    for key in environment:
        if not key.isidentifier() or not key.isascii():
            raise ValueError(f"no name of an environment variable: {key!r}")
    return "\n".join(f"export {key}={quote(value)}" for key, value in environment.items())


def folder_word(folder: str) -> str:
    """The folder of the marks as a word of a script."""
    return quote(folder) if folder else '"$HOME/.vgrads/slots"'


def marks_command(folder: str, names: Sequence[str]) -> str:
    """Print the marks of these slots, after a line that tells them from what came before."""
    files = " ".join(f"{name}.state" for name in names)
    read = f"cd {folder_word(folder)} 2>/dev/null && grep -H . {files} /dev/null 2>/dev/null"
    return f"echo {MARKS}\n( {read} )\ntrue\n" if names else f"echo {MARKS}\n"


def parse_marks(text: str) -> dict[str, Mark]:
    """Marks by the slot's name at the site."""
    found: dict[str, Mark] = {}
    for line in text.splitlines():
        name, _, note = line.partition(".state:")
        if note == "ready":
            found.setdefault(name, Mark(ready=True))
        elif note.startswith("end "):
            code, _, said = note.removeprefix("end ").partition(" ")
            found[name] = Mark(ready=True, code=int(code) if code.isdigit() else 1, said=said)
    return found

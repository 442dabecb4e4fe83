"""What a command of Slurm answers: text for both outputs and an exit status."""

from __future__ import annotations

from dataclasses import dataclass

from vgrads.kernel.errors import VgradsError


@dataclass(frozen=True)
class Reply:
    """Standard output, standard error and exit status of a command."""

    out: str = ""
    err: str = ""
    code: int = 0


class SlurmError(VgradsError):
    """A command was refused; the message is its standard error, without the last newline."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = code

    @property
    def reply(self) -> Reply:
        """The answer of the command."""
        return Reply("", f"{self.what}\n", self.exit_code)


def command_error(program: str, *messages: str, code: int = 1) -> SlurmError:
    """Return an error whose lines each begin with ``PROGRAM: error: ``."""
    return SlurmError("\n".join(f"{program}: error: {line}" for line in messages), code)

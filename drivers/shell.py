"""Shell scripts at a site: on this machine, or on the site's login node over SSH.

A call is one script on the standard input of one ``sh``, so local and remote sites are quoted
alike. It uses the OpenSSH client with its keys, agents, jump hosts and ``~/.ssh/config``; calls
share one connection and never prompt for a password.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vgrads.agent.environment import is_secret
from vgrads.drivers.api import SiteAccess
from vgrads.kernel.errors import SiteError

NO_SUCH_COMMAND = 127
_SSH_FAILED = 255


@dataclass(frozen=True, slots=True)
class Output:
    """Exit status and output of a script."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """The error message, on one line."""
        return " ".join((self.err.strip() or self.out.strip()).split())[:400]


class Shell:
    """Runs scripts at one site; every call ends within its timeout."""

    def __init__(self, site: str, access: SiteAccess | None = None) -> None:
        access = access or SiteAccess()
        self.site, self.host, self.timeout_s = site, access.host, access.timeout_s
        self._ssh_options = access.ssh_options

    def run(self, script: str, timeout_s: float | None = None) -> Output:
        """Run a script and return its output; SiteError (transient) if no answer arrived in time.

        Output goes to files, not pipes: a connection that OpenSSH keeps open for the next call must
        not block this one.
        """
        limit_s = timeout_s or self.timeout_s
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                self._argv(),
                env=_remove_secrets(),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                # a group of its own, which can be killed with all children
                start_new_session=True,
            )
            try:
                process.communicate(script.encode(), timeout=limit_s)
            except subprocess.TimeoutExpired as error:
                raise SiteError(
                    f"no answer within {limit_s:g} s",
                    site=self.site,
                    transient=True,
                    fix="the request is repeated later; access.timeout sets the limit",
                ) from error
            finally:
                _kill(process)
            out.seek(0)
            err.seek(0)
            answer = Output(process.returncode, _decode_text(out.read()), _decode_text(err.read()))
        return self._reached(answer)

    def command(self, script: str, timeout_s: float | None = None) -> Output:
        """Run a script as :meth:`run` does; SiteError if the site has no such command."""
        answer = self.run(script, timeout_s)
        if answer.code == NO_SUCH_COMMAND:
            place = f"on {self.host}" if self.host else "on this machine"
            raise SiteError(
                f"a command is missing {place}: {answer.text}",
                site=self.site,
                transient=False,
                fix="set access.host to the login node that has it",
            )
        return answer

    def _argv(self) -> list[str]:
        if not self.host:
            return ["/bin/sh", "-s"]
        options = {
            "BatchMode": "yes",
            # a dead host is noticed while there is time left for the script
            "ConnectTimeout": str(max(1, int(self.timeout_s // 2))),
            "ControlMaster": "auto",
            # a hash, since the path of a Unix socket has 107 bytes at most (unix(7))
            "ControlPath": str(_find_control_folder() / "%C"),
            "ControlPersist": "120",
            "ServerAliveInterval": "15",
        }
        flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
        return ["ssh", *flags, *self._ssh_options, "--", self.host, "/bin/sh -s"]

    def _reached(self, answer: Output) -> Output:
        if self.host and answer.code == _SSH_FAILED:
            refused = "Permission denied" in answer.err or "verification failed" in answer.err
            raise SiteError(
                f"ssh {self.host}: {answer.text or 'failed'}",
                site=self.site,
                transient=not refused,
                fix=f"try 'ssh -o BatchMode=yes {self.host} true' by hand" if refused else "",
            )
        return answer


def quote(value: str) -> str:
    """Quote a value as one word of a shell script; SiteError for characters that no shell can
    pass."""
    if "\0" in value:
        raise SiteError(
            "a word of a command contains a NUL character", site="shell", transient=False
        )
    return shlex.quote(value)


def here_document(command: str, body: str) -> str:
    """Return a command that reads ``body`` from its standard input."""
    end = "VGRADS-END"
    while end in body:
        end += "-"
    return f"{command} <<'{end}'\n{body.rstrip(chr(10))}\n{end}\n"


def _decode_text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _remove_secrets() -> dict[str, str]:
    """Return the environment for commands of batch systems: jobs may inherit it. Slurm's own token
    is kept."""
    return {n: v for n, v in os.environ.items() if n == "SLURM_JWT" or not is_secret(n)}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a running call with all its children; a finished one is left alone."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _find_control_folder() -> Path:
    """Return the folder for the sockets of shared connections: a short path, closed to other
    users."""
    folder = Path(tempfile.gettempdir()) / f"vgrads-ssh-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # the folder for temporary files is shared: another user could have created this one
    if folder.stat().st_uid != os.getuid():
        raise SiteError(f"{folder} belongs to another user", site="ssh", transient=False)
    return folder

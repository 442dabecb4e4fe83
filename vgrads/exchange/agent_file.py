"""The agent as one file, and as one command: nodes need a Python and nothing of vgrads."""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
from functools import cache
from pathlib import Path

from vgrads import agent

_AGENT = Path(agent.__file__).parent
_ROOT = "vgrads_agent"
"""Package inside the zip file: its own name, so that a node with vgrads installed imports nothing
of that."""
_SHIPPED = (
    "__init__",
    "answers",
    "bags",
    "commands",
    "containers",
    "descriptors",
    "environment",
    "events",
    "launcher",
    "lifetime",
    "link",
    "machine",
    "main",
    "marks",
    "outbox",
    "parent_job",
    "processes",
    "scratch",
    "session",
    "spawner",
    "store",
    "streams",
    "tasks",
    "transfers",
)
_MAIN = f"from {_ROOT}.main import main\n\nmain()\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same bytes at every build
_UNPACK = """\
import sys
if sys.version_info < (3, 8):
    sys.stderr.write("vgrads: no Python 3.8 or newer here: %s is older\\n" % sys.executable)
    sys.exit(69)
sys.path = [folder for folder in sys.path if folder]  # nothing of the working folder
import base64, os, tempfile
number, name = tempfile.mkstemp(".pyz", "vgrads-")
os.unlink(name)
with os.fdopen(os.dup(number), "wb") as file:
    file.write(base64.b64decode(sys.argv[1]))
os.set_inheritable(number, True)
os.environ["VGRADS_AGENT_FILE"] = str(number)
key = os.environ.pop("VGRADS_HOST_KEY", "")
if key:  # in a pipe: /proc shows the environment of the next program to the tasks
    read_end, write_end = os.pipe()
    os.write(write_end, key.encode())
    os.set_inheritable(read_end, True)
    os.environ["VGRADS_KEY_FD"] = str(read_end)
words = [sys.executable, "-I", "-X", "vgrads-agent", "/proc/self/fd/%d" % number]
os.execv(sys.executable, words)  # the option only shows what runs
"""


@cache
def agent_file() -> bytes:
    """Return the agent as a zip file that Python runs (PEP 441)."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        texts = {f"{_ROOT}/{name}.py": (_AGENT / f"{name}.py").read_bytes() for name in _SHIPPED}
        for name, text in {"__main__.py": _MAIN.encode(), **texts}.items():
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), text, zipfile.ZIP_DEFLATED)
    return body.getvalue()


def pilot_command(*pythons: str) -> str:
    """Return a command of a POSIX shell that starts the agent, configured by the environment that
    :mod:`vgrads.agent.main` describes; ``pythons``: interpreters, the first that exists is used.

    It exits with status 69 where there is none, or one older than 3.8; the unpacked file has no
    name, so nothing is left of it.
    """
    names = pythons or ("python3",)
    missing = shlex.quote(f"vgrads: no {' or '.join(names)} here")
    packed = base64.b64encode(agent_file()).decode()
    return (
        f"for python in {shlex.join(names)}; do\n"
        '  command -v "$python" >/dev/null 2>&1 && break\n'
        "  python=\n"
        "done\n"
        f'[ "$python" ] || {{ echo {missing} >&2; exit 69; }}\n'
        f'exec "$python" -Es -c {shlex.quote(_UNPACK)} {packed}'
    )

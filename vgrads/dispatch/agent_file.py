"""The host's agent as one file, and as one command: hosts need a Python and nothing of ours."""

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
"""The package inside the zip: a name of its own, so that a node that has vgrads too takes nothing
of it."""
_SHIPPED = (
    "__init__",
    "bags",
    "commands",
    "descriptors",
    "environment",
    "events",
    "launcher",
    "lifetime",
    "link",
    "machine",
    "main",
    "news",
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
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is made
_UNPACK = """\
import sys
if sys.version_info < (3, 8):
    sys.stderr.write("vgrads: no Python 3.8 or newer here: %s is older\\n" % sys.executable)
    sys.exit(69)
sys.path = [folder for folder in sys.path if folder]  # nothing of the working folder
import base64, os, tempfile
number, name = tempfile.mkstemp(".pyz", "vgrads-")
with os.fdopen(number, "wb") as file:
    file.write(base64.b64decode(sys.argv[1]))
os.environ["VGRADS_AGENT_FILE"] = name
os.execv(sys.executable, [sys.executable, "-I", name])
"""


@cache
def agent_file() -> bytes:
    """The agent as a zip file that Python runs (PEP 441)."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        texts = {f"{_ROOT}/{name}.py": (_AGENT / f"{name}.py").read_bytes() for name in _SHIPPED}
        for name, text in {"__main__.py": _MAIN.encode(), **texts}.items():
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), text, zipfile.ZIP_DEFLATED)
    return body.getvalue()


def pilot_command(python: str = "python3") -> str:
    """A command of a POSIX shell that becomes the agent, told by its environment as
    :mod:`vgrads.agent.main` says.

    It ends with status 69 where there is no such Python, or one older than 3.8; the file that it
    unpacks is removed as soon as the agent has been read from it.
    """
    name = shlex.quote(python)
    missing = shlex.quote(f"vgrads: no {python} here")
    packed = base64.b64encode(agent_file()).decode()
    return (
        f"command -v {name} >/dev/null 2>&1 || {{ echo {missing} >&2; exit 69; }}\n"
        f"exec {name} -Es -c {shlex.quote(_UNPACK)} {packed}"
    )

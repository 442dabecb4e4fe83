"""The host's agent as one file, and as one command: hosts need a Python and nothing of ours."""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_SHIPPED = (
    "dispatch/__init__.py",
    "dispatch/agent_link.py",
    "dispatch/agent_place.py",
    "dispatch/agent_scratch.py",
    "dispatch/agent_store.py",
    "dispatch/agent_talk.py",
    "dispatch/agent_tasks.py",
    "dispatch/host_agent.py",
    "execmgr/__init__.py",
    "execmgr/spawner.py",
    "kernel/__init__.py",
    "kernel/environment.py",
)
_MAIN = "from dispatch.host_agent import main\n\nmain()\n"
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
        for name, text in [("__main__.py", _MAIN.encode())] + [
            (one, (_ROOT / one).read_bytes()) for one in _SHIPPED
        ]:
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), text, zipfile.ZIP_DEFLATED)
    return body.getvalue()


def pilot_command(python: str = "python3") -> str:
    """A command of a POSIX shell that becomes the agent, told by its environment as :mod:`dispatch.host_agent` says.

    It ends with status 69 where there is no such Python, or one older than 3.8; the file that it unpacks is removed
    as soon as the agent has been read from it.
    """
    name = shlex.quote(python)
    missing = shlex.quote(f"vgrads: no {python} here")
    packed = base64.b64encode(agent_file()).decode()
    return (
        f"command -v {name} >/dev/null 2>&1 || {{ echo {missing} >&2; exit 69; }}\n"
        f"exec {name} -Es -c {shlex.quote(_UNPACK)} {packed}"
    )

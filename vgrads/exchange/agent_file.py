"""The agent as one file, and as one command: nodes need a Python and nothing of vgrads."""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
import sys
import zipfile
from collections.abc import Sequence
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
    "attempts",
    "bags",
    "commands",
    "containers",
    "descriptors",
    "environment",
    "events",
    "functions/__init__",
    "functions/calls",
    "functions/interpreters",
    "functions/packing",
    "launcher",
    "lifetime",
    "limits",
    "link",
    "machine",
    "main",
    "marks",
    "outbox",
    "parent_job",
    "processes",
    "scratch",
    "session",
    "settings",
    "spawner",
    "store",
    "streams",
    "tasks",
    "tcp",
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
"""
_BODY = "body = base64.b64decode(sys.argv[1])\n"
_FETCH = """\
import hashlib, http.client, ssl, time, urllib.parse
def fetch(contact):
    address = urllib.parse.urlsplit(contact)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False  # the certificate is pinned: its key proves the manager
    tls.load_verify_locations(cadata=os.environ["VGRADS_CERT"])
    tls.verify_flags |= 0x80000  # X509_V_FLAG_PARTIAL_CHAIN
    to = (address.hostname, address.port)
    proxy = os.environ.get("VGRADS_PROXY", os.environ.get("https_proxy", ""))
    if proxy:
        through = urllib.parse.urlsplit(proxy if "//" in proxy else "//" + proxy)
        line = http.client.HTTPSConnection(through.hostname, through.port, timeout=30, context=tls)
        line.set_tunnel(*to)
    elif address.scheme == "tls":
        line = http.client.HTTPSConnection(*to, timeout=30, context=tls)
    else:
        line = http.client.HTTPConnection(*to, timeout=30)
    key = {"Authorization": "Bearer " + os.environ["VGRADS_HOST_KEY"]}
    line.request("GET", "/agent", headers=key)
    answer = line.getresponse()
    body = answer.read()
    if answer.status == 403:
        sys.exit("vgrads: the manager refuses the key of this slot")
    if answer.status != 200 or hashlib.sha256(body).hexdigest() != sys.argv[1]:
        raise OSError("no agent there: status %d, %d bytes" % (answer.status, len(body)))
    return body
body, pause_s, give_up_s = b"", 1.0, time.monotonic() + 900.0
while not body:
    for contact in os.environ["VGRADS_CONTACT"].split():
        try:
            body = fetch(contact)
            break
        except (OSError, http.client.HTTPException) as error:
            try:  # on a full disk the next try is still made
                print("vgrads: %s: %s" % (contact, error), file=sys.stderr, flush=True)
            except OSError:
                pass
            if time.monotonic() > give_up_s:
                sys.exit(69)
    else:
        time.sleep(pause_s)
        pause_s = min(30.0, 1.5 * pause_s)
"""
_START = """\
number, name = tempfile.mkstemp(".pyz", "vgrads-")
os.unlink(name)
with os.fdopen(os.dup(number), "wb") as file:
    file.write(body)
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


_INSTALLED = """\
import sys
sys.path.append(sys.argv[1])
from vgrads.agent.main import main
del sys.path[-1], sys.argv[1:]
main()
"""


@cache
def build_agent_file() -> bytes:
    """Return the agent as a zip file that Python runs (PEP 441)."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        texts = {f"{_ROOT}/{name}.py": (_AGENT / f"{name}.py").read_bytes() for name in _SHIPPED}
        for name, text in {"__main__.py": _MAIN.encode(), **texts}.items():
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), text, zipfile.ZIP_DEFLATED)
    return body.getvalue()


def write_agent_command(*pythons: str) -> str:
    """Return a command of a POSIX shell that starts the agent, configured by the environment that
    :mod:`vgrads.agent.main` describes; ``pythons``: interpreters, the first that exists is used.

    It exits with status 69 where there is none, or one older than 3.8; the unpacked file has no
    name, so nothing is left of it.
    """
    packed = base64.b64encode(build_agent_file()).decode()
    return _add_python(pythons, _UNPACK + _BODY + _START, packed)


def write_fetching_agent_command(*pythons: str) -> str:
    """Return the same in 3 kB, for sites that start nothing longer: it gets the agent from the
    manager's port, and runs it only if it is the expected one."""
    digest = hashlib.sha256(build_agent_file()).hexdigest()
    return _add_python(pythons, _UNPACK + _FETCH + _START, digest)


def _add_python(pythons: Sequence[str], program: str, argument: str) -> str:
    names = pythons or ("python3",)
    missing = shlex.quote(f"vgrads: no {' or '.join(names)} here")
    return (
        f"for python in {shlex.join(names)}; do\n"
        '  command -v "$python" >/dev/null 2>&1 && break\n'
        "  python=\n"
        "done\n"
        f'[ "$python" ] || {{ echo {missing} >&2; exit 69; }}\n'
        f'exec "$python" -Es -c {shlex.quote(program)} {argument}'
    )


def write_installed_agent_command() -> str:
    """Return a command of a POSIX shell that starts the agent of this installation on this machine,
    in half of the time of :func:`write_agent_command`: its modules are compiled already."""
    words = (sys.executable, "-I", "-X", "vgrads-agent", "-S", "-c", _INSTALLED)
    return (
        "key=$VGRADS_HOST_KEY\n"  # in a pipe: /proc shows the environment of the next program
        "unset VGRADS_HOST_KEY\n"
        "export VGRADS_KEY_FD=9\n"
        f"exec {shlex.join(words)} {shlex.quote(str(_AGENT.parents[1]))} 9<<END\n"
        "$key\n"
        "END\n"
    )

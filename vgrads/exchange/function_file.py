"""The program that runs functions on nodes, as one file, with the package that unpickles them."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from vgrads.agent import functions

_FUNCTIONS = Path(functions.__file__).parent
_SHIPPED = ("packing", "pickling", "runner")
SHIPPED_PACKAGE = "vgrads_functions"
_MAIN = f"import sys\n\nfrom {SHIPPED_PACKAGE}.runner import main\n\nmain(sys.argv[1:])\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same bytes at every build


@cache
def build_function_file() -> bytes:
    """Return the program as a zip file that Python runs (PEP 441)."""
    texts = {"__main__.py": _MAIN, f"{SHIPPED_PACKAGE}/__init__.py": ""}
    texts |= {
        f"{SHIPPED_PACKAGE}/{name}.py": (_FUNCTIONS / f"{name}.py").read_text() for name in _SHIPPED
    }
    pickler = find_spec("cloudpickle")  # shipped, not imported
    folder = Path(pickler.origin).parent if pickler and pickler.origin else Path()
    texts |= {f"cloudpickle/{path.name}": path.read_text() for path in folder.glob("*.py")}
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in sorted(texts.items()):
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), text, zipfile.ZIP_DEFLATED)
    return body.getvalue()


@cache
def compute_function_digest() -> str:
    """Return the SHA-256 of the program."""
    return hashlib.sha256(build_function_file()).hexdigest()

"""A home that vgrads 0.1 wrote, laid out anew: its database, the files of a run, the set's folder.

In it: ``FULFILLED``, a run of LEAD that ended; ``REPLANNED``, one that was planned anew twice;
``KILLED``, real processes whose manager was killed when both first tasks were done; ``SERVED``, a
run of the service, killed in the middle; the set of the latter, planned. It was written under
``/vgrads-fixture``.
"""

from __future__ import annotations

import io
import pickletools
import shutil
import sqlite3
import struct
import tarfile
import time
import zlib
from contextlib import closing
from pathlib import Path

FIXTURE = Path(__file__).parents[1] / "fixtures" / "home-0.1.tar.xz"
FULFILLED, REPLANNED = "run-3a1a13ebd4", "run-13c1db98a5"
KILLED, SERVED = "run-a85d4efa50", "run-26ca5748a8"
SERVED_SET = "set-fb30aa5f79"
_WRITTEN = "vgrads-fixture"
_LONG_AGO_S = 1e9


def lay_out(folder: Path, data: Path) -> Path:
    """The home as if it had been written in ``folder``; ``data``: what ships with vgrads."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder, filter="data")
    shutil.copytree(data, folder / "data")
    home = folder / "home"
    with closing(sqlite3.connect(home / "vgrads.db")) as database:
        for table in ("run_archive", "plan_archive"):
            for row, body in database.execute(f"SELECT rowid, body FROM {table}").fetchall():
                moved = _moved(body, str(folder).lstrip("/"))
                database.execute(f"UPDATE {table} SET body = ? WHERE rowid = ?", (moved, row))
        database.commit()
    return home


def _moved(body: bytes, place: str) -> bytes:
    """A pickle of 0.1 in which every path leads to another place, and that was written a minute
    ago."""
    raw, bytes_i_o = zlib.decompress(body[2:]), io.BytesIO()
    steps = list(pickletools.genops(raw))
    ends = [at for _, _, at in steps[1:]] + [len(raw)]
    for (step, value, at), end in zip(steps, ends, strict=True):
        if step.name == "FRAME":  # says how long what follows is, which changes
            continue
        if (
            step.name == "BINFLOAT" and value > _LONG_AGO_S
        ):  # when the run began: its deadline is not over
            bytes_i_o.write(b"G" + struct.pack(">d", time.time() - 60.0))
            continue
        if isinstance(value, str) and _WRITTEN in value:
            text = value.replace(_WRITTEN, place).encode()
            bytes_i_o.write(b"X" + len(text).to_bytes(4, "little") + text)  # BINUNICODE
        else:
            bytes_i_o.write(raw[at:end])
    return body[:2] + zlib.compress(bytes_i_o.getvalue())

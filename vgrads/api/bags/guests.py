"""Hosts that no site gave: an invitation is a script that brings any machine to a dispatcher,
through one open port."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

from vgrads.dispatch.agent_file import pilot_command
from vgrads.dispatch.server.keys import key_of
from vgrads.dispatch.server.manager import GUEST
from vgrads.dispatch.storage.kept import keys_of
from vgrads.execmgr.core.book import spec_id
from vgrads.kernel.errors import InputError


def invitation(folder: Path, run: str, name: str, contact: str = "") -> str:
    """A shell script for a machine that is to work for a dispatcher; ``contact``: where that
    machine finds this one.

    It holds a key: who has it can take tasks until the dispatcher revokes it. Machines may share an
    invitation.
    """
    if not name or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 60:
        raise InputError("is made of letters, digits, '-' and '_'", where="--name")
    port = folder / "port"
    if not port.exists():
        raise InputError("has never listened: run its bag first", where=folder.name)
    keys = keys_of(folder)
    slot = spec_id(f"{GUEST}.{name}", run)
    told = {
        "VGRADS_CONTACT": f"tls://{contact or _address()}:{port.read_text().strip()}",
        "VGRADS_CERT": keys.certificate,
        "VGRADS_HOST_KEY": key_of(keys.secret, slot),
        "VGRADS_SLOT": slot,
    }
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in told.items())
    return (
        "#!/bin/sh\n# Brings this machine to a dispatcher of vgrads. It holds a key: keep "
        "it to yourself.\n"
        f"{exports}export VGRADS_HOST_PROCS=${{VGRADS_HOST_PROCS:-$(getconf _NPROCESSORS_ONLN)}}\n"
        "export VGRADS_PROCS=$VGRADS_HOST_PROCS\n" + pilot_command() + "\n"
    )


def _address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise InputError(
            f"this machine does not know its own address: {error}", fix="give --contact"
        ) from error

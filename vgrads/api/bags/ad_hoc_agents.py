"""Ad-hoc agents: an invitation is a script that connects any machine to a dispatcher, through one
open port."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

from vgrads.dispatch.server.manager import AD_HOC
from vgrads.exchange.agent_file import write_agent_command
from vgrads.exchange.keys import derive_key, open_keys, read_port
from vgrads.execmgr.slot_names import spec_id
from vgrads.kernel.errors import InputError


def write_invitation(folder: Path, run: str, name: str, contact: str = "") -> str:
    """Return a shell script for a machine that is to work for a dispatcher; ``contact``: the
    address of this machine for that one.

    It contains a key: a machine with the script can take tasks until the dispatcher revokes the
    key. Machines may share an invitation.
    """
    if not name or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 60:
        raise InputError("must consist of letters, digits, '-' and '_'", where="--name")
    port = read_port(folder)
    if not port:
        raise InputError(
            "has no port for other machines: it has not started, or none of its bags takes ad-hoc "
            "agents",
            where=folder.name,
            fix="run a bag with 'hosts: {guests: true}'",
        )
    keys = open_keys(folder)
    slot = spec_id(f"{AD_HOC}.{name}", run)
    payload = {
        **keys.contact(contact or _find_address(), port),
        "VGRADS_HOST_KEY": derive_key(keys.secret, slot),
        "VGRADS_SLOT": slot,
    }
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in payload.items())
    return (
        "#!/bin/sh\n# Brings this machine to a dispatcher of vgrads. It holds a key: keep "
        "it to yourself.\n"
        f"{exports}export VGRADS_HOST_PROCS=${{VGRADS_HOST_PROCS:-$(getconf _NPROCESSORS_ONLN)}}\n"
        "export VGRADS_PROCS=$VGRADS_HOST_PROCS\n" + write_agent_command() + "\n"
    )


def _find_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise InputError(
            f"the address of this machine cannot be determined: {error}", fix="give --contact"
        ) from error

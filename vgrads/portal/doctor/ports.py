"""Ports on which a service of this machine and its processes listen (proc(5))."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.x509.oid import NameOID

from vgrads.agent.tcp import connect_tcp
from vgrads.exchange.certificate import MANAGER_NAME
from vgrads.portal.doctor.checks import Check, Unavailable

_LISTENING = "0A"
_PROBE_S = 2.0
_SHOWN = 60
_NAME = "listening addresses"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningSocket:
    """A socket that listens. ``process``: its number; None where it cannot be read. ``use``: of the
    service itself, of a proxy before it, for agents of its dispatchers and runs, or other."""

    address: str
    port: int
    inode: int
    process: int | None = None
    program: str = ""
    use: Literal["service", "proxy", "agents", "other"] = "other"

    @property
    def everywhere(self) -> bool:
        """Return True where it listens on all addresses of the machine."""
        return ipaddress.ip_address(self.address).is_unspecified

    @property
    def serves(self) -> bool:
        """Return True where the program is ``vgrads serve``."""
        words = self.program.split()
        return "serve" in words and any("vgrads" in word for word in words)

    def __str__(self) -> str:
        where = f"[{self.address}]" if ":" in self.address else self.address
        return f"{where}:{self.port}"


def is_local(addresses: Iterable[str]) -> bool:
    """Return True where one of these addresses is this machine's."""
    return any(_can_bind(address) for address in addresses)


def _can_bind(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        # a datagram socket needs no free port, and only addresses of this machine can be bound
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def parse_listeners(text: str) -> list[ListeningSocket]:
    """Parse ``/proc/net/tcp`` or ``tcp6``; return the sockets that listen."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return [_parse_socket(row) for row in rows if len(row) > 9 and row[3] == _LISTENING]


def _parse_socket(row: list[str]) -> ListeningSocket:
    number, _, port = row[1].partition(":")
    # the kernel writes each four bytes as a number of this machine, whose lowest byte comes first
    words = [bytes.fromhex(number[i : i + 8])[::-1] for i in range(0, len(number), 8)]
    address = ipaddress.ip_address(b"".join(words))
    # an IPv6 socket that serves IPv4 too has such an address
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return ListeningSocket(address=str(address), port=int(port, 16), inode=int(row[9]))


def read_ports(
    port: int, encrypted: bool = False, proc: Path = Path("/proc")
) -> list[ListeningSocket]:
    """Return the sockets that listen on the port of a service's URL, and those of the service and
    the processes that it started. ``encrypted``: a proxy listens on that port, since vgrads itself
    has no TLS."""
    sockets = [entry for table in ("tcp", "tcp6") for entry in _read_table(proc / "net" / table)]
    inodes = dict(_list_inodes(proc))
    attached = [_add_process(entry, inodes, proc) for entry in sockets]
    selected = of_service(attached, port, parents_of(proc))
    return [_add_use(entry, port, encrypted) for entry in selected]


def _read_table(path: Path) -> list[ListeningSocket]:
    try:
        return parse_listeners(path.read_text())
    except FileNotFoundError:  # a machine without IPv6
        return []


def _list_processes(proc: Path) -> Iterator[int]:
    return (int(path.name) for path in proc.iterdir() if path.name.isdigit())


def _list_inodes(proc: Path) -> Iterator[tuple[int, int]]:
    """Yield (inode, process) of the sockets of all processes that may be read."""
    for pid in sorted(_list_processes(proc), reverse=True):  # of a shared socket: its first process
        with suppress(OSError):
            for descriptor in (proc / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    target = str(descriptor.readlink())
                    if target.startswith("socket:["):
                        yield int(target[8:-1]), pid


def parents_of(proc: Path) -> dict[int, int]:
    """Return process → parent of all processes."""
    parents = {}
    for pid in _list_processes(proc):
        with suppress(OSError, ValueError, IndexError):
            # the name of a program, in parentheses, may itself contain spaces and parentheses
            fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
            parents[pid] = int(fields[1])
    return parents


def _add_process(entry: ListeningSocket, inodes: Mapping[int, int], proc: Path) -> ListeningSocket:
    pid = inodes.get(entry.inode)
    if pid is None:
        return entry
    program = ""
    with suppress(OSError):
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
        program = " ".join(word.decode(errors="replace") for word in words if word)
    return replace(entry, process=pid, program=program)


def of_service(
    sockets: Iterable[ListeningSocket], port: int, parents: Mapping[int, int]
) -> list[ListeningSocket]:
    """Return the sockets of a port, and those of the service behind it with the processes that it
    started. Where another program has the port, all services of this machine count."""
    sockets = list(sockets)
    services = [entry for entry in sockets if entry.serves]
    behind = [entry for entry in services if entry.port == port] or services
    roots = {entry.process for entry in behind if entry.process}
    return [
        entry
        for entry in sockets
        if entry.port == port or (entry.process and _is_descendant(entry.process, roots, parents))
    ]


def _is_descendant(pid: int, roots: set[int], parents: Mapping[int, int]) -> bool:
    passed: set[int] = set()
    while pid not in passed:
        if pid in roots:
            return True
        passed.add(pid)
        # a process without a known parent ends the search
        pid = parents.get(pid, pid)
    return False


def _add_use(entry: ListeningSocket, port: int, encrypted: bool) -> ListeningSocket:
    if entry.port == port and (encrypted or (entry.program and not entry.serves)):
        return replace(entry, use="proxy")
    if entry.port == port:
        return replace(entry, use="service")
    if is_for_agents(entry):
        return replace(entry, use="agents")
    return replace(entry, use="service") if entry.serves else entry


def is_for_agents(entry: ListeningSocket) -> bool:
    """Return True for a port of a manager: it presents the certificate that agents know."""
    loopback = "::1" if ":" in entry.address else "127.0.0.1"
    address = loopback if entry.everywhere else entry.address
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # the certificate is only read: nothing is sent that it would have to protect
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError, ValueError):
        with (
            closing(connect_tcp((address, entry.port), _PROBE_S)) as plain,
            context.wrap_socket(plain) as wrapped,
        ):
            body = wrapped.getpeercert(binary_form=True) or b""
        subject = x509.load_der_x509_certificate(body).subject
        names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        return names == [MANAGER_NAME]
    return False


def judge_ports(sockets: list[ListeningSocket] | Unavailable | None) -> Check:
    """Judge where a service listens: all addresses of the machine are only for agents. None: the
    service is on another machine."""
    if sockets is None:
        return Check(
            _NAME, "unknown", "the service is on another machine", "run vgrads doctor there"
        )
    if isinstance(sockets, Unavailable):
        return Check(_NAME, "unknown", sockets.reason)
    if not sockets:
        text = "no socket of this machine listens on its port (a container, or forwarding?)"
        return Check(_NAME, "unknown", text, "run vgrads doctor where the service runs")
    described = ", ".join(_describe_port(entry) for entry in sockets)
    inner = [entry for entry in sockets if entry.use in ("service", "other")]
    exposed = [entry for entry in inner if entry.everywhere]
    if exposed:
        exposed_text = ", ".join(map(str, exposed))
        text = f"{described}; open on all addresses of this machine: {exposed_text}"
        fix = "set host to 127.0.0.1 behind a proxy, or limit the port with a firewall"
        return Check(_NAME, "doubtful", text, fix)
    if not any(entry.serves for entry in sockets):
        text = f"{described}; no process of the service can be read"
        return Check(_NAME, "unknown", text, "run vgrads doctor as the account of the service")
    return Check(_NAME, "ok", described)


def _describe_port(entry: ListeningSocket) -> str:
    program = entry.program[:_SHOWN] or "a program that cannot be read"
    return f"{entry} ({program if entry.use == 'other' else entry.use})"

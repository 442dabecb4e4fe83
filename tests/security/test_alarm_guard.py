"""Targets of a service's users lead to permitted addresses only, whatever leads there; their
processes read no file of the service's account."""

import os
import socket
from pathlib import Path

import pytest

from tests.portal.listeners import HttpListener, MailListener
from vgrads.portal.jobs.alarm_delivery import AllowedTargets, deliver
from vgrads.portal.jobs.alarm_program import Limits, NotPermitted
from vgrads.portal.records.alarm_targets import AlarmTarget

SCHEMES = ("json", "mailto")
NOWHERE = AllowedTargets(SCHEMES)


def send(url, allowed):
    target = AlarmTarget("t", url, is_limited=allowed is not None)
    (result,) = deliver([target], "title", "body", allowed or NOWHERE)
    return result


@pytest.mark.more
def test_a_user_reaches_no_server_of_this_machine():
    """By address, by a name that has it, by mail; the operator permits networks."""
    with HttpListener() as server, MailListener() as mail:
        urls = {
            f"json://127.0.0.1:{server.port}/": "127.0.0.1 is not a public address",
            f"json://localhost:{server.port}/": "is not a public address",
            f"mailto://127.0.0.1:{mail.port}?from=a@b.org&to=c@d.org": "127.0.0.1 is not",
            f"mailto://b.org:{mail.port}?smtp=localhost&from=a@b.org&to=c@d.org": "is not a public",
        }
        for url, reason in urls.items():
            result = send(url, NOWHERE)
            assert not result.ok and reason in result.reason, (url, result)
        assert (server.requests, mail.messages) == ([], [])
        allowed = AllowedTargets(SCHEMES, ("127.0.0.0/8",))
        results = [send(url, allowed) for url in urls if "::" not in url]
        assert [result.ok for result in results] == [True] * len(urls), results
        assert (len(server.requests), len(mail.messages)) == (2, 2)


@pytest.mark.parametrize("host", ["[::1]", "169.254.169.254", "10.0.0.1", "[::ffff:a00:1]"])
def test_a_user_reaches_no_internal_address(host):
    result = send(f"json://{host}:9/", NOWHERE)
    assert "is not a public address; the operator can permit" in result.reason, result


def test_a_redirect_to_an_internal_address_is_not_followed():
    with HttpListener() as inside:
        location = f"http://127.0.0.1:{inside.port}/"
        with HttpListener("127.0.0.2", status=307, location=location) as outside:
            url = f"json://127.0.0.2:{outside.port}/?redirect=yes"
            result = send(url, AllowedTargets(SCHEMES, ("127.0.0.2/32",)))
            assert "127.0.0.1 is not a public address" in result.reason
            assert (len(outside.requests), inside.requests) == (1, [])
            assert send(url, None).ok  # the operator's own targets are delivered anywhere
            assert len(inside.requests) == 1


@pytest.mark.parametrize(
    ("address", "is_permitted"),
    [
        (("93.184.216.34", 25), True),
        (("2606:2800:220:1::1", 25, 0, 0), True),
        (("10.1.2.3", 25), True),  # of the permitted network
        (("::ffff:10.1.2.3", 25, 0, 0), True),
        (("10.2.0.1", 25), False),
        (("::ffff:10.2.0.1", 25, 0, 0), False),
        (("64:ff9b::10.2.0.1", 25, 0, 0), False),
        (("fe80::1%eth0", 25, 0, 2), False),
        (("0.0.0.0", 25), False),
        (("224.0.0.1", 25), False),
        (("mail.example.org", 25), False),  # a name would be resolved after the check
        ("/run/postgresql/.s.PGSQL.5432", False),
    ],
)
@pytest.mark.parametrize("event", ["socket.connect", "socket.sendto", "socket.sendmsg"])
def test_each_address_is_checked_at_the_moment_of_connecting(event, address, is_permitted):
    limits = Limits(["10.1.0.0/16"])
    if is_permitted:
        limits(event, (None, address))
        assert limits.refused == []
    else:
        with pytest.raises(NotPermitted):
            limits(event, (None, address))
        assert len(limits.refused) == 1


def test_files_of_the_account_are_closed_and_nothing_is_started(tmp_path):
    limits, own = Limits([]), tmp_path / "own"
    limits("open", (socket.__file__, "r", os.O_RDONLY))
    limits("open", ("/dev/null", "w", os.O_WRONLY))
    limits("open", (3, "r", os.O_RDONLY))
    for path, mode, flags in (
        ("/etc/passwd", "r", os.O_RDONLY),
        (f"{own}", None, os.O_RDONLY),
        ("/proc/self/environ", "rb", os.O_RDONLY),
        (socket.__file__, "w", os.O_WRONLY),
        (f"{Path(socket.__file__).parent}/../../../etc/passwd", "r", os.O_RDONLY),
    ):
        with pytest.raises(NotPermitted):
            limits("open", (path, mode, flags))
    with pytest.raises(NotPermitted):
        limits("subprocess.Popen", ("sh", ["sh"], None, None))


def test_passwords_and_proxies_of_the_account_are_for_the_operator(tmp_path, monkeypatch):
    """A user's own server would get the password that the account has for it."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with HttpListener() as server, HttpListener() as proxy:
        url, allowed = f"json://127.0.0.1:{server.port}/", AllowedTargets(SCHEMES, ("127.0.0.1",))
        assert send(url, None).ok
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert send(url, allowed).ok
        operator, user = (headers for _, headers, _ in server.requests)
        assert "Authorization" in operator and "Authorization" not in user
        assert proxy.requests == []

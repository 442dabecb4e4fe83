"""Each check of a service by `vgrads doctor`: the state that it gives to facts."""

import threading

import pytest

from vgrads.kernel.errors import InputError
from vgrads.portal.doctor.checks import Check, Unavailable, as_document, gather
from vgrads.portal.doctor.ports import (
    ListeningSocket,
    judge_ports,
    of_service,
    parse_listeners,
)
from vgrads.portal.doctor.service_checks import (
    judge_authentication,
    judge_certificate,
    judge_encryption,
    judge_expiry,
    judge_headers,
    judge_health,
    judge_reachable,
    judge_readiness,
    judge_token,
    judge_version,
)
from vgrads.portal.doctor.service_facts import (
    CertificateFacts,
    HttpAnswer,
    ServiceFacts,
    is_loopback,
    parse_address,
)

DAY, NOTHING = 86400.0, Unavailable("no result within 5 s")
GUARDED = {"content-security-policy": "default-src 'none'", "x-content-type-options": "nosniff"}


def answer(status=200, body=b"{}", **headers):
    return HttpAnswer(status=status, headers=headers, body=body)


def service(url="http://127.0.0.1:8080", loopback=True, **more):
    replies = dict.fromkeys(("health", "readiness", "description", "protected"), answer())
    common = {"address": parse_address(url), "loopback": loopback, "certificate": None}
    return ServiceFacts(**{**common, **replies, **more})


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (answer(body=b'{"status": "ok"}'), "ok"),
        (answer(body=b"<html>"), "wrong"),
        (answer(301, location="https://x/healthz"), "wrong"),
        (answer(400), "wrong"),
        (answer(404), "wrong"),
        (answer(503, b'{"detail": "locked"}'), "wrong"),
        (NOTHING, "unknown"),
    ],
)
def test_health(reply, state):
    assert judge_health(reply).state == state
    assert judge_reachable(service(health=reply)).state == ("wrong" if reply == NOTHING else "ok")


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (answer(body=b'{"status": "ready"}'), "ok"),
        (answer(503, b'{"detail": "not accepting work"}'), "wrong"),
        (answer(200, b"[]"), "wrong"),
        (NOTHING, "unknown"),
    ],
)
def test_readiness(reply, state):
    assert judge_readiness(reply).state == state


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (answer(body=b'{"info": {"version": "0.3"}}'), "ok"),
        (answer(body=b'{"info": {"version": "0.2"}}'), "doubtful"),
        (answer(404), "unknown"),
        (answer(body=b'{"info": 3}'), "unknown"),
        (NOTHING, "unknown"),
    ],
)
def test_the_version_of_the_service(reply, state):
    assert judge_version(reply, "0.3").state == state


def test_only_loopback_needs_no_encryption():
    assert judge_encryption(service()).state == "ok"
    assert judge_encryption(service("https://x", loopback=False)).state == "ok"
    check = judge_encryption(service("http://x", loopback=False))
    assert check.state == "wrong"
    assert "trusted_proxies" in check.fix


@pytest.mark.parametrize(
    ("certificate", "state"),
    [
        (None, "ok"),
        (CertificateFacts(problem="", expires_s=22 * DAY), "ok"),
        (CertificateFacts(problem="", expires_s=20 * DAY), "doubtful"),
        (CertificateFacts(problem="", expires_s=None), "unknown"),
        (CertificateFacts(problem="self-signed certificate", expires_s=99 * DAY), "wrong"),
        (CertificateFacts(problem="certificate has expired", expires_s=-DAY), "wrong"),
        (NOTHING, "unknown"),
    ],
)
def test_the_certificate(certificate, state):
    assert judge_certificate(service("https://x", certificate=certificate), 0.0).state == state


@pytest.mark.parametrize(
    ("reply", "loopback", "state"),
    [
        (answer(401), True, "ok"),
        (answer(401), False, "ok"),
        (answer(200), True, "ok"),
        (answer(200), False, "wrong"),
        (answer(502), False, "unknown"),
        (NOTHING, False, "unknown"),
    ],
)
def test_authentication(reply, loopback, state):
    assert judge_authentication(reply, loopback).state == state


@pytest.mark.parametrize(
    ("more", "token", "state"),
    [
        ({}, False, "ok"),
        ({"protected": answer(401)}, False, "unknown"),
        ({"protected": NOTHING}, False, "unknown"),
        ({"unsent": "the connection is not encrypted"}, True, "unknown"),
        ({}, True, "unknown"),
        ({"token": NOTHING}, True, "unknown"),
        ({"token": answer(401)}, True, "wrong"),
        ({"token": answer(404)}, True, "ok"),
        ({"token": answer(429)}, True, "unknown"),
        ({"token": answer(200, b'{"user": "ann", "scopes": ["read"]}')}, True, "ok"),
    ],
)
def test_the_token(more, token, state):
    assert judge_token(service(**more), token).state == state


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (answer(body=b'{"expires_s": 691200}'), "ok"),
        (answer(body=b'{"expires_s": 518400}'), "doubtful"),
        (answer(body=b'{"expires_s": null}'), "ok"),
        (answer(401), "unknown"),
        (None, "unknown"),
    ],
)
def test_the_expiry_of_the_token(reply, state):
    assert judge_expiry(reply, 0.0).state == state


@pytest.mark.parametrize(
    ("headers", "state", "word"),
    [
        (GUARDED, "ok", "is set"),
        (GUARDED | {"server": "nginx"}, "ok", "is set"),
        (GUARDED | {"server": "uvicorn"}, "doubtful", "uvicorn"),
        (GUARDED | {"server": "nginx/1.22"}, "doubtful", "nginx/1.22"),
        ({"x-content-type-options": "nosniff"}, "doubtful", "no Content-Security-Policy"),
        ({"content-security-policy": "default-src 'none'"}, "doubtful", "nosniff"),
        (
            GUARDED | {"content-security-policy": "default-src *; script-src 'unsafe-inline'"},
            "doubtful",
            "inline",
        ),
        *(
            (
                GUARDED | {"content-security-policy": f"default-src *; style-src *; {more}"},
                "doubtful" if "script" in more else "ok",
                "inline" if "script" in more else "is set",
            )
            for more in ("script-src 'unsafe-inline'", "style-src-attr 'unsafe-inline'")
        ),
    ],
)
def test_the_headers(headers, state, word):
    check = judge_headers(HttpAnswer(status=200, headers=headers))
    assert (check.state, word in check.message) == (state, True)


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "http://", "x:80", "http://a b", "http://u:p@x", "http://x:99999", "http://x?q"],
)
def test_a_url_that_is_none_of_a_service(url):
    with pytest.raises(InputError):
        parse_address(url)


def test_the_parts_of_a_url():
    address = parse_address("https://vgrads.example.org/sub/")
    assert (address.url, address.port) == ("https://vgrads.example.org/sub", 443)
    assert parse_address("http://[::1]:81").host == "::1"


def test_loopback_is_all_addresses_of_a_name():
    assert is_loopback(("127.0.0.1", "::1"))
    assert not is_loopback(("127.0.0.1", "192.0.2.1"))
    assert not is_loopback(())


# ports

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1
   1: 00000000:2710 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12 1
   2: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1000        0 13 1
"""
TABLE6 = """\
  sl local_address remote_address st
   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0 0 0 0 0 21
   1: 0000000000000000FFFF00000100007F:0051 00000000000000000000000000000000:0000 0A 0 0 0 0 0 22
   2: 00000000000000000000000000000000:0052 00000000000000000000000000000000:0000 0A 0 0 0 0 0 23
"""


def test_tables_of_the_system_are_parsed():
    assert [str(entry) for entry in parse_listeners(TABLE)] == ["127.0.0.1:8080", "0.0.0.0:10000"]
    assert [entry.inode for entry in parse_listeners(TABLE)] == [11, 12]
    addresses = ["[::1]:80", "127.0.0.1:81", "[::]:82"]
    assert [str(entry) for entry in parse_listeners(TABLE6)] == addresses
    assert [entry.everywhere for entry in parse_listeners(TABLE6)] == [False, False, True]


def listens(address, port, process=None, program="", use="other"):
    return ListeningSocket(
        address=address, port=port, inode=0, process=process, program=program, use=use
    )


SERVE = "/opt/bin/python /opt/bin/vgrads serve --port 80"


def test_the_service_and_what_it_started_are_selected():
    own, child = listens("127.0.0.1", 80, 5, SERVE), listens("0.0.0.0", 81, 7)
    others = [listens("0.0.0.0", 82, 9), listens("0.0.0.0", 83)]
    parents = {5: 1, 6: 5, 7: 6, 9: 1, 1: 0}
    assert of_service([own, child, *others], 80, parents) == [own, child]
    proxy = listens("0.0.0.0", 443, 9, "nginx")
    assert of_service([own, child, proxy, others[1]], 443, parents) == [own, child, proxy]


@pytest.mark.parametrize(
    ("sockets", "state"),
    [
        ([listens("127.0.0.1", 80, 5, SERVE, "service")], "ok"),
        ([listens("192.0.2.1", 80, 5, SERVE, "service")], "ok"),
        ([listens("0.0.0.0", 80, 5, SERVE, "service")], "doubtful"),
        ([listens("::", 80, 5, SERVE, "service")], "doubtful"),
        (
            [
                listens("127.0.0.1", 80, 5, SERVE, "service"),
                listens("0.0.0.0", 81, 6, use="agents"),
            ],
            "ok",
        ),
        (
            [listens("127.0.0.1", 80, 5, SERVE, "service"), listens("0.0.0.0", 81, 6, "nc")],
            "doubtful",
        ),
        (
            [listens("127.0.0.1", 80, 5, SERVE, "service"), listens("::", 443, use="proxy")],
            "ok",
        ),
        ([listens("::", 443, use="proxy")], "unknown"),
        ([listens("127.0.0.1", 80, use="service")], "unknown"),
        ([], "unknown"),
        (None, "unknown"),
        (NOTHING, "unknown"),
    ],
)
def test_the_ports(sockets, state):
    assert judge_ports(sockets).state == state


# gathering, and the document


def fail():
    raise ValueError("two\nlines")


def test_an_act_that_fails_or_takes_too_long_is_a_fact(request):

    end = threading.Event()
    request.addfinalizer(end.set)
    assert gather(lambda: 3, 30.0) == 3
    assert gather(fail, 30.0) == Unavailable("two lines")
    assert gather(end.wait, 0.01) == Unavailable("no result within 0.01 s")


def test_the_document():
    checks = [Check("a", "ok", "m"), Check("b", "wrong", "m", "f"), Check("c", "doubtful", "m")]
    document = as_document(checks)
    assert document["checks"][1] == {"name": "b", "state": "wrong", "message": "m", "fix": "f"}
    assert (document["wrong"], document["doubtful"]) == (1, 1)

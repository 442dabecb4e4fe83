"""Messages of alarms at real servers: mail, HTTP, those that refuse and those that are silent."""

import time

import pytest

from tests.portal.listeners import HttpListener, MailListener, no_server
from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.alarm_delivery import AllowedTargets, check_schemes, check_target, deliver
from vgrads.portal.records.alarm_targets import AlarmTarget

SECRET = "hu5h-hu5h"
TITLE, BODY = "set 'forecast' at risk", "Probability 0.62, requested 0.95.\nNext: storm-1/wrf."


def send(url, allowed=None, longest_s=20.0):
    target = AlarmTarget("t", url, is_limited=allowed is not None)
    (result,) = deliver([target], TITLE, BODY, allowed or AllowedTargets(), longest_s)
    assert result.target == "t"
    return result


def test_a_message_arrives_by_mail():
    with MailListener(password=SECRET) as mail:
        result = send(
            f"mailto://ann:{SECRET}@127.0.0.1:{mail.port}?from=v@example.org&to=ann@example.org"
        )
        assert (result.ok, result.reason) == (True, "")
        ((sender, receivers, content),) = mail.messages
    assert (sender, receivers) == ("v@example.org", ["ann@example.org"])
    assert b"Subject: set 'forecast' at risk" in content
    assert b"Probability 0.62, requested 0.95." in content


def test_a_mail_server_that_refuses_a_password_is_the_reason_and_the_password_is_not():
    with MailListener(password="another") as mail:
        result = send(
            f"mailto://ann:{SECRET}@127.0.0.1:{mail.port}?from=v@example.org&to=ann@example.org"
        )
    assert (result.ok, result.reason) == (False, "its mail server answered 535")
    assert mail.messages == []


def test_a_message_arrives_at_a_webhook():
    with HttpListener() as server:
        assert send(f"json://127.0.0.1:{server.port}/hooks/{SECRET}").ok
    (document,) = server.documents
    assert (document["title"], document["message"]) == (TITLE, BODY)
    assert server.requests[0][0] == f"/hooks/{SECRET}"


@pytest.mark.parametrize(
    ("status", "reason"),
    [(503, "its server answered HTTP 503 Service Unavailable"), (404, "HTTP 404 Not Found")],
)
def test_an_error_of_a_server_is_the_reason(status, reason):
    with HttpListener(status=status) as server:
        result = send(f"json://127.0.0.1:{server.port}/{SECRET}")
    assert not result.ok
    assert reason in result.reason
    assert SECRET not in result.reason


def test_one_target_that_fails_affects_no_other():
    """One is silent, one refuses connections, one has no name; the last one gets its message."""
    with HttpListener() as good, HttpListener(status=None) as silent, no_server() as closed:
        urls = (
            f"json://127.0.0.1:{silent.port}/{SECRET}",
            f"json://127.0.0.1:{closed}/{SECRET}",
            f"json://nobody.invalid/{SECRET}",
            f"json://127.0.0.1:{good.port}/{SECRET}",
        )
        targets = [AlarmTarget(f"t{n}", url, is_limited=False) for n, url in enumerate(urls)]
        begin = time.monotonic()
        results = deliver(targets, TITLE, BODY, AllowedTargets(), longest_s=20.0)
        took_s = time.monotonic() - begin
    assert [result.target for result in results] == ["t0", "t1", "t2", "t3"]
    silence, *others = [result.reason for result in results]
    assert silence.startswith("no answer")
    assert others == ["the connection was refused", "the name of its server has no address", ""]
    assert took_s < 20  # all at once
    assert len(good.requests) == 1


def test_a_silent_target_is_given_up_after_the_stated_time():
    with HttpListener(status=None) as silent:
        target = AlarmTarget("t", f"json://127.0.0.1:{silent.port}/{SECRET}", is_limited=False)
        (result,) = deliver([target], TITLE, BODY, AllowedTargets(), longest_s=1.0)
    assert result.reason == "no answer within 1 s"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"mailtos://ann:{SECRET}@mail.example.org?to=a@example.org", "mailtos://mail.example.org"),
        (f"mailto://ann:{SECRET}@gmail.com", "mailtos://gmail.com"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general", "slack://…"),
        (
            "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
            "slack://…",
        ),
        (f"workflows://teams.example.org:443/{'w' * 20}/{SECRET}", "workflow://teams.example.org"),
        (f"matrixs://ann:{SECRET}@matrix.example.org/#room", "matrixs://matrix.example.org"),
        (f"matrix://{'t' * 64}?mode=t2bot", "matrix://…"),
        (f"jsons://example.org/hooks/{SECRET}", "jsons://example.org"),
        (f"json://[::1]:80/{SECRET}", "json://[::1]"),
        (f"json://monitor/{SECRET}", "json://…"),
        (f"ntfy://{SECRET}", "ntfys://…"),
    ],
)
def test_of_a_url_the_scheme_is_shown_and_a_host_that_is_one(url, shown):
    assert check_target(url, None) == shown


@pytest.mark.parametrize(
    ("url", "what"),
    [
        (SECRET, "it is no URL"),
        (f"foo://{SECRET}", "no service has URLs that begin with foo://"),
        (f"slack://{SECRET}", "it is no complete URL of slack://"),
        (f"https://example.org/{SECRET}", "no service has URLs that begin with https://"),
        (f"json://${{HOST}}/{SECRET}", "it is no complete URL of json://"),
    ],
)
def test_a_url_that_cannot_be_used_is_named_without_its_secret(url, what):
    with pytest.raises(InputError, match=what) as error:
        check_target(url, None)
    assert SECRET not in str(error.value)


def test_a_scheme_that_no_service_has_is_refused():
    check_schemes(("mailtos", "slack", "jsons"))
    with pytest.raises(InputError, match="alarm_schemes: unknown scheme 'mailtoss'"):
        check_schemes(("mailtos", "mailtoss"))


def test_users_send_through_the_schemes_of_the_operator_alone():
    with HttpListener() as server:
        url, networks = f"json://127.0.0.1:{server.port}/", ("127.0.0.0/8",)
        none = send(url, AllowedTargets(networks=networks))
        assert "permitted no targets over HTTP" in none.reason and "alarm_schemes" in none.reason
        other = send(url, AllowedTargets(("mailtos", "slack"), networks))
        assert other.reason.startswith("the operator has not permitted targets with json://")
        assert "permitted: mailtos, slack" in other.reason
        with pytest.raises(InputError, match="not permitted targets with json"):
            check_target(url, AllowedTargets(("jsons",), networks))
        assert server.requests == []
        assert send(url, AllowedTargets(("json",), networks)).ok
        assert len(server.requests) == 1

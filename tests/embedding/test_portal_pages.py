"""The partials for Open OnDemand, rendered by Ruby and shown by a browser, which queries a service
of another origin."""

import re
import shutil
from functools import partial

import pytest

from tests.embedding import portals
from tests.services.fixtures import CHROMIUM, there
from tests.waiting import until

pytest.importorskip("playwright.sync_api")
RUBY = shutil.which("ruby")
INTERVAL = re.compile(r"starts within ([\d.]+ to )?[\d.]+ (min|h|d) \(1 of 2 to 19 of 20 jobs\)")
SESSION = {
    "queued": True,
    "cluster_id": "mayhem",
    "info": {"queue_name": "default", "procs": 4, "wallclock_limit": 7200},
}
pytestmark = pytest.mark.services


@pytest.fixture
def ruby():
    there("" if RUBY else "needs ruby")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of pages, their port, a service that allows their origin, and its tokens."""
    there("" if CHROMIUM else "needs chromium")
    there("" if RUBY else "needs ruby")
    folder = tmp_path_factory.mktemp("pages")
    shutil.copy(portals.DEPLOY / "ondemand" / "vgrads_wait.js", folder)
    home = tmp_path_factory.mktemp("service")
    with (
        portals.pages(folder) as port,
        portals.service(home, f"http://127.0.0.1:{port}") as (served, token),
    ):
        for queue in (portals.PUBLIC, portals.OTHER):
            scope = token(f"forecast:{queue}")
            until(partial(portals.learned, served.url, queue, scope), f"{queue} learned", 60)
        yield folder, port, served.url, token


def shown(browser, site, body, host="127.0.0.1"):
    """The texts of a page's elements, once the script has answered for all of them."""
    folder, port, *_ = site
    (folder / "page.html").write_text(
        f"<!doctype html><meta charset=utf-8><title>t</title><body>{body}"
        '<script src="vgrads_wait.js"></script>'
    )
    page = browser.new_page()
    page.goto(f"http://{host}:{port}/page.html")
    page.wait_for_function(
        "[...document.querySelectorAll('[data-vgrads-queue]')].every("
        "e => ['shown', 'failed'].includes(e.dataset.vgradsState))"
    )
    return page, page.locator("[data-vgrads-queue]").all_text_contents()


def test_the_widget_shows_an_interval_of_each_queue_that_it_may_query(browser, site):
    *_, url, token = site
    waits = f"{portals.PUBLIC}:4:2 {portals.OTHER}:8 mayhem/<b>x</b>"
    variables = {"VGRADS_URL": url, "VGRADS_WAITS": waits}
    _, texts = shown(browser, site, portals.rendered("_vgrads_wait.html.erb", **variables))
    assert INTERVAL.fullmatch(texts[0]), texts
    assert texts[1:] == ["no forecast"] * 2
    high_s = portals.bound_s(url, portals.PUBLIC, procs=4, walltime_s=7200, probability=0.95)
    assert 60 < high_s < 7200 and f"{-(-high_s // 60):.0f} min" in texts[0]
    variables["VGRADS_TOKEN"] = token(f"forecast:{portals.OTHER}")
    page, texts = shown(browser, site, portals.rendered("_vgrads_wait.html.erb", **variables))
    assert INTERVAL.fullmatch(texts[1]) and texts[0] == texts[2] == "no forecast"
    assert page.locator("th").all_text_contents()[2] == "mayhem/<b>x</b>"
    assert page.locator("td:nth-child(2)").first.text_content() == "4 processors, 2 h"


def test_a_page_of_an_origin_that_is_not_configured_shows_nothing(browser, site):
    *_, url, _ = site
    variables = {"VGRADS_URL": url, "VGRADS_WAITS": portals.PUBLIC}
    body = portals.rendered("_vgrads_wait.html.erb", **variables)
    assert shown(browser, site, body, "localhost")[1] == ["no forecast"]
    assert INTERVAL.fullmatch(shown(browser, site, body)[1][0])


def test_the_card_of_a_queued_session_shows_when_it_starts(browser, site):
    *_, url, _ = site
    card = portals.rendered("_expected_time.html.erb", SESSION, VGRADS_URL=url)
    page, texts = shown(browser, site, card)
    assert INTERVAL.fullmatch(texts[0]), texts
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', document.body.innerHTML"
        ".replace(/data-vgrads-state=\"shown\"/, ''))"
    )  # as the card is drawn anew
    page.wait_for_function("document.querySelectorAll('[data-vgrads-state=shown]').length == 2")


def test_the_card_has_the_start_of_the_batch_system_too(ruby):
    info = SESSION["info"] | {"dispatch_time": 1_800_000_000}
    card = portals.rendered("_expected_time.html.erb", SESSION | {"info": info})
    assert "2027-01-15 08:00 by the batch system" in card
    assert 'data-vgrads-queue="mayhem/default"' in card and 'walltime-s="7200"' in card
    running = portals.rendered("_expected_time.html.erb", SESSION | {"queued": False})
    assert running.strip() == ""

"""Reports of backtests and studies in a browser: readable for everybody, in the dark and on a
phone, the conclusion first."""

import re

import pytest
from vgrads_studies.picture import diagrams
from vgrads_studies.report import picture

from tests.logs import make_log
from tests.portal.pages.barriers import barriers
from tests.portal.pages.pictures import PHONE, VIEWS
from vgrads.kernel.report_page import html_table, paragraph, report_page, write_page
from vgrads.portal.charts.backtest import write_report
from vgrads.portal.charts.pages import static
from vgrads.qbets.backtest import backtest

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.services


def _draw(path):
    with diagrams(path, 1, (4, 3)) as (axes,):
        axes.plot([0, 1], [1, 0], label="falls")
        axes.set_ylabel("share")
        axes.legend()


def _refuse_cards(page):
    """Fail where a picture is a card of its own: its paper and texts have the page's."""
    paper, texts = page.evaluate(
        """() => [[...document.querySelectorAll("figure svg path[style*='--page']")],
          [...document.querySelectorAll("figure svg g[id^=text] path, figure svg g[id^=text] use")]]
          .map(parts => [...new Set(parts.map(part => getComputedStyle(part).fill))])"""
    )
    page_colour, ink = page.evaluate(
        "['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])"
    )
    assert paper == [page_colour]
    assert texts == [ink]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_report(folder / "backtest.html", [backtest(make_log(3000, seed=1), "log <1>")])
    table = html_table(["planner"] * 12, [["a long cell of a table"] * 12] * 3)
    parts = [table, paragraph("a note"), picture(_draw)]
    write_page(folder / "study.html", "Are <b>promises</b> kept?", "All & none were kept.", parts)
    return sorted(folder.glob("*.html"))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_report_has_no_barrier_and_fits_the_screen(browser, reports, view):
    size = {"width": view.width, "height": view.height}
    context = browser.new_context(viewport=size, color_scheme=view.scheme)
    page = context.new_page()
    for report in reports:
        page.goto(report.as_uri())
        assert (report.name, barriers(page)) == (report.name, [])
        assert page.evaluate("document.documentElement.scrollWidth") == view.width
        box = page.locator(".conclusion").bounding_box()
        assert box["y"] + box["height"] <= view.height
        assert page.locator("figure svg").count() >= 1
        _refuse_cards(page)
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(255, 255, 255)") is (view.scheme != "dark")
    if view is PHONE:
        wide = page.locator(".scroll").first
        assert wide.evaluate("e => e.scrollWidth > e.clientWidth")
    context.close()


def test_reports_have_the_colours_of_the_portal():
    """Both state them: reports are made without the portal."""
    of_portal = dict(enumerate(_colours(static("app.css"))))
    for scheme, colours in enumerate(_colours(report_page("", "", ""))):
        assert len(colours) == 6
        assert colours.items() <= of_portal[scheme].items()


def _colours(style):
    """The colours of bright and of dark pages, by name."""
    parts = [part.partition("* {")[0] for part in style.split("prefers-color-scheme", 2)[:2]]
    return [dict(re.findall(r"--(\w+): ?(#[0-9a-f]{6})", part)) for part in parts]

"""Reports of backtests and studies in a browser: readable for everybody, in the dark and on a
phone, the conclusion first."""

import pytest

from tests.logs import make_log
from tests.portal.pages.barriers import barriers
from tests.portal.pages.pictures import PHONE, VIEWS
from vgrads.portal.charts.backtest import write_report
from vgrads.qbets.backtest import backtest
from vgrads.research.report import html_table, paragraph, write_page

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_report(folder / "backtest.html", [backtest(make_log(3000, seed=1), "log <1>")])
    table = html_table(["planner"] * 12, [["a long cell of a table"] * 12] * 3)
    parts = [table, paragraph("a note")]
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
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(255, 255, 255)") is (view.scheme != "dark")
    if view is PHONE:
        wide = page.locator(".scroll").first
        assert wide.evaluate("e => e.scrollWidth > e.clientWidth")
    context.close()

"""Every page in every state in a browser, on a desk, in the dark and on a phone: readable for
everybody, the answer above the fold, every lane reachable; also without scripts."""

import re

import pytest

from tests.portal.pages.barriers import COLOURS, barriers
from tests.portal.pages.charts import PAINTED, large_chart
from tests.portal.pages.gallery import STORM
from tests.portal.pages.pictures import DESKTOP, PHONE, addresses, settled
from tests.portal.serving import SMALL
from tests.waiting import until
from vgrads.portal.charts.exports import export
from vgrads.portal.jobs.worker import plan_stored_set
from vgrads.portal.records.retention import remove_ended_set

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.services
TEXTS = """() => { const texts = [], real = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    texts.push(text); return real.call(this, text, ...rest); };
  vgrads.chart.paint();
  CanvasRenderingContext2D.prototype.fillText = real;
  return texts; }"""
"""What a chart writes, in the order of its drawing."""


@pytest.mark.usefixtures("gallery_home")
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=lambda view: view.name)
def test_no_page_has_a_barrier_an_error_or_a_part_beyond_its_screen(
    browser, gallery, gallery_url, view
):
    """On the desk in the dark too. Errors of the console include what the Content-Security-Policy
    has refused."""
    page, errors = view.open(browser, gallery_url), []
    page.on("console", lambda text: errors.append(text.text) if text.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name, path in addresses(gallery).items():
        page.goto(path)
        settled(page)
        assert (name, barriers(page)) == (name, [])
        assert (name, page.evaluate("document.documentElement.scrollWidth")) == (name, view.width)
        if view is DESKTOP:
            page.emulate_media(color_scheme="dark")
            assert (name, "in the dark", barriers(page, *COLOURS)) == (name, "in the dark", [])
            page.emulate_media(color_scheme="light")
        assert (name, [text for text in errors if not _is_expected(name, text)]) == (name, [])
        errors.clear()
    page.context.close()


def _is_expected(name, text):
    return name == "missing" and "404" in text


@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=lambda view: view.name)
def test_the_answer_is_above_the_fold(browser, gallery, gallery_url, view):
    page = view.open(browser, gallery_url)
    for name, set_id in gallery.ids.items():
        page.goto(f"/sets/{set_id}")
        settled(page)
        box = page.locator(".sentence").bounding_box()
        assert box["y"] + box["height"] <= view.height, name
        if page.locator(".remedies button").count():
            first = page.locator(".remedies button").first.bounding_box()
            assert first["y"] + first["height"] <= view.height, name
    page.goto("/")
    first = page.locator("table.work tbody tr").first
    first.filter(has_text="at risk").wait_for()  # once its probability is computed
    assert "at risk" in first.text_content()
    box = first.bounding_box()
    assert box["y"] + box["height"] <= view.height
    page.context.close()


def chart_page(browser, tmp_path, data, view=DESKTOP):
    """A chart in a page of its own."""
    file = tmp_path / "chart.html"
    file.write_bytes(export(data, "html"))
    page = browser.new_page(viewport={"width": view.width, "height": view.height})
    page.goto(file.as_uri())
    until(lambda: page.evaluate(PAINTED), "the chart")
    return page


@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=lambda view: view.name)
def test_every_lane_is_reached_with_the_button_that_counts_those_below(browser, tmp_path, view):
    page = chart_page(browser, tmp_path, large_chart(100, 2000), view)
    button, numbers = page.locator(".gantt-below"), []
    drawn = set()
    while button.is_visible():
        numbers.append(int(re.search(r"(\d+) more lane", button.text_content())[1]))
        drawn |= set(page.evaluate(TEXTS))
        scrolled = page.evaluate("vgrads.chart.scroll")
        button.click()
        until(lambda was=scrolled: page.evaluate("vgrads.chart.scroll") > was)
        page.evaluate("vgrads.chart.paint()")
    drawn |= set(page.evaluate(TEXTS))
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) >= 2
    assert {f"s-{number}" for number in range(100)} <= drawn
    page.close()


def test_shortened_names_of_lanes_stay_different_and_rare_slots_say_why(browser, tmp_path):
    data = large_chart(4, 40)
    page = chart_page(browser, tmp_path, data)
    shorten = "([names, most]) => [...vgrads.shorten(names, text => text.length <= most).values()]"
    queues = [f"kittyhawk-default-{n}" for n in (1, 2)] + ["mercury-default-1", "uheuca-1"]
    assert page.evaluate(shorten, [queues, 30]) == queues
    assert page.evaluate(shorten, [queues, 12])[:2] == ["kittyhawk-…1", "kittyhawk-…2"]
    long = [f"{'cluster-' * 12}{name}" for name in ("ant", "bee", "cat")]
    assert page.evaluate(shorten, [long, 12]) == ["…ant", "…bee", "…cat"]
    tails = [f"{name}-{'default-' * 12}end" for name in ("ant", "bee")]
    assert page.evaluate(shorten, [tails, 12]) == ["ant…", "bee…"]
    assert page.evaluate(shorten, [["x" * 200], 12]) == ["x" * 200]  # cut where it is drawn
    late = data["slots"][0] | {"probability": 0.001, "start_s": 60.0, "ready_p50_s": 660.0}
    why = "([data, slot]) => vgrads.unlikely(data, slot)"
    assert page.evaluate(why, [data, late]) == "likely ready 10m later: its tasks begin then"
    never = late | {"ready_p50_s": None}
    replicas = [p | {"slot": "s-1", "copy": 1} for p in data["placements"]]
    data["placements"] = [p for p in data["placements"] if p["slot"] != "s-1"] + replicas
    assert page.evaluate(why, [data, never]) == (
        "perhaps never ready: used only for tasks that are not done in another slot by then"
    )
    assert page.evaluate(why, [data, late | {"probability": 0.3}]) == ""
    page.close()


def test_a_chart_draws_the_clock_lost_slots_and_joins_replicas(browser, tmp_path):
    data = large_chart(4, 40) | {"now_s": 8000.0, "state": "running"}
    data["started"] = "2026-03-02T10:00:00+00:00"
    lost = data["slots"][1]
    lost |= {"state": "failed", "actual": {"ready_s": 100.0, "ended_s": 3000.0, "reason": "down"}}
    replica = data["placements"][0] | {"copy": 1, "slot": "s-2", "start_s": 4000.0}
    data["placements"].append(replica | {"end_s": 4400.0})
    page = chart_page(browser, tmp_path, data)
    assert page.evaluate("vgrads.chart.mode") == "both"
    texts = page.evaluate(TEXTS)
    assert "since start" in texts
    assert any(re.search(r"\d\d:\d\d", text) for text in texts)
    red = page.evaluate(
        """() => { const c = vgrads.chart, real = CanvasRenderingContext2D.prototype.stroke;
        const colours = []; CanvasRenderingContext2D.prototype.stroke = function (...rest) {
          colours.push([this.strokeStyle, this.lineWidth]); return real.apply(this, rest); };
        c.paint(); CanvasRenderingContext2D.prototype.stroke = real;
        return colours.filter(([colour, wide]) => colour === "#b3261e" && wide === 2.5).length; }"""
    )
    assert red == 1  # one cross
    page.evaluate("vgrads.chart.show('plan')")
    before = page.evaluate("vgrads.chart.canvas.toDataURL()")
    page.evaluate("vgrads.chart.join('w-0/t0'); vgrads.chart.paint()")
    assert page.evaluate("vgrads.chart.canvas.toDataURL()") != before
    page.close()


def test_the_sets_page_of_a_browser_without_scripts_answers_and_acts(browser, gallery, gallery_url):
    page = DESKTOP.open(browser, gallery_url, java_script_enabled=False)
    for state in ("below", "running", "met"):
        page.goto(f"/sets/{gallery.ids[state]}")
        assert page.locator("main svg.gantt").is_visible()
        assert page.locator("main svg.graph").is_visible()
    page.goto("/?order=name")
    page.fill("[name=find]", "lead-below")
    page.click("text=Show")
    page.wait_for_url("**find=lead-below*")
    assert page.locator("table.work a", has_text="lead-below").count()
    before = f"/sets/{gallery.ids['below']}"
    page.goto(before)
    page.click(".remedies button >> nth=0")
    page.wait_for_url(lambda url: not url.endswith(before))
    assert "Received." in page.text_content(".sentence")
    page.goto("/submit")
    page.fill("#text", "name: x")
    with page.expect_navigation():
        page.click("#send")
    assert "deadline" in page.text_content("#problem")
    page.context.close()


def test_a_set_that_is_deleted_while_its_page_is_open_says_so(browser, gallery, gallery_url):
    set_id = gallery.add(STORM | {"name": "short-lived"})
    page = DESKTOP.open(browser, gallery_url)
    page.goto(f"/sets/{set_id}")
    assert "Received." in page.text_content(".sentence")
    gallery.remove(set_id)
    page.locator("#note", has_text="This set was deleted").wait_for()
    assert "Received." in page.text_content(".sentence")
    page.goto(f"/sets/{set_id}")
    assert "no workflow set" in page.text_content("main")
    page.context.close()


def test_what_if_reports_a_mistake_and_the_end_of_its_set_in_place_of_the_answer(
    browser, gallery, gallery_url
):
    set_id = gallery.planned(SMALL | {"name": "short-lived"})
    page = DESKTOP.open(browser, gallery_url)
    page.goto(f"/sets/{set_id}/what-if")
    page.locator("#answer[data-ready=yes]", has_text="1 of 1 workflow").wait_for()
    move = """([least, value]) => { const slider = document.querySelector("[name=needed]");
      slider.min = least; slider.value = value;
      slider.dispatchEvent(new Event("input", {bubbles: true})); }"""
    page.evaluate(move, [0, 0])
    page.locator("#answer .error", has_text="needed").wait_for()
    page.evaluate(move, [1, 1])
    page.locator("#answer .chance").wait_for()
    remove_ended_set(gallery.store, set_id)
    page.check("[name=unlimited]")
    page.locator("#answer .error", has_text="This set was deleted").wait_for()
    assert page.get_attribute("#computed", "aria-busy") == "false"
    page.context.close()


def test_the_page_of_a_set_that_is_planned_shows_the_plan_by_itself(browser, gallery, gallery_url):
    set_id = gallery.add(STORM | {"name": "soon"})
    page = DESKTOP.open(browser, gallery_url)
    page.goto(f"/sets/{set_id}")
    assert page.locator("#gantt").count() == 0
    plan_stored_set(gallery.store, gallery.catalog, set_id)
    page.wait_for_selector("#gantt[data-drawn=planned]")
    page.context.close()


@pytest.mark.parametrize("name", ["<b>bold</b> & co", "w" * 200, "ع" * 200])
def test_any_name_fits_every_screen(browser, gallery, gallery_url, name):
    set_id = gallery.planned(STORM | {"name": name})
    for view in (DESKTOP, PHONE):
        page = view.open(browser, gallery_url)
        pages = (f"/sets/{set_id}{part}" for part in ("", "/run", "/what-if"))
        for path in ("/?order=newest", *pages):
            page.goto(path)
            page.wait_for_load_state("load")
            assert page.evaluate("document.documentElement.scrollWidth") == view.width, path
            assert page.locator("b", has_text="bold").count() == 0
        page.context.close()


def test_the_promise_beside_the_form_follows_the_newest_that_is_typed(
    browser, gallery_url, tmp_path
):
    page = DESKTOP.open(browser, gallery_url)
    delayed = []

    def answer(route):
        """Answer the first question only after the second."""
        if "deadline=1m" in route.request.post_data:
            delayed.append(route)
        else:
            route.continue_()

    page.route("**/submit/promise", answer)
    page.goto("/submit")
    settled(page)
    assert "6 of 8 workflows within 2h" in page.text_content("#answer")
    assert re.fullmatch(r"Run for \$\d+\.\d\d", page.text_content("#run").strip())
    page.fill("#deadline", "1m")
    assert page.is_disabled("#run")
    until(lambda: page.wait_for_timeout(50) or delayed)
    page.fill("#deadline", "3h")
    page.locator("#answer", has_text="within 3h").wait_for()
    for route in delayed:
        route.continue_()
    settled(page)
    assert "within 3h" in page.text_content("#answer")
    page.fill("#text", page.input_value("#text").replace("probability", "probabilty"))
    page.locator("#problem", has_text="line 5: probabilty").wait_for()
    assert page.get_attribute("#text", "aria-invalid") == "true"
    page.click(".at-line")
    assert page.evaluate("getSelection().toString()") == "probabilty: 0.9"
    page.select_option("#template", "commands")
    page.locator("#answer", has_text="2 of 2 workflows").wait_for()
    assert page.get_attribute("#text", "aria-invalid") is None
    file = tmp_path / "own.yaml"
    file.write_text("name: own\ndeadline: 1h\nworkflows:\n  - {file: lead.json}\n")
    page.set_input_files("#file", file)
    page.fill("#deadline", "30m")
    page.locator(".remedies button", has_text="Later deadline").click()
    page.locator("#answer", has_text="1 of 1 workflow within").wait_for()
    settled(page)
    assert page.input_value("#deadline") != "30m"
    assert page.is_visible("#run")
    page.context.close()

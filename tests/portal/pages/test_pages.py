"""The pages as a person meets them, in Chromium: hand over, watch, zoom, hover, ask why, what if;
for everybody."""

import json

import pytest

from tests.portal.pages.charts import PAINTED, large_chart
from tests.portal.serving import LEAD, Served
from tests.services.fixtures import CHROMIUM, there
from tests.waiting import until
from vgrads.portal.charts.exports import export
from vgrads.portal.charts.gantt import workflow_colours
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store

pytest.importorskip("playwright.sync_api")
STORM = LEAD | {"name": "lead-storm", "at_least": 6, "budget_usd": 40}


pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    there("" if CHROMIUM else "needs chromium")
    served = Served(tmp_path_factory.mktemp("pages"))
    yield served
    served.leave()


@pytest.fixture
def page(browser, service):
    """A page that fails its test if anything goes wrong in it, or if it asks anybody else for
    anything."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=service.url)
    context.set_default_timeout(60_000)  # on a busy machine
    item = context.new_page()
    troubles = []
    item.on("pageerror", lambda error: troubles.append(str(error)))
    item.on(
        "console",
        lambda text: (
            troubles.append(text.text)
            if text.type == "error" and "status of 422" not in text.text
            else None
        ),
    )
    item.on(
        "request",
        lambda requested: (
            troubles.append(requested.url)
            if not requested.url.startswith((service.url, "data:", "blob:"))
            else None
        ),
    )
    yield item
    context.close()
    assert troubles == []


def drawn(page, state):
    page.wait_for_selector(f"#gantt[data-drawn={state}]", timeout=120_000)  # on a busy machine
    wait_for(page, PAINTED)


def begin(page, speed):
    """Run a set, having been told what it costs."""
    page.click("#run")
    page.wait_for_selector("#ask-run form")
    assert "$" in page.text_content("#ask-run")
    page.select_option("#ask-run select", speed)
    with page.expect_navigation():
        page.click("#ask-run button")


def view(page):
    return page.evaluate("vgrads.chart.view")


def planned(service, document):
    """A set with a plan; on a busy machine that takes longer than its submission waits for."""
    client = service.client()
    set_id = client.submit(document)
    until(lambda: client.read(set_id)["state"] == "planned", "the plan", 60)
    return set_id


def wait_for(page, expression, arg=None, seconds=180):
    """Until an expression is true; asked from outside, for the pages themselves may evaluate
    nothing."""
    until(lambda: page.evaluate(expression, arg), expression, seconds)


def middle_of(page, task):
    """Where the bar of a task stands on the page."""
    return page.evaluate(
        """name => { const c = vgrads.chart, h = c.hits.find(h => h.bar &&
        `${h.bar.item.workflow}/${h.bar.item.task}` === name); c.canvas.scrollIntoView();
        window.scrollBy(0, h.y - 300); const box = c.canvas.getBoundingClientRect(); return [box.x +
        h.x + h.w / 2, box.y + h.y - c.scroll + h.h / 2]; }""",
        task,
    )


def test_a_set_is_handed_over_run_and_watched(page):
    page.goto("/submit")
    page.fill("#text", json.dumps(STORM))
    page.click("#send")
    page.wait_for_url("**/sets/set-*")
    drawn(page, "planned")
    assert "6 workflows" in page.text_content(".sentence")
    begin(page, "120")  # slow enough that all of this is seen before it ends
    drawn(page, "running")
    assert not page.is_visible("#run")
    wait_for(page, "/ now/.test(document.getElementById('status').textContent)")
    wait_for(page, "vgrads.chart.data.now_s > 1800")
    page.wait_for_selector("#gantt[data-ended]", timeout=120_000)
    drawn(page, "kept")
    page.locator("#status strong", has_text="Met").wait_for()
    page.wait_for_selector("#promise svg")
    page.goto("/")
    assert "met" in page.text_content("table")


def test_a_run_is_cancelled_from_its_page(page, service):
    page.goto(f"/sets/{service.client().submit(STORM)}")
    drawn(page, "planned")
    begin(page, "120")
    drawn(page, "running")
    wait_for(page, "vgrads.chart.data.now_s != null")  # it has begun
    page.click("#cancel")
    page.wait_for_selector("#ask-cancel form")
    assert "are spent" in page.text_content("#ask-cancel")
    with page.expect_navigation():
        page.click("#ask-cancel button")
    drawn(page, "cancelled")
    assert "Cancelled" in page.text_content("#status strong")


def test_the_sentence_changes_no_later_than_the_chart(page, service):
    client = service.client()
    set_id = client.submit(STORM)
    page.goto(f"/sets/{set_id}")
    drawn(page, "planned")
    begin(page, "120")
    drawn(page, "running")
    slow, delayed = True, []

    def answer(route):
        """Answer how the run is once the service is no longer slow."""
        if slow:
            delayed.append(route)
        else:
            route.continue_()

    page.route("**/status", answer)
    client.cancel(set_id)
    wait_for(page, "vgrads.chart.data.state === 'cancelled'")
    assert page.get_attribute("#gantt", "data-drawn") == "running"
    slow = False
    for route in delayed:
        route.continue_()
    drawn(page, "cancelled")
    assert "Cancelled" in page.text_content("#status strong")


def test_the_chart_zooms_pans_folds_and_comes_back(page, service):
    page.goto(f"/sets/{service.client().submit(STORM)}")
    drawn(page, "planned")
    whole = view(page)
    page.click("text=+")
    inside = view(page)
    assert inside[1] - inside[0] < 0.8 * (whole[1] - whole[0])
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 700, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 200, steps=5)
    page.mouse.up()
    moved = view(page)
    assert moved[0] > inside[0]
    page.focus("canvas")
    page.keyboard.press("ArrowLeft")
    assert view(page)[0] < moved[0]
    page.mouse.wheel(0, -300)
    wait_for(page, "w => vgrads.chart.view[1] - vgrads.chart.view[0] < w", moved[1] - moved[0])
    page.keyboard.press("0")
    assert view(page) == whole
    page.click("text=Fold idle time")
    assert page.evaluate("vgrads.chart.total") <= whole[1] + 1e-6
    page.dblclick("canvas", position={"x": 600, "y": 100})


def test_hovering_and_clicking_tell_what_and_why(page, service):
    page.goto(f"/sets/{service.client().submit(STORM)}")
    drawn(page, "planned")
    x, y = middle_of(page, "lead-5/wrf")
    page.mouse.move(x, y)
    assert "lead-5 · wrf" in page.text_content(".gantt-tip")
    page.mouse.click(x, y)
    wait_for(page, "document.querySelector('.gantt-detail').textContent.includes('Why there?')")
    assert "Phase" in page.text_content(".gantt-detail")
    page.focus("canvas")
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    wait_for(page, "document.querySelector('.gantt-detail').textContent.includes('Why there?')")
    assert page.get_attribute("canvas", "aria-label").count("probability") == 1
    page.click(".key >> nth=0")
    assert page.evaluate("vgrads.chart.only") == "lead-1"


def wait_for_points(page):
    """Until all points are computed: each needs a plan of its own, in a process whose priority is
    below that of all else here."""
    wait_for(page, "document.getElementById('computed').dataset.again === 'no'", seconds=240)


def test_what_if_draws_the_promise_against_deadline_and_budget(page, service):
    page.goto(f"/sets/{planned(service, STORM)}/what-if")
    shown = set()  # while the points appear one after the other

    def are_complete():
        shown.add(page.text_content("#progress"))
        return page.locator("#progress", has_text="All ").count()

    until(are_complete, "all points", 240)
    assert len({words for words in shown if "are computed;" in words}) >= 3
    deadlines, budgets = (page.locator(".curves section").nth(n) for n in (0, 1))
    for curve, least in ((deadlines, 8), (budgets, 9)):
        assert curve.locator("circle title").count() >= least
        label = curve.locator("svg").get_attribute("aria-label")
        assert all(
            row.inner_text().split("\t")[0] in label for row in curve.locator("tbody tr").all()
        )
    before = page.text_content("#answer")
    page.focus("[name=needed]")
    page.keyboard.press("Home")
    assert page.get_attribute("#computed", "aria-busy") == "true"
    page.locator("#answer", has_text="1 of 8 workflows").wait_for()
    wait_for_points(page)
    assert page.text_content("#needed-text") == "1 of 8"
    assert page.text_content("#answer") != before
    assert "The set as it is" in page.text_content("#answer")


def test_a_queue_shows_its_bounds_and_its_record(page):
    page.goto("/sites")
    page.click("a[href='/sites/mercury/default']")
    page.fill("[name=procs]", "16")
    page.click("text=Ask")
    page.wait_for_url("**procs=16*", wait_until="domcontentloaded")
    assert "0.99" in page.text_content("table")
    wait_for(page, "document.querySelector('figure img').naturalWidth > 300")


def test_mistakes_are_reported_next_to_the_form(page):
    page.goto("/submit")
    for text, line in (
        ("a: [", "cannot be parsed"),
        ("{}", "name"),
        ("3", "mapping"),
        ("a: " + "[" * 3000, "cannot be parsed"),
    ):
        page.fill("#text", text)
        page.click("#send")
        wait_for(page, "t => document.getElementById('problem').textContent.includes(t)", line)
        assert page.url.endswith("/submit")  # nothing was handed over


def test_a_page_of_its_own_draws_thousands_of_bars_without_a_service(browser, tmp_path):
    file = tmp_path / "big.html"
    file.write_bytes(export(large_chart(60, 5000), "html", "said", {"w-0/t0/0": "because"}))
    context = browser.new_context(offline=True)
    page = context.new_page()
    troubles = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(file.as_uri())
    wait_for(page, PAINTED)
    frame_ms = page.evaluate(
        """async () => { const canvas = document.querySelector("canvas"); const times = [];
        canvas.focus();
        for (let i = 0; i < 20; i++) { const began = performance.now();
          canvas.dispatchEvent(new KeyboardEvent("keydown", {key: i % 2 ? "ArrowRight" : "+",
          bubbles: true})); await new Promise(r => requestAnimationFrame(() =>
          requestAnimationFrame(r))); times.push(performance.now() - began); }
        return times.sort((a, b) => a - b)[10]; }"""
    )
    (tmp_path / "frame.txt").write_text(
        f"{frame_ms:.1f} ms between a key and the picture, 5,000 bars\n"
    )
    page.focus("canvas")
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    wait_for(page, "document.querySelector('.gantt-detail').textContent.includes('because')")
    context.close()
    assert troubles == []


def test_a_page_of_its_own_shows_every_lane_and_the_same_colours_as_pictures(browser, tmp_path):
    data = large_chart(60, 300) | {"deadline_s": 400_000.0}
    file = tmp_path / "lanes.html"
    file.write_bytes(export(data, "html"))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    wait_for(page, PAINTED)
    assert page.evaluate("Object.fromEntries(vgrads.colours(vgrads.chart.data.workflows))") == (
        workflow_colours(data["workflows"])
    )
    tall = page.evaluate("[vgrads.chart.scroller.scrollHeight, vgrads.chart.scroller.clientHeight]")
    assert tall[0] > tall[1]  # it scrolls, and the bar is seen
    page.evaluate("vgrads.chart.scroller.scrollTo(0, 1e6)")
    wait_for(
        page,
        (
            "vgrads.chart.hits.some(h => h.lane && h.lane.slot.id === 's-59' && h.y + h.h <= "
            "vgrads.chart.scroll + vgrads.chart.height)"
        ),
    )
    observed, whole = page.evaluate("[vgrads.chart.view[1], vgrads.chart.total]")
    assert observed < 0.15 * whole  # fitted to what there is
    page.click("text=To the deadline")
    assert view(page)[1] == whole
    page.click("text=Fit")
    assert view(page)[1] == observed
    assert {"deadline", "now", "a replica of a task"} <= set(
        page.locator(".legend span").all_text_contents()
    )
    page.close()


def test_a_person_logs_in_and_sees_only_their_own(browser, tmp_path):
    with Store(f"sqlite:///{tmp_path / 'vgrads.db'}") as store:
        access = AccessControl(store.engine)
        ann, _ = access.create("ann", ["submit"], 3600.0)
        bob, _ = access.create("bob", ["submit"], 3600.0)
    served = Served(tmp_path)
    try:
        served.client(bob).submit(LEAD | {"name": "of-bob"})
        context = browser.new_context(base_url=served.url)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.goto("/")
        page.wait_for_url("**/login")
        page.fill("#token", ann)
        page.click("text=Log in >> nth=-1")
        page.wait_for_selector("main[data-page=work]")
        assert "of-bob" not in page.content()
        page.goto("/submit")
        page.fill("#text", json.dumps(LEAD | {"name": "of-ann"}))
        page.click("#send")
        page.wait_for_url("**/sets/set-*")
        drawn(page, "planned")
        page.click("#logout")
        page.wait_for_url("**/login")
        context.close()
    finally:
        served.leave()

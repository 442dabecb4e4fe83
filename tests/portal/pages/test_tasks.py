"""The table of a set's tasks, and the page of a task: what has no value is not shown, no word is
broken, and every attempt has its times and its place in the chart."""

import re

import pytest

from tests.portal.pages.charts import PAINTED
from tests.portal.pages.pictures import DESKTOP, PHONE, View, settled
from tests.portal.pages.test_page_states import open_page
from tests.waiting import until
from vgrads.portal.charts.pages import breakable
from vgrads.portal.web.sets.task_table import table_of, task_rows

PLACED = {"workflow": "w", "task": "a", "slot": "here-1", "state": "waiting"}
ENDED = PLACED | {
    "state": "failed",
    "exit": 0,
    "seconds": 0.0456,
    "times": None,
    "site": "here",
    "reason": None,
}


def columns(placements, attempts=(), again=False):
    return [cell.label for cell in table_of("set-1", task_rows(placements, attempts), again)[0]]


def test_a_column_without_any_value_is_not_shown():
    assert columns([PLACED]) == ["Task", "State", "Slot"]
    assert columns([PLACED, PLACED | {"task": "b", "reason": "lost"}])[-1] == "Reason"
    failed = PLACED | {"state": "failed"}
    times = {"waited_s": 100.0, "out_s": 23.4, "own_s": 0.00123, "ran_s": 5.0}
    shown = ["Task", "State", "Attempts", "Exit code", "Elapsed"]
    assert columns([failed], [ENDED]) == [*shown, "Slot"]
    assert columns([failed], [ENDED | {"times": times}]) == [*shown, "Overhead", "Slot"]
    (row,) = table_of("set-1", task_rows([failed], [ENDED | {"times": times}]), False)
    cells = {cell.label: cell for cell in row}
    assert (cells["Exit code"].text, cells["Elapsed"].text) == ("0", "0.0456 s")
    assert cells["Overhead"].text == "120 s"
    words = ("waited for its place", "for its outputs", "of the manager itself")
    parts = [f"{n} s {text}" for n, text in zip((100, 23, 0.0012), words, strict=True)]
    assert cells["Overhead"].title == ", ".join(parts)


def test_only_tasks_with_a_page_are_links():
    rows = task_rows([PLACED | {"task": "a/b", "state": "cancelled"}, PLACED], [])
    assert [row[0].path for row in table_of("set-1", rows, False)] == ["", ""]
    assert {row[0].path for row in table_of("set-1", rows, True)} == {
        "/sets/set-1/tasks/w/a%2Fb",
        "/sets/set-1/tasks/w/a",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lead-1/wrf", "<bdi>lead-1/<wbr>wrf</bdi>"),
        ("boundary_interpolator.sh", "<bdi>boundary_<wbr>interpolator.<wbr>sh</bdi>"),
        ("after 0.5 s", "<bdi>after 0.5 s</bdi>"),
        ("<b>", "<bdi>&lt;b&gt;</bdi>"),
        ("w" * 28, f"<bdi>{'w' * 28}</bdi>"),
        ("ع" * 200, f'<span title="{"ع" * 200}"><bdi>{"ع" * 19}…{"ع" * 8}</bdi></span>'),
    ],
)
def test_a_text_breaks_only_where_its_words_end(text, shown):
    assert breakable(text) == shown


def test_a_replica_has_its_times_its_slot_and_its_place_in_the_chart(client, gallery):
    base = f"/sets/{gallery.ids['met']}"
    table = open_page(client, f"{base}/tasks")
    path = re.search(rf'href="({base}/tasks/lead-1/wrf)"', table)[1]
    page = open_page(client, path)
    assert re.search(r"<h2>Replica \d of \d, attempt 1: done, exit 0</h2>", page)
    instants = re.findall(r'datetime="([^"]+)"', page)
    assert instants == sorted(set(instants))
    assert len(instants) == 2
    slot = re.search(rf'href="{re.escape(base)}\?slot=([^#]+)#gantt">([^<]+)</a>', page)
    assert slot[1] == slot[2]
    assert f'href="{base}?task=lead-1%2Fwrf#gantt"' in page
    assert client.get(f"{base}/tasks/lead-1/{'w' * 200}").status_code == 404
    assert client.get(f"{base}/tasks/lead-1/{'w' * 201}").status_code in (404, 422)


@pytest.mark.services
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=lambda view: view.name)
def test_a_task_is_opened_in_the_chart(browser, gallery, gallery_url, view):
    page = view.open(browser, gallery_url)
    page.goto(f"/sets/{gallery.ids['met']}/tasks/lead-1/wrf")
    page.click("text=In the chart")
    settled(page)
    until(lambda: page.evaluate(PAINTED), "the chart")
    assert page.evaluate("vgrads.chart.focused().item.workflow") == "lead-1"
    assert "lead-1 · wrf" in page.text_content(".gantt-detail")
    assert page.locator("#gantt").bounding_box()["y"] < view.height
    page.goto(f"/sets/{gallery.ids['met']}?task=none&slot=none#gantt")
    settled(page)
    assert page.evaluate("vgrads.chart.focused()") is None
    page.context.close()


@pytest.mark.services
def test_no_word_of_a_table_is_broken(browser, gallery, gallery_url):
    page = View("narrow", 700, 800).open(browser, gallery_url)
    page.goto(f"/sets/{gallery.ids['running']}/tasks")
    lines = page.evaluate(
        "[...document.querySelectorAll('table.tasks td[data-label=State]')].map(e => {"
        " const range = document.createRange(); range.selectNodeContents(e);"
        " return new Set([...range.getClientRects()].map(box => box.bottom)).size; })"
    )
    assert set(lines) == {1}
    page.context.close()

"""Results print in a few lines and draw themselves, without scripts and addresses."""

import re
from xml.etree import ElementTree

import pytest

from tests.conftest import DATA
from tests.interface.conftest import LOG
from vgrads import Bag, backtest, bound, offers, plan, probability, read_set, run

PNG = b"\x89PNG\r\n"
REQUEST = "grid g for 1h by 4h with 50% {{ n = loose {} nodes }}"


def results(plan_result):
    """One result of each kind, and the odd cases."""
    wait = bound(LOG, 16, "2h", method="qbets")
    return {
        "set": read_set(DATA / "lead-storm.yaml"),
        "bound": wait,
        "state bound": bound(LOG, 16, "2h"),
        "no bound": bound(LOG, 16, "2h", probability=0.99999, method="qbets"),
        "start of the log": bound(LOG, 1, 60, at=0.0),
        "trajectory": wait.trajectory("6h"),
        "no trajectory": wait.trajectory("1m", 0.999),
        "probability": probability(LOG, within=60),
        "backtest": backtest([LOG, LOG], method="qbets"),
        "clusters": backtest(LOG, "cluster", method="qbets", levels=()),
        "offers": offers(REQUEST.format(2)),
        "too few": offers(REQUEST.format(5000)),
        "plan": plan_result,
        "no plan": plan(DATA / "lead.yaml", deadline="2m"),
        "run": run(plan_result),
    }


@pytest.fixture(scope="module")
def shown(plan_result):
    return results(plan_result)


@pytest.mark.more
def test_every_result_prints_in_a_few_lines(shown):
    for name, result in shown.items():
        lines = repr(result).splitlines()
        assert 2 <= len(lines) <= 5, (name, lines)
        assert not re.search(r"<\w+ object|\bnan\b|None", repr(result)), (name, lines)


def test_pages_are_well_formed_and_self_contained(shown):
    pages = {n: r._repr_html_() for n, r in shown.items() if hasattr(r, "_repr_html_")}
    assert len(pages) >= 14
    for name, page in pages.items():
        ElementTree.fromstring(page)
        addresses = set(re.findall(r"https?://[^\"' <]+", page)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, name
        assert "<script" not in page and ' id="' not in page and "url(" not in page, name
        assert "nan" not in page, name
    ElementTree.fromstring(f"<main>{''.join(pages.values())}{pages['run']}</main>")


def test_charts_have_their_curves(shown):
    svg = "{http://www.w3.org/2000/svg}"

    def count(name, kind):
        return len(list(ElementTree.fromstring(shown[name]._repr_html_()).iter(svg + kind)))

    assert count("bound", "svg") == 2  # the start over the wait, and the trajectory
    assert count("no bound", "svg") == 1
    assert count("backtest", "polyline") == 2  # stated and observed
    assert count("backtest", "circle") == 4
    assert count("plan", "rect") > len(shown["plan"].placements)
    assert count("no plan", "svg") == 0


def test_text_of_users_is_escaped():
    bag = Bag(commands=["echo '<b>&' >&2; false"], name="<i>", retries=0)
    page = bag.run()._repr_html_()
    assert "<i>" not in page and "<b>" not in page
    assert "&lt;b&gt;&amp;" in ElementTree.tostring(ElementTree.fromstring(page)).decode()


@pytest.mark.more
def test_png_where_matplotlib_is_installed(shown):
    pytest.importorskip("matplotlib")
    for name in ("bound", "no bound", "trajectory", "backtest", "offers", "plan", "run"):
        assert shown[name]._repr_png_().startswith(PNG), name
    assert shown["no plan"]._repr_png_() is None


def test_charts_in_files(shown, tmp_path):
    for name in ("offers", "plan", "run"):
        for ending, begin in (("html", b"<!doctype"), ("svg", b"<svg"), ("png", PNG)):
            path = shown[name].gantt(tmp_path / f"{name}.{ending}")
            assert path.read_bytes()[:10].lower().startswith(begin.lower())

"""Pictures of every page and state: ``python -m tests.portal.pages.pictures docs/pictures``."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.portal.pages.charts import PAINTED
from tests.portal.pages.gallery import Gallery, served
from tests.services.fixtures import CHROMIUM
from tests.waiting import until
from vgrads.portal.records.store import Store

_QUALITY = 55


@dataclass(frozen=True)
class View:
    """A screen: its size in pixels, and its colours."""

    name: str
    width: int
    height: int
    scheme: str = "light"

    def open(self, browser: Browser, url: str, **options: Any) -> Page:
        """A page of this screen."""
        size = {"width": self.width, "height": self.height}
        context = browser.new_context(
            viewport=size, base_url=url, color_scheme=self.scheme, **options
        )
        context.set_default_timeout(60_000)  # on a busy machine
        return context.new_page()


DESKTOP, PHONE = View("desktop", 1280, 800), View("phone", 390, 844)
VIEWS = (DESKTOP, View("dark", 1280, 800, "dark"), PHONE)
_EVERY_VIEW = ("set-", "home")
"""Beginnings of the names of pages of which the documentation has all views."""


def addresses(gallery: Gallery) -> dict[str, str]:
    """Pages by name: of every state of a set, and of everything else."""
    states = {f"set-{name}": f"/sets/{id_}" for name, id_ in gallery.ids.items()}
    running = gallery.ids["running"]
    return states | {
        "home": "/",
        "home-filtered": "/?state=at+risk&order=due",
        "tasks": f"/sets/{running}/tasks",
        "graph": f"/sets/{running}/graph",
        "status": f"/sets/{running}/status",
        "logs": f"/sets/{gallery.ids['met']}/tasks/lead-1/wrf",
        "confirm-run": f"/sets/{gallery.ids['planned']}/run",
        "confirm-cancel": f"/sets/{running}/cancel",
        "what-if": f"/sets/{gallery.ids['below']}/what-if",
        "submit": "/submit",
        "history": "/history?name=lead-met&owner=ann",
        "bags": "/?kind=bag",
        "bag": f"/bags/{gallery.bags['sweep']}",
        "bag-goal": f"/bags/{gallery.bags['nightly']}",
        "bag-why": f"/bags/{gallery.bags['sweep']}/why?task=30",
        "pools": "/pools",
        "pool": f"/pools/{gallery.pool}",
        "sites": "/sites",
        "queue": "/sites/mercury/default",
        "scores": "/scores",
        "api": "/api",
        "tokens": "/tokens",
        "login": "/login",
        "missing": "/sets/set-0000000000",
    }


def settled(page: Page) -> None:
    """Until the page is drawn."""
    page.wait_for_load_state("load")
    if page.locator("#gantt").count():
        page.wait_for_selector("#gantt[data-drawn]")
        until(lambda: page.evaluate(PAINTED), "the chart")
    if page.locator("#answer").count():
        page.locator("#answer[data-ready=yes]").wait_for(state="attached")
    if page.locator("#status[data-stored=running]").count():
        page.locator("#status .sentence strong", has_text=" now").wait_for()
    page.wait_for_timeout(150)  # a frame


def save(page: Page, file: Path, full: bool = False) -> None:
    """A small picture of what is on the screen."""
    image = Image.open(io.BytesIO(page.screenshot(full_page=full)))
    image.convert("RGB").save(file, "WEBP", quality=_QUALITY, method=6)


def take(gallery: Gallery, url: str, folder: Path, only: str = "", full: bool = False) -> None:
    """Pictures of all pages in all views."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for view in VIEWS:
            page = view.open(browser, url)
            for name, path in addresses(gallery).items():
                shown = view is DESKTOP or name.startswith(_EVERY_VIEW) or bool(only)
                if shown and only in f"{name}-{view.name}":
                    page.goto(path)
                    settled(page)
                    if page.locator("#computed").count():  # a plan for each point of the curves
                        page.locator("#computed[data-again=no]").wait_for(timeout=240_000)
                    save(page, folder / f"{name}-{view.name}.webp", full)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["VGRADS_HOME"] = home
        with Store() as opened:
            sets = Gallery(opened)
            sets.fill()
            with served(opened, sets) as address:
                take(sets, address, Path(sys.argv[1]))

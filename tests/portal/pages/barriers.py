"""What keeps people from reading a page, found by axe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
COLOURS = ("color-contrast", "link-in-text-block")
"""Rules that depend on the colours of a page."""


def barriers(page: Page, *rules: str) -> list[list[str]]:
    """Each barrier with the first element that is one; by all rules, or by these. Only that leaves
    the browser: what axe tells besides takes longer to read than to find."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    options = {"runOnly": rules or _RULES, "resultTypes": ["violations"]}
    page.evaluate(axe.Axe().axe_script)
    result: list[list[str]] = page.evaluate(
        f"axe.run({json.dumps(options)})"
        ".then(done => done.violations.map(found => [found.id, found.nodes[0].html]))"
    )
    return result

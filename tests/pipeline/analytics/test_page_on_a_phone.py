"""The page on a phone of 360 px, in a real browser: nothing scrolls sideways, and each figure keeps its name."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.analytics.page import page
from pipeline.analytics.texts import LANGUAGES, Texts
from tests.pipeline.analytics.test_page import HOSTILE, _digest

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium")
WIDTH = 360
# Elements that a reader could move sideways, and texts that stand outside of the screen.
WIDER = """() => [...document.querySelectorAll('main *')].filter(one => {
    const box = one.getBoundingClientRect();
    const scrolls = !one.closest('svg') && one.scrollWidth > one.clientWidth + 1
        && getComputedStyle(one).overflowX !== 'visible' && getComputedStyle(one).display !== 'inline';
    return scrolls || (!one.closest('.touch') && box.width > 0 && (box.left < -1 || box.right > innerWidth + 1));
}).map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def phone() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
    if CHROMIUM is None:
        pytest.skip("tests in a browser need chromium (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": WIDTH, "height": 740})
        browser.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_scrolls_sideways_at_360_pixels(phone: Any, language: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(_digest([*HOSTILE, "W" * 80, *"abc"]), Texts(language)), encoding="utf-8")
    phone.goto(file.as_uri())
    assert phone.evaluate("document.documentElement.scrollWidth") == WIDTH
    assert phone.evaluate(WIDER) == []
    # A row is a block here, so the heads of the columns stand beside the figures.
    behind = Texts(language)("#behind at the end").removeprefix("#")
    cell = phone.locator(f'td[data-label="{behind}"]').first
    assert cell.evaluate("one => getComputedStyle(one, '::before').content") == f'"{behind}"'
    phone.screenshot(path=str(tmp_path / f"phone-{language}.png"), full_page=True)

"""The page in a real browser: at three widths, light and dark, drawn by the real plotly.js under the page's policy."""

from pathlib import Path

import anyio
import pytest

from kai.lab.report.page import page_of
from tests.doubles.browser import FAULTS, PATIENCE, browsing, find_browser
from tests.unit.lab.report.builders import reclaimed, sooner

BROWSER = find_browser()
LOOKS = [(width, scheme) for width in (360, 1024, 1600) for scheme in ("light", "dark")]
DRAWN = """
[...document.querySelectorAll("[data-chart]")].every((each) => each.querySelector(".main-svg"))
  && document.querySelectorAll("[data-chart]").length
"""
TEXTS = """
[...new Set([...document.querySelectorAll(".chart .main-svg text")].map((each) => getComputedStyle(each).fill))]
"""
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, in which pages could be looked at")


async def drawn(tab, url: str) -> int:
    await tab.show(url)
    for _ in range(int(PATIENCE / 0.05)):
        if count := await tab.evaluate(DRAWN):
            return count
        await anyio.sleep(0.05)
    raise TimeoutError(f"{url}: found charts that are not drawn, expected all of them")


def test_the_page_draws_readable_and_without_errors_or_requests(tmp_path: Path):
    pytest.importorskip("plotly", reason="the extra report is not installed")
    path = tmp_path / "page.html"
    path.write_text(page_of([reclaimed(), sooner()], command="kai", program="kai"), encoding="utf-8")

    async def scenario():
        async with browsing(BROWSER) as tab:
            for width, scheme in LOOKS:
                await tab.look(width, scheme=scheme)
                assert await drawn(tab, path.as_uri()) > 10
                assert await tab.evaluate(FAULTS) == [], (width, scheme)
                color = "rgb(31, 35, 40)" if scheme == "light" else "rgb(230, 237, 243)"
                assert await tab.evaluate(TEXTS) == [color]
            assert tab.said == []
            assert set(tab.loaded) <= {path.as_uri(), "data:,"}

    anyio.run(scenario)


def test_numbers_are_readable_without_script_and_by_keyboard(tmp_path: Path):
    pytest.importorskip("plotly", reason="the extra report is not installed")
    path = tmp_path / "page.html"
    path.write_text(page_of([reclaimed()], command="kai", program="kai"), encoding="utf-8")

    async def scenario():
        async with browsing(BROWSER) as tab:
            await tab.look(1024)
            await drawn(tab, path.as_uri())
            await tab.evaluate('document.querySelector("details summary").focus()')
            await tab.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r")
            assert await tab.evaluate('document.querySelector("details").open') is True
            assert await tab.evaluate('document.querySelector("details table").checkVisibility()') is True
            await tab.look(1024, script=False)
            await tab.show(path.as_uri())
            root = await tab.send("DOM.getDocument", depth=1)
            text = (await tab.send("DOM.getOuterHTML", nodeId=root["root"]["nodeId"]))["outerHTML"]
            assert "Charts need JavaScript" in text
            assert tab.said == []

    anyio.run(scenario)

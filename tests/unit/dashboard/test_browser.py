"""The pages in a real browser: at three widths, light and dark, with the script and without it."""

from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from kai.cluster.clock import SystemClock
from kai.dashboard.access import LocalAccess
from kai.dashboard.desk import Desk
from kai.dashboard.feed import Feed
from kai.dashboard.pages import make_pages
from kai.dashboard.server import LIMITS, Dashboard
from kai.telemetry.connections import serve
from tests.doubles.browser import PATIENCE, browsing, find_browser
from tests.doubles.two_tenants import OURS, moment

BROWSER = find_browser()
PAGES = ("", "queues", "queues/team-amber", "jobs", f"jobs/{OURS}/ours-waits", "nodes", "waiting", "cycles")
LOOKS = [(width, scheme) for width in (360, 1024, 1600) for scheme in ("light", "dark")]
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, in which pages could be looked at")

FAULTS = """
(() => {
  const found = [];
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (at) => {
    for (; at; at = at.parentElement) {
      const color = numbers(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  for (const each of document.querySelectorAll("main *, header *")) {
    const text = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || each.closest("svg") || !each.checkVisibility()) continue;
    const style = getComputedStyle(each);
    const [one, other] = [light(numbers(style.color)), light(ground(each))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) found.push(`contrast: ${each.tagName} ${each.textContent.slice(0, 40)}`);
  }
  for (const each of document.querySelectorAll("svg[role=img]:not([aria-label])")) found.push(each.outerHTML);
  for (const each of document.querySelectorAll("input:not([id])")) found.push("an input without a label");
  for (const each of document.querySelectorAll("a, button")) if (!each.textContent.trim()) found.push("an empty link");
  if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
  if (!document.documentElement.lang) found.push("no language");
  if (document.documentElement.scrollWidth > innerWidth) found.push("wider than the window");
  return found;
})()
"""


@asynccontextmanager
async def shown():
    """Serve the dashboard on this machine; yield its feed, its address and a tab."""
    feed = Feed()
    feed.show(moment())
    clock = SystemClock()
    desk, access = Desk(feed, clock), LocalAccess()
    pages = make_pages(desk, access, clock, lambda: [("ready", "yes", True)])
    board = Dashboard(desk=desk, access=access, pages=pages)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        port = await tasks.start(serve, "127.0.0.1", 0, board.respond, LIMITS)
        async with browsing(BROWSER) as tab:
            yield feed, f"http://127.0.0.1:{port}", tab
        tasks.cancel_scope.cancel()


async def until(tab, expression):
    """Wait until an expression is true in the page."""
    with anyio.fail_after(PATIENCE):
        while not await tab.evaluate(expression):  # noqa: ASYNC110 - what it waits for is in another program
            await anyio.sleep(0.1)


def test_pages_are_readable_say_nothing_on_the_console_and_load_from_here_only():
    async def scenario():
        async with shown() as (_, base, tab):
            for width, scheme in LOOKS:
                await tab.look(width, scheme=scheme)
                for page in PAGES:
                    await tab.show(f"{base}/{page}")
                    assert await tab.evaluate(FAULTS) == [], (page, width, scheme)
            assert tab.said == []
            assert {url.partition("/static")[0][: len(base)] for url in tab.loaded} == {base}

    anyio.run(scenario)


def test_pages_are_whole_without_the_script():
    async def scenario():
        async with shown() as (_, base, tab):
            await tab.look(1024, script=False)
            await tab.show(f"{base}/jobs")
            root = await tab.send("DOM.getDocument", depth=1)
            text = (await tab.send("DOM.getOuterHTML", nodeId=root["root"]["nodeId"]))["outerHTML"]
            assert "ours-waits" in text
            assert not [url for url in tab.loaded if "/events" in url]
            assert tab.said == []

    anyio.run(scenario)


def test_a_page_follows_the_cycles_and_keeps_the_focus_and_what_is_unfolded():
    async def scenario():
        async with shown() as (feed, base, tab):
            await tab.look(1024)
            await tab.show(f"{base}/jobs/{OURS}/ours-waits")
            await until(tab, 'document.getElementById("mark").textContent === "cycle 1"')
            await tab.evaluate('document.querySelector("details").open = true')
            await tab.evaluate('document.querySelector("#explanation summary").focus()')
            last = feed.moment.outcome.last
            snapshot = attrs.evolve(last.snapshot, now=last.snapshot.now + 3600)
            cycle = attrs.evolve(last, number=2, snapshot=snapshot)
            feed.show(attrs.evolve(feed.moment, outcome=attrs.evolve(feed.moment.outcome, cycles=(cycle,))))
            await until(tab, 'document.getElementById("mark").textContent === "cycle 2"')
            assert await tab.evaluate('document.querySelector("details").open') is True
            assert await tab.evaluate("document.activeElement.tagName") == "SUMMARY"
            assert tab.said == []

    anyio.run(scenario)

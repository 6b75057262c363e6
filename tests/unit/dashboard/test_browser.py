"""The pages in a real browser: at three widths, light and dark, with the script and without it."""

from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from kai.cli.sources import Source
from kai.cluster.clock import SystemClock
from kai.cluster.process.connections import serve
from kai.dashboard.access import LocalAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import CycleLine, EndedCycle, Feed
from kai.dashboard.pages import make_pages
from kai.dashboard.server import LIMITS, Dashboard
from tests.doubles.browser import FAULTS, PATIENCE, Tab, browsing, find_browser
from tests.doubles.two_tenants import OURS, ended_cycle

BROWSER = find_browser()
PAGES = ("", "queues", "queues/team-amber", "jobs", f"jobs/{OURS}/ours-waits", "nodes", "waiting", "finished", "cycles")
LOOKS = [(width, scheme) for width in (360, 800, 1024, 1600) for scheme in ("light", "dark")]
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, in which pages could be looked at")


@attrs.frozen
class Shown:
    """A dashboard that is served, and a tab."""

    feed: Feed
    board: Dashboard
    port: int
    tab: Tab

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    def show(self, number):
        """End a cycle of this number, an hour after the first for each."""
        last = self.feed.cycle.outcome.last
        snapshot = attrs.evolve(last.snapshot, now=last.snapshot.now + 3600)
        cycle = attrs.evolve(last, number=number, snapshot=snapshot)
        moved = attrs.evolve(self.feed.cycle.outcome, cycles=(cycle,))
        self.feed.show(attrs.evolve(self.feed.cycle, outcome=moved))


async def serving(board, port, *, task_status):
    await serve("127.0.0.1", port, board.respond, LIMITS, task_status=task_status)


@asynccontextmanager
async def shown():
    """Serve the dashboard on this machine."""
    feed = Feed()
    feed.show(ended_cycle())
    clock = SystemClock()
    answers, access = AnswerCache(feed, clock), LocalAccess()
    pages = make_pages(answers, access, clock, lambda: [("ready", "yes", True)])
    board = Dashboard(answers=answers, access=access, pages=pages)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        port = await tasks.start(serving, board, 0)
        async with browsing(BROWSER) as tab:
            yield Shown(feed, board, port, tab)
        tasks.cancel_scope.cancel()


async def until(tab, expression):
    """Wait until an expression is true in the page."""
    with anyio.fail_after(PATIENCE):
        while not await tab.evaluate(expression):  # noqa: ASYNC110 - what it waits for is in another program
            await anyio.sleep(0.1)


def test_pages_are_readable_and_silent_and_load_locally():
    async def scenario():
        async with shown() as it:
            base, tab = it.base, it.tab
            for width, scheme in LOOKS:
                await tab.look(width, scheme=scheme)
                for page in PAGES:
                    await tab.show(f"{base}/{page}")
                    assert await tab.evaluate(FAULTS) == [], (page, width, scheme)
            assert tab.said == []
            assert {url.partition("/static")[0][: len(base)] for url in tab.loaded} == {base}

    anyio.run(scenario)


LONG_NAMES = f"""
about: x
cluster: {{nodes: {{a-node-{"of-a-cloud-" * 8}x: {{gpu: 8}}}}}}
queues:
  lab: {{quota: 8}}
  {"q" * 253}: {{parent: lab}}
  team-{"that-chose-a-long-name-" * 6}x: {{parent: lab, quota: 8}}
groups:
  {"w" * 240}: {{queue: {"q" * 253}, each: {{gpu: 9}}}}
  job-{"with-many-words-" * 3}a: {{queue: team-{"that-chose-a-long-name-" * 6}x, each: {{gpu: 1}}}}
  job-{"with-many-words-" * 3}b: {{queue: lab, each: {{gpu: 9}}}}
"""


@pytest.mark.parametrize("width", [360, 800, 1024, 1600])
def test_long_names_fit_the_screen(tmp_path, width):
    path = tmp_path / "long.yaml"
    path.write_text(LONG_NAMES)
    cycle = EndedCycle(outcome=Source(place=str(path)).decide().outcome, took=0.01)

    async def scenario():
        async with shown() as it:
            it.feed.show(cycle)
            await it.tab.look(width)
            for page in ("", "queues", f"queues/{'q' * 253}", "jobs", f"jobs/default/{'w' * 240}", "nodes", "waiting"):
                await it.tab.show(f"{it.base}/{page}")
                assert await it.tab.evaluate(FAULTS) == [], page

    anyio.run(scenario)


def test_cycles_of_many_phases_can_be_scrolled_by_keyboard():
    async def scenario():
        async with shown() as it:
            phases = {f"phase-{at}-of-a-real-cycle": 0.1 for at in range(12)}
            it.feed.cycles.append(CycleLine(number=2, time=0.0, took=0.5, phases=phases, counts={}))
            await it.tab.look(1280)
            await it.tab.show(f"{it.base}/cycles")
            assert await it.tab.evaluate(FAULTS) == []

    anyio.run(scenario)


def test_pages_are_whole_without_the_script():
    async def scenario():
        async with shown() as it:
            base, tab = it.base, it.tab
            await tab.look(1024, script=False)
            await tab.show(f"{base}/jobs")
            root = await tab.send("DOM.getDocument", depth=1)
            text = (await tab.send("DOM.getOuterHTML", nodeId=root["root"]["nodeId"]))["outerHTML"]
            assert "ours-waits" in text
            assert not [url for url in tab.loaded if "/events" in url]
            assert tab.said == []

    anyio.run(scenario)


def test_a_page_follows_cycles_and_keeps_focus_and_folds():
    async def scenario():
        async with shown() as it:
            base, tab = it.base, it.tab
            await tab.look(1024)
            await tab.show(f"{base}/jobs/{OURS}/ours-waits")
            await until(tab, 'document.getElementById("mark").textContent === "cycle 1"')
            await tab.evaluate('document.querySelector("details").open = true')
            await tab.evaluate('document.querySelector("#explanation summary").focus()')
            it.show(2)
            await until(tab, 'document.getElementById("mark").textContent === "cycle 2"')
            assert await tab.evaluate('document.querySelector("details").open') is True
            assert await tab.evaluate("document.activeElement.tagName") == "SUMMARY"
            assert tab.said == []

    anyio.run(scenario)


async def pressed(tab, key):
    for kind in ("rawKeyDown", "char", "keyUp") if key == "Enter" else ("rawKeyDown", "keyUp"):
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        await tab.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)


def test_a_page_reconnects_and_shows_the_present():
    async def scenario():
        async with shown() as it:
            await it.tab.look(1024)
            async with anyio.create_task_group() as tasks:
                port = await tasks.start(serving, it.board, 0)
                await it.tab.show(f"http://127.0.0.1:{port}/jobs")
                await until(it.tab, 'document.getElementById("mark").textContent === "cycle 1"')
                tasks.cancel_scope.cancel()
            it.show(2)
            it.show(3)
            async with anyio.create_task_group() as tasks:
                await tasks.start(serving, it.board, port)
                await until(it.tab, 'document.getElementById("mark").textContent === "cycle 3"')
                tasks.cancel_scope.cancel()

    anyio.run(scenario)


WALKED = """
[...document.querySelectorAll("a[href], button, input, summary")].filter((each) => each.checkVisibility()).length
"""
AT = """
(() => {
  const at = document.activeElement;
  if (at === document.body) return null;
  const style = getComputedStyle(at);
  const marked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  const all = [...document.querySelectorAll("a[href], button, input, summary")];
  return [all.filter((each) => each.checkVisibility()).indexOf(at), marked];
})()
"""


@pytest.mark.parametrize("page", ["", f"jobs/{OURS}/ours-waits", "nodes"])
def test_every_control_is_reached_by_keyboard_in_order(page):
    async def scenario():
        async with shown() as it:
            await it.tab.look(1024)
            await it.tab.show(f"{it.base}/{page}")
            count = await it.tab.evaluate(WALKED)
            walked = []
            for _ in range(count):
                await pressed(it.tab, "Tab")
                walked.append(await it.tab.evaluate(AT))
            assert walked == [[at, True] for at in range(count)]

    anyio.run(scenario)


def test_a_link_is_followed_by_keyboard():
    async def scenario():
        async with shown() as it:
            await it.tab.look(1024)
            await it.tab.show(f"{it.base}/")
            while await it.tab.evaluate("document.activeElement.textContent") != "Waiting":
                await pressed(it.tab, "Tab")
            await pressed(it.tab, "Enter")
            await until(it.tab, 'location.pathname === "/waiting"')

    anyio.run(scenario)

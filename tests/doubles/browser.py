"""A headless Chromium, asked over its DevTools protocol: what a page looks like, says and loads in a real browser."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE = 60.0
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
  for (const each of document.querySelectorAll(".wide:not([tabindex])")) if (each.scrollWidth > each.clientWidth + 1) {
    found.push(`a table is cut: ${each.textContent.trim().slice(0, 40)}`);
  }
  if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
  if (!document.documentElement.lang) found.push("no language");
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth) found.push("wider than the window");
  return found;
})()
"""
"""Returns what is wrong with a page for readers who see little, use a small screen, or have it read to them.

A table that is wider than the window has to fold, unless keys can scroll it.
"""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def find_browser() -> str | None:
    """Return the program; None where none is installed."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@attrs.define(eq=False)
class Tab:
    """One page, and everything that it said and loaded."""

    socket: aiohttp.ClientWebSocketResponse
    said: list[str] = attrs.field(factory=list)
    """Messages on the console, errors of scripts and of the network among them."""
    loaded: list[str] = attrs.field(factory=list)
    """The addresses of all requests."""
    _number: int = 0
    _answers: dict[int, asyncio.Future[Any]] = attrs.field(factory=dict)
    _shown: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def send(self, method: str, **parameters: Any) -> Any:
        """Send a command and return what it answers."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, PATIENCE)

    async def listen(self) -> None:
        """Take what the browser says, until it ends."""
        async for message in self.socket:
            told = json.loads(message.data)
            if "id" in told:
                answer = self._answers.pop(told["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(told.get("result", {}))
                continue
            self._take(told["method"], told["params"])

    def _take(self, method: str, told: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.loaded.append(told["request"]["url"])
        elif method == "Page.loadEventFired":
            self._shown.set()
        elif method == "Runtime.consoleAPICalled":
            self.said.append(str([each.get("value") for each in told["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(str(told["exceptionDetails"].get("text")))
        elif method == "Log.entryAdded":
            self.said.append(f"{told['entry']['level']}: {told['entry']['text']} {told['entry'].get('url', '')}")

    async def show(self, url: str) -> None:
        """Load a page, and wait until all of it is there."""
        self._shown.clear()
        await self.send("Page.navigate", url=url)
        await asyncio.wait_for(self._shown.wait(), PATIENCE)

    async def look(self, width: int, height: int = 900, *, scheme: str = "light", script: bool = True) -> None:
        """Set the size of the window, the wanted colours, and whether scripts run."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=features)
        await self.send("Emulation.setScriptExecutionDisabled", value=not script)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return found.get("result", {}).get("value")

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what the page looks like."""
        found = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))


@asynccontextmanager
async def browsing(program: str) -> AsyncIterator[Tab]:
    """Start a browser; yield its only page."""
    with tempfile.TemporaryDirectory(prefix="kai-browser-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            program,
            *_FLAGS,
            f"--user-data-dir={folder}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = await _port(Path(folder) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                    (target,) = [each for each in await response.json() if each["type"] == "page"]
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    tab = Tab(socket)
                    listening = asyncio.create_task(tab.listen())
                    for domain in ("Page", "Network", "Runtime", "Log"):
                        await tab.send(f"{domain}.enable")
                    yield tab
                    listening.cancel()
        finally:
            process.kill()
            await process.wait()


async def _port(path: Path) -> int:
    for _ in range(int(PATIENCE / 0.1)):
        lines = await asyncio.to_thread(_lines, path)
        if lines:
            return int(lines[0])
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{path.name}: found none, expected a browser that listens")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []

"""The handoff inspector in a real browser, whose clock stands still until a test moves it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Locator, Page, Request, ViewportSize, expect

START = 1_750_000_000
"""When the page's clock stands still, in seconds since 1970."""
DESKTOP: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


class Inspector:
    """The page as its user sees it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        """Errors and warnings of the console, and exceptions."""
        self.asked: list[dict[str, Any]] = []
        """The bodies of the requests for a trace."""
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._sent)

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and "status of 4" not in text:  # the browser's own line for a 4xx
            self.complaints.append(text)

    def _sent(self, request: Request) -> None:
        if request.url.endswith("/handoff/trace"):
            self.asked.append(json.loads(request.post_data or "null"))

    # -- controls

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def input(self, label: str) -> Locator:
        return self.page.get_by_label(label, exact=True)

    def speed(self, name: str) -> Locator:
        return self.page.get_by_role("radio", name=name)

    @property
    def slider(self) -> Locator:
        return self.page.get_by_role("slider", name="Timeline")

    async def press(self, name: str) -> None:
        await self.button(name).click()

    async def play(self, seconds: float = 0) -> None:
        """Press play, wait until it plays, and let so many seconds pass."""
        await self.press("Play")
        await expect(self.button("Pause")).to_be_visible()
        await self.wait(seconds)

    async def wait(self, seconds: float) -> None:
        """Move the page's clock."""
        if seconds:
            await self.page.clock.run_for(round(seconds * 1000))

    async def seek(self, seconds: int) -> None:
        """Move the slider, as a mouse does."""
        await self.slider.fill(str(seconds))

    async def end(self) -> None:
        """Go to the end, and wait until it is shown."""
        await self.seek(60)
        await self.at("1:00")

    # -- what is shown

    async def at(self, time: str) -> None:
        await expect(self.page.get_by_role("timer")).to_have_text(f"{time} / 1:00")

    async def gates(self) -> list[str]:
        """The results, with the reason of a stop."""
        found: list[str] = []
        for row in await self.page.locator(".handoff-gate").all():
            reason = await row.locator(".handoff-reason").text_content()
            found.append(reason or await row.locator(".badge").text_content() or "")
        return found

    async def shows(self, **facts: str) -> None:
        """The facts of the moment: `final_state="ready"`."""
        for name, value in facts.items():
            label = name.replace("_", " ").capitalize()
            fact = self.page.locator(f'dt:text-is("{label}") + dd')
            await expect(fact).to_have_text(value)

    def card(self, name: str) -> Locator:
        return self.page.get_by_role("region", name=name, exact=True).first

    async def saved(self, button: str) -> tuple[str, str]:
        """Press a button that saves a file: its name, and what it holds."""
        async with self.page.expect_download() as waiting:
            await self.press(button)
        download = await waiting.value
        path: Path = await download.path()
        return download.suggested_filename, path.read_text()  # noqa: ASYNC240


@asynccontextmanager
async def inspector(
    browser: Browser, api: str, *, viewport: ViewportSize = DESKTOP, scheme: Any = "light", **options: Any
) -> AsyncIterator[Inspector]:
    """The inspector, loaded, in a context of its own; at its end nothing may have been complained of."""
    context = await browser.new_context(viewport=viewport, color_scheme=scheme, **options)
    try:
        page = await context.new_page()
        await page.clock.install(time=START - 3600)
        shown = Inspector(page)
        await page.goto(f"{api}/#/handoff")
        await expect(shown.button("Play")).to_be_visible()
        await page.clock.pause_at(START)
        yield shown
        assert shown.complaints == []
    finally:
        await context.close()

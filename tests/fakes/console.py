"""The operator console in a browser: pages that tell of every error, and axe-core's judgement of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page, Request

from tests.fakes.program import FAKES

AXE = FAKES / "js" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
"""Where `make .js-sdk` puts it, if there is a node."""

PHONE, DESK = (390, 844), (1280, 800)

_TELL = """
window.violations = [];
addEventListener("securitypolicyviolation", ({violatedDirective, blockedURI}) =>
  violations.push(`${violatedDirective} ${blockedURI}`));
"""
_JUDGE = """
axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => violations.map(({id, help, nodes}) =>
  `${id}: ${help}: ` + nodes.map(({html, failureSummary}) => `${html.slice(0, 200)} ${failureSummary}`).join()))
"""


@asynccontextmanager
async def opened(
    browser: Browser,
    api: str,
    at: str = "",
    *,
    size: tuple[int, int] = DESK,
    scheme: Any = "light",
    expected: tuple[str, ...] = (),
    still: bool = False,
) -> AsyncIterator[Page]:
    """The console at an address (`#/...`). Fails at the end if anything went wrong in the page.

    `expected` are pieces of console messages that belong to the test: browsers report each 401. `still`: for
    `judged`, to which a colour on its way to another one would be a finding.
    """
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce" if still else "no-preference",
    )
    await context.add_init_script(_TELL)
    page = await context.new_page()
    page.set_default_timeout(15_000)
    wrong: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(piece in message.text for piece in expected):
            wrong.append(f"{message.type}: {message.text}")

    def asked(request: Request) -> None:
        if not request.url.startswith((f"{api}/", "data:")):
            wrong.append(f"a request to another host: {request.url}")

    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(f"exception: {error}"))
    page.on("request", asked)
    try:
        await page.goto(f"{api}/{at}")
        yield page
        wrong.extend(await page.evaluate("window.violations"))
    finally:
        await context.close()
    assert not wrong, "\n".join(wrong)


async def judged(page: Page) -> list[str]:
    """What axe-core finds wrong in the page as it is."""
    if not await page.evaluate("'axe' in window"):
        assert AXE.exists(), f"{AXE} is missing: run `make .js-sdk`"
        await page.evaluate(AXE.read_text())  # through DevTools: the page's policy lets no script in
    found: list[str] = await page.evaluate(_JUDGE)
    return found


async def scrolls_sideways(page: Page) -> bool:
    """Whether the page is wider than its window."""
    wide: bool = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return wide

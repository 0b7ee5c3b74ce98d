"""The console's token, what the policy leaves of it, and agents that attack whoever looks at them (contract 6)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.browser import CHROMIUM, chromium
from tests.fakes.console import opened
from tests.fakes.health_peer import A2APeer
from tests.fakes.issuer import SECRET, token
from tests.fakes.running import running

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: the console is not tried in a browser"),
]

AUTH = {
    "enable": True,
    "secret_env": "JWT_SECRET",
    "policy": [
        {"principals": ["alice"], "read": True, "call": ["*"], "register": ["*"]},
        {"principals": ["root"], "read": True, "administer": True},
        {"principals": ["caller"], "call": ["echo"]},
    ],
}
ENVIRON = {"JWT_SECRET": SECRET}
REFUSED = ("401", "403")  # browsers report each of these answers
EVIL = '"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>\u202e{{7*7}}'
#: As JSON that hides nothing: a sign that turns the direction of what follows is written out.
SHOWN = json.dumps(EVIL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as it:
        yield it


async def test_the_token_is_asked_for_and_kept_nowhere(browser: Browser) -> None:
    async with FaultAgent() as agent, running(auth=AUTH, environ=ENVIRON, health={"enable": True}) as gateway:
        gateway.client.headers["authorization"] = f"Bearer {token()}"
        await gateway.register(agent)
        async with opened(browser, gateway.api, expected=REFUSED) as page:
            dialog = page.get_by_role("dialog", name="Token")
            await expect(dialog).to_be_visible()
            await page.get_by_label("Bearer token").fill("not.a.token")
            await page.keyboard.press("Enter")
            await expect(dialog).to_contain_text("does not take this token")
            await page.get_by_label("Bearer token").fill(token())
            await page.get_by_role("button", name="Use it").click()
            await expect(page.locator(".agent-row")).to_have_attribute("data-id", "echo")
            await expect(page.locator("#live")).to_have_text("Live")
            kept = await page.evaluate(
                "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
            )
            assert token()[:20] not in kept
            await page.goto(f"{gateway.api}/#/try?agent=echo")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_role("region", name="As it was sent")).to_contain_text("Bearer ••••")
            await page.goto(f"{gateway.api}/#/gateway")
            await expect(page.get_by_role("region", name="Process")).to_contain_text("alice")
            await expect(page.get_by_text("only to those who may administer")).to_be_visible()
            await page.get_by_role("button", name="Token").click()
            await page.get_by_role("button", name="Forget the token").click()
            await expect(dialog).to_be_visible()
            await page.reload()
            await expect(dialog).to_be_visible()


async def test_everybody_sees_what_the_policy_leaves(browser: Browser) -> None:
    async with FaultAgent() as agent, running(auth=AUTH, environ=ENVIRON) as gateway:
        gateway.client.headers["authorization"] = f"Bearer {token()}"
        await gateway.register(agent)
        async with opened(browser, gateway.api, "#/gateway", expected=(*REFUSED, "404")) as page:
            await page.get_by_label("Bearer token").fill(token(sub="caller"))
            await page.get_by_role("button", name="Use it").click()
            for view in ("#/gateway", "#/agents", "#/agents/echo"):
                await page.goto(f"{gateway.api}/{view}")
                await expect(page.get_by_role("alert").first).to_contain_text(
                    "The policy does not let you read this"
                )
            await page.goto(f"{gateway.api}/#/try?agent=echo")
            await expect(page.get_by_text("You may not list agents")).to_be_visible()
            agent.next(reply.result({"kind": "message", "parts": []}))
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator(".arrival")).to_contain_text('"kind": "message"')
            await page.get_by_label("Agent").fill("other")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_role("region", name="Answer")).to_contain_text("FORBIDDEN")
            await page.get_by_role("button", name="Token").click()
            await page.get_by_label("Bearer token").fill(token(sub="root"))
            await page.get_by_role("button", name="Use it").click()
            await page.goto(f"{gateway.api}/#/gateway")
            await expect(page.get_by_role("region", name="Settings in force")).to_contain_text("auth.policy")


async def test_what_agents_say_is_text(browser: Browser) -> None:
    async with A2APeer("0.3") as peer, running(health={"enable": True, "interval_seconds": 3600}) as gateway:
        skills = [{"id": EVIL, "name": EVIL, "tags": [EVIL]}]
        await gateway.register(peer.base, name=EVIL, version="1", description=EVIL, skills=skills, **{EVIL: EVIL})
        peer.card |= {"name": EVIL + "2", "version": "2", "description": EVIL, "skills": skills, EVIL: EVIL}
        peer.rpc["message/send"] = reply.result({"kind": "message", EVIL: EVIL})
        await gateway.client.post("/agents/echo/health/check")
        async with opened(browser, gateway.api) as page:
            await expect(page.locator(".agent-row .c-agent")).to_contain_text(EVIL)
            await page.goto(f"{gateway.api}/#/agents/echo")
            await expect(page.locator(".drift").first).to_contain_text(SHOWN)
            for name in ("Registered", "Published", "Served by the gateway"):
                await page.get_by_role("tab", name=name).click()
                await expect(page.get_by_role("region", name="Card")).to_contain_text(SHOWN)
            await page.goto(f"{gateway.api}/#/try?agent=echo")
            await page.get_by_label("Message").fill(EVIL)
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator(".arrival")).to_contain_text("onerror")
            await page.goto(f"{gateway.api}/#/gateway")
            await expect(page.locator(".limits")).to_be_visible()
            assert await page.evaluate("[window.pwned, document.querySelectorAll('img, main script').length]") == [
                None,
                0,
            ]


@pytest.mark.parametrize(
    "address",
    [
        "#/agents/%3Cimg%20src=x%20onerror=window.pwned=1%3E",
        "#/agents/<img src=x onerror=window.pwned=1>",
        "#/agents/..%2F..%2Fgateway",
        "#/agents/a/b/c",
        "#/agents/%E0%A4%A",
        "#/constructor",
        "#/__proto__/x",
        "#/try?agent=<img src=x onerror=window.pwned=1>",
        "#/try?agent=../../gateway",
    ],
)
async def test_an_address_cannot_do_harm(browser: Browser, address: str) -> None:
    """Whoever follows a link to the console sees a page, or is told that the address is none."""
    async with running() as gateway, opened(browser, gateway.api, address) as page:
        await expect(page.locator("h1, .note").first).to_be_visible()
        assert await page.evaluate("[window.pwned, document.querySelectorAll('img').length]") == [None, 0]


async def test_nobody_puts_the_console_into_a_frame(browser: Browser) -> None:
    async with running() as gateway, opened(browser, gateway.api, "live", expected=("frame", "404")) as page:
        await page.evaluate("document.body.innerHTML = '<iframe src=\"/\"></iframe>'")
        await page.wait_for_timeout(300)  # it would be there by now; nothing tells that it will not come
        assert all(frame.url in ("", "about:blank", "chrome-error://chromewebdata/") for frame in page.frames[1:])

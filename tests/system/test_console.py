"""The operator console in a real browser, at a real gateway with real SDK agents: contract 1 (`GET /`)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.browser import CHROMIUM, chromium
from tests.fakes.console import AXE, DESK, PHONE, judged, opened, scrolls_sideways
from tests.fakes.gateway import GatewayProcess
from tests.fakes.program import NODE, sdk13_agent
from tests.fakes.running import Running, running

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: the console is not tried in a browser"),
]

CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}
VIEWS = ("#/agents", "#/agents/drifted", "#/agents/gone", "#/try?agent=echo", "#/gateway")


@dataclass
class Fleet:
    """A gateway and its agents: `echo` is well, `drifted` publishes another card, nobody listens for `gone`."""

    gateway: Running
    faulty: FaultAgent
    card: dict[str, Any]

    @property
    def api(self) -> str:
        return self.gateway.api

    async def register(self, agent_id: str, **changes: Any) -> None:
        url = self.card["supportedInterfaces"][0]["url"]
        document = {**self.card, "agent_id": agent_id, "url": url, **changes}
        answer = await self.gateway.client.post("/agents/register", json=document)
        assert answer.status_code == 200, answer.text

    async def checked(self, agent_id: str) -> None:
        assert (await self.gateway.client.post(f"/agents/{agent_id}/health/check")).status_code == 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as it:
        yield it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(sdk13_agent())
        faulty = await stack.enter_async_context(FaultAgent())
        gateway = await stack.enter_async_context(running(health={"enable": True, "interval_seconds": 3600}))
        async with httpx.AsyncClient(trust_env=False) as http:
            found = await http.get(f"{agent.url}.well-known/agent-card.json", headers={"A2A-Version": "1.0"})
        it = Fleet(gateway, faulty, found.json())
        await it.register("echo")
        await it.register("drifted", name="Another name", version="9.9.9")
        await gateway.register("http://127.0.0.1:9/", "gone")
        await gateway.register(faulty, "faulty", name="Faulty")
        faulty.always(reply.json({"detail": "out of paper"}, status=500))
        for agent_id in ("echo", "drifted", "gone", "gone", "gone", "faulty"):
            await it.checked(agent_id)
        await gateway.call(CALL, "faulty")
        yield it


def row(page: Page, agent_id: str) -> Any:
    return page.locator(f".agent-row[data-id='{agent_id}']")


# -- for everybody


@pytest.mark.skipif(not AXE.exists() and NODE is None, reason="there is no node, and so no axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
async def test_everybody_can_use_every_view(
    browser: Browser, fleet: Fleet, scheme: str, size: tuple[int, int]
) -> None:
    """axe-core finds nothing, in light and dark; on a phone nothing sticks out."""
    async with opened(browser, fleet.api, size=size, scheme=scheme, still=True) as page:
        for view in VIEWS:
            await page.goto(f"{fleet.api}/{view}")
            await expect(page.locator("h1")).to_be_visible()
            if "try" in view:
                await page.get_by_role("button", name="Send").click()
                await expect(page.locator(".arrivals li")).to_be_visible()
            await expect(page.locator(".agent-row, .ladder, .arrivals li, .limits").first).to_be_visible()
            assert await judged(page) == [], view
            assert not await scrolls_sideways(page), view


async def test_colours_follow_the_system_until_somebody_chooses(browser: Browser, fleet: Fleet) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    async with opened(browser, fleet.api, scheme="dark") as page:
        dark = await page.evaluate(background)
        button = page.locator("#theme")
        await expect(button).to_have_accessible_name("Colours: as the system")
        await button.click()
        await expect(button).to_have_accessible_name("Colours: light")
        light = await page.evaluate(background)
        assert light != dark
        await page.reload()
        assert await page.evaluate(background) == light
        await button.click()
        assert await page.evaluate(background) == dark


async def test_where_nobody_is_registered_it_says_how_to_begin_here(browser: Browser) -> None:
    """At this gateway, wherever it listens, and not at the one that the command takes by default."""
    async with running() as gateway, opened(browser, gateway.api, "#/agents") as page:
        await expect(page.get_by_text(f"vitalgate demo --gateway {gateway.api}", exact=True)).to_be_visible()


async def test_the_keyboard_is_enough(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/agents") as page:
        await expect(row(page, "echo")).to_be_visible()
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.keyboard.press("/")
        await expect(page.get_by_label("Search")).to_be_focused()
        await page.keyboard.type("nothing is like this")
        await expect(page.get_by_text("No agent is like that.")).to_be_visible()
        await page.get_by_label("Search").fill("")
        await page.locator(".heads .c-agent button").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator(".agent-row").first).to_have_attribute("data-id", "drifted")
        await page.locator(".agent-row a").first.focus()
        await page.keyboard.press("ArrowDown")
        await expect(row(page, "echo").locator("a")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="echo", exact=True)).to_be_visible()
        tab = page.get_by_role("tab", name="curl", exact=True)
        await tab.focus()
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_role("tab", name="curl, stream")).to_be_focused()
        await expect(page.get_by_role("tabpanel", name="curl, stream")).to_contain_text("SendStreamingMessage")
        await page.keyboard.press("End")
        await expect(page.get_by_role("tabpanel", name="JavaScript SDK")).to_contain_text("@a2a-js/sdk")


# -- agents


async def test_agents_are_told_apart(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api) as page:
        await expect(row(page, "gone").locator(".c-health")).to_contain_text("unreachable")
        await expect(row(page, "gone").locator(".c-health")).to_contain_text("connect_refused")
        await expect(row(page, "gone").locator(".c-routing")).to_have_text("out of service")
        await expect(row(page, "echo").locator(".c-health")).to_have_text("healthy")
        await expect(row(page, "drifted").locator(".c-health")).to_contain_text("card_drift")
        await expect(row(page, "echo").locator(".c-protocol")).to_have_text("1.0, 0.3")
        await expect(row(page, "echo").locator(".c-skills")).to_have_text("Echo")
        await expect(row(page, "echo").locator(".c-heartbeat")).to_contain_text("/ 5 min")
        # the worst comes first
        await expect(page.locator(".agent-row").first).to_have_attribute("data-id", "gone")


async def test_agents_are_sifted_and_sorted(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api) as page:
        rows = page.locator(".agent-row")
        await expect(rows).to_have_count(4)
        await page.get_by_label("Search").fill("another NAME")
        await expect(rows).to_have_count(1)
        await expect(page.locator(".head .number")).to_have_text("1 of 4")
        await page.get_by_label("Search").fill("")
        await page.get_by_label("Health").select_option("HEALTHY")
        await expect(rows).to_have_count(1)
        await page.get_by_label("Health").select_option("")
        await page.get_by_label("Routing").select_option("out_of_service")
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name=re.compile(" All$")).click()
        await expect(rows).to_have_count(4)
        await page.get_by_role("button", name="Degraded").click()
        await expect(row(page, "drifted")).to_be_visible()
        await expect(row(page, "echo")).to_have_count(0)
        await page.get_by_role("button", name=re.compile(" All$")).click()
        await page.get_by_label("Owner").select_option("anonymous")
        await expect(rows).to_have_count(4)
        heading = page.locator(".heads .c-agent")
        await heading.get_by_role("button").click()
        await expect(heading).to_have_attribute("aria-sort", "ascending")
        assert await rows.evaluate_all("all => all.map(one => one.dataset.id)") == [
            "drifted",
            "echo",
            "faulty",
            "gone",
        ]
        await heading.get_by_role("button").click()
        await expect(heading).to_have_attribute("aria-sort", "descending")
        await expect(rows.first).to_have_attribute("data-id", "gone")


async def test_what_happens_is_seen_without_asking(browser: Browser, fleet: Fleet) -> None:
    """Through `GET /events`, and the numbers within some seconds."""
    async with opened(browser, fleet.api) as page:
        await expect(page.locator("#live")).to_have_text("Live")
        await fleet.register("newcomer", name="Newcomer")
        await expect(row(page, "newcomer")).to_be_visible()
        await fleet.checked("newcomer")
        await expect(row(page, "newcomer").locator(".c-health")).to_contain_text("card_drift")
        for _ in range(3):
            await fleet.gateway.call(CALL, "faulty")
        await expect(row(page, "faulty").locator(".c-errors")).to_contain_text("100 %")
        await expect(row(page, "faulty").locator(".c-errors")).to_contain_text("app ")
        await expect(row(page, "faulty").locator(".c-p95")).to_contain_text("ms")
        await fleet.gateway.client.delete("/agents/newcomer")
        await expect(row(page, "newcomer")).to_have_count(0)


@pytest.mark.parametrize("many", [500, pytest.param(2000, marks=pytest.mark.long)])
async def test_two_thousand_agents_stay_smooth(browser: Browser, many: int) -> None:
    """Only rows in sight are in the page, and no frame takes long."""
    async with running() as gateway:
        for start in range(0, many, 50):
            ids = [f"agent-{number:04}" for number in range(start, start + 50)]
            await asyncio.gather(*(gateway.register("http://127.0.0.1:9/", agent_id) for agent_id in ids))
        async with opened(browser, gateway.api) as page:
            await expect(page.locator(".head .number")).to_have_text(f"{many:,} registered")
            assert await page.locator(".agent-row").count() < 60
            assert await page.locator(".agents").get_attribute("aria-rowcount") == str(many + 1)
            frames = await page.evaluate("""async () => {
              const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
              const took = [];
              for (let at = 0; at < 60; at++) {
                const began = performance.now();
                scrollTo(0, at * 400);
                await frame(); await frame();
                took.push(performance.now() - began);
              }
              return took.sort((a, b) => a - b);
            }""")
            assert frames[len(frames) // 2] < 120, frames  # two frames are 33 ms; the machine may be busy
            await page.evaluate("scrollTo(0, document.body.scrollHeight)")
            await expect(row(page, f"agent-{many - 1:04}")).to_be_visible()
            await page.get_by_label("Search").fill("agent-0432")
            await expect(page.locator(".agent-row")).to_have_count(1)
            await expect(row(page, "agent-0432")).to_be_in_viewport()


async def test_it_works_below_a_path(browser: Browser, fleet: Fleet) -> None:
    """Behind a proxy that cuts a prefix off: every address is relative to the page's."""
    async with opened(browser, fleet.api, "live", expected=("404", "ERR_FAILED")) as page:
        asked: list[str] = []

        async def proxied(route: Route) -> None:
            path = route.request.url.removeprefix(f"{fleet.api}/ops/")
            asked.append(path)
            if path == "events":  # a stream, which this proxy cannot pass on
                await route.abort()
            else:
                await route.fulfill(response=await route.fetch(url=f"{fleet.api}/{path}"))

        await page.route(f"{fleet.api}/ops/**", proxied)
        page.on(
            "request",
            lambda request: asked.append(f"outside: {request.url}") if "/ops/" not in request.url else None,
        )
        await page.goto(f"{fleet.api}/ops/")
        await expect(row(page, "echo")).to_be_visible()
        await row(page, "echo").locator("a").click()
        await expect(page.locator(".rung").first).to_be_visible()
        await expect(page.get_by_role("region", name="curl", exact=True)).to_contain_text(
            f"{fleet.api}/ops/a2a/echo"
        )
        assert not [path for path in asked if path.startswith("outside")]
        assert {"", "console/js/app.js", "agents/echo/health"} <= set(asked)


async def test_a_gateway_that_comes_back_is_found_again(browser: Browser, tmp_path: Path) -> None:
    settings = {"registry": {"url": f"sqlite:///{tmp_path}/registry.db"}}
    async with GatewayProcess(tmp_path, settings) as gateway:
        await gateway.register({"agent_id": "before", "name": "before", "url": "http://127.0.0.1:9/"})
        expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION_RESET", "ERR_NETWORK")
        async with opened(browser, gateway.api, expected=expected) as page:
            await expect(row(page, "before")).to_be_visible()
            await gateway.http.aclose()
            await gateway.stop()
            await expect(page.locator("#live")).to_have_text("Reconnecting")
            await expect(row(page, "before")).to_be_visible()
            gateway.settings["server"]["port"] = int(gateway.api.rpartition(":")[2])
            await gateway.start()
            await gateway.register({"agent_id": "after", "name": "after", "url": "http://127.0.0.1:9/"})
            await expect(row(page, "after")).to_be_visible(timeout=15_000)
            await expect(page.locator("#live")).to_have_text("Live", timeout=15_000)
            await expect(row(page, "before")).to_be_visible()


# -- one agent


async def test_one_agent_with_drift(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/agents/drifted") as page:
        await expect(page.locator("h1")).to_have_text("drifted")
        await expect(page.locator(".head")).to_contain_text("routing: degraded")
        rungs = page.locator(".rung h3")
        await expect(rungs.first).to_have_text("configuration")
        assert await rungs.all_text_contents() == [
            "configuration",
            "reachability",
            "authentication",
            "protocol",
            "capability",
            "latency",
        ]
        found = page.locator(".rung", has_text="capability")
        await expect(found).to_contain_text("card_drift")
        await expect(found).to_contain_text("Do: Register the published card")
        await expect(page.locator(".drift tbody tr")).to_have_count(2)
        await expect(page.locator(".drift tr", has_text="version")).to_contain_text("9.9.9")
        await page.get_by_role("tab", name="Registered").click()
        await expect(page.locator("mark.drifted")).to_have_count(2)
        await page.get_by_role("tab", name="Published").click()
        await expect(page.get_by_role("region", name="Card")).to_contain_text(fleet.card["name"])
        await page.get_by_role("tab", name="Served by the gateway").click()
        await expect(page.get_by_role("region", name="Card")).to_contain_text(f"{fleet.api}/a2a/drifted")


async def test_checks_history_and_transitions(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/agents/gone") as page:
        bands = page.locator(".plot .band")
        await expect(bands.first).to_be_attached()
        before = await bands.count()
        await page.get_by_role("button", name="Check now").click()
        await expect(page.locator(".toast")).to_contain_text("gone: unreachable")
        await expect(bands).to_have_count(before + 2)
        await expect(page.locator(".remedy")).to_contain_text("Start the agent")
        await expect(page.locator(".transitions li").first).to_contain_text("out of service")
        await expect(page.get_by_text("Trial call", exact=True)).to_be_visible()
        plot = page.get_by_role("img", name=re.compile("Last 100 checks"))
        await expect(plot).to_have_accessible_name(re.compile(r"unreachable \(connect_refused\), out of service"))
        await plot.focus()
        await page.keyboard.press("Home")
        await expect(page.locator(".plot-words").first).to_contain_text("unchecked")
        await expect(page.locator(".cursor-line").first).to_be_attached()
        box = await plot.bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 60)
        await expect(page.locator(".plot-words").first).to_contain_text("out of service")


async def test_calls_are_plotted_while_somebody_looks(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/agents/faulty") as page:
        words = page.locator(".plot-words").nth(2)
        await expect(words).to_contain_text("calls/s")
        await fleet.gateway.call(CALL, "faulty")
        await expect(words).to_contain_text("app ")
        await expect(page.locator(".tile", has_text="Errors")).to_contain_text("100 %")
        await expect(page.locator(".plot-words").nth(1)).to_contain_text("p95")


async def test_snippets_are_copied_and_work(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/agents/echo") as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        panel = page.get_by_role("tabpanel", name="curl", exact=True)
        await panel.get_by_role("button", name="Copy").click()
        await expect(page.locator(".toast")).to_have_text("Copied")
        command = await page.evaluate("navigator.clipboard.readText()")
        await page.get_by_role("tab", name="Python SDK").click()
        program = await page.get_by_role("region", name="Python SDK").inner_text()
    shell = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(shell.communicate(), 20)
    assert b"TASK_STATE_COMPLETED" in out or b'"completed"' in out
    compile(program, "snippet.py", "exec")
    assert f"{fleet.api}/a2a/echo" in program


async def test_one_that_is_not_there(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/agents/nobody", expected=("404",)) as page:
        await expect(page.get_by_role("alert").first).to_contain_text("not registered")


# -- try it


async def test_a_message_in_both_versions(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/try?agent=echo") as page:
        for version, method, word in (
            ("1.0", "SendMessage", "TASK_STATE_COMPLETED"),
            ("0.3", "message/send", "completed"),
        ):
            await page.get_by_label("Protocol").select_option(version)
            await page.get_by_label("Message").fill("Grüße <b>")
            await expect(page.get_by_label("Request body")).to_have_value(re.compile(f'"{method}"'))
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator(".arrival")).to_contain_text(word)
            await expect(page.locator(".arrival")).to_contain_text("Grüße <b>")
            facts = page.get_by_role("region", name="Answer")
            await expect(facts).to_contain_text("200")
            await expect(facts.locator(".badge")).to_have_text("ended")
            await expect(page.get_by_role("region", name="Headers", exact=True)).to_contain_text("x-request-id:")
            await expect(page.get_by_role("region", name="As it was sent")).to_contain_text("/a2a/echo")


async def test_a_stream_is_watched_and_cancelled(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/try?agent=echo") as page:
        await expect(page.get_by_label("Protocol")).to_have_value("1.0")
        await page.get_by_label("Answer").select_option("stream")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("region", name="Answer").locator(".badge")).to_have_text("ended")
        events = page.locator(".arrivals li")
        assert await events.count() >= 2
        await events.first.get_by_role("button", name="Raw").click()
        await expect(events.first.locator(".arrival")).to_have_text(re.compile("^data: "))
        await page.get_by_label("Message").fill("slow and steady")
        await page.get_by_role("button", name="Send").click()
        await expect(events.first).to_be_visible()
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("region", name="Answer").locator(".badge")).to_have_text("cancelled")


async def test_what_is_sent_may_be_anything(browser: Browser, fleet: Fleet) -> None:
    async with opened(browser, fleet.api, "#/try?agent=faulty") as page:
        body = page.get_by_label("Request body")
        await body.fill("{not json")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("region", name="Answer")).to_contain_text("PARSE_ERROR")
        await page.get_by_role("button", name="Write it anew").click()
        await expect(body).to_have_value(re.compile('"jsonrpc"'))
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("region", name="Answer")).to_contain_text("AGENT_HTTP_ERROR")


async def test_an_error_is_a_failure_whoever_it_is_from(browser: Browser, fleet: Fleet) -> None:
    """The gateway's comes with a header and maybe status 200, the agent's passes as it is (contract 2.5)."""
    async with opened(browser, fleet.api, "#/try?agent=faulty") as page:
        state = page.get_by_role("region", name="Answer").locator(".badge")
        for behaviour, word in (
            (reply.json({"detail": "out of paper"}, status=500), "failed"),
            (reply.error(-32001, "task not found"), "failed"),
            (reply.result("fine"), "ended"),
        ):
            fleet.faulty.next(behaviour)
            await page.get_by_role("button", name="Send").click()
            await expect(state).to_have_text(word)
            await expect(state).to_have_class(f"badge breaks {'ok' if word == 'ended' else 'bad'}")


async def test_on_a_phone_the_answer_comes_into_view(browser: Browser, fleet: Fleet) -> None:
    """Below the form, and before what was sent; the way to stop a stream stands beside its state."""
    async with opened(browser, fleet.api, "#/try?agent=echo", size=PHONE) as page:
        await expect(page.get_by_label("Protocol")).to_have_value("1.0")
        send = page.get_by_role("button", name="Send")
        await expect(send).to_be_in_viewport(ratio=1)
        await page.get_by_label("Answer").select_option("stream")
        await page.get_by_label("Message").fill("slow and steady")
        await send.click()
        await expect(page.get_by_role("heading", name="Answer")).to_be_in_viewport(ratio=1)
        await expect(page.locator(".arrival").first).to_be_in_viewport()
        stop = page.get_by_role("button", name="Cancel")
        await expect(stop).to_be_in_viewport(ratio=1)
        await stop.click()
        await expect(page.get_by_role("region", name="Answer").locator(".badge")).to_have_text("cancelled")
        names = await page.locator("main .card").evaluate_all("cards => cards.map((one) => one.ariaLabel)")
        assert names == ["Request", "Answer", "Headers", "As it was sent"]
        bar = await page.locator("header.bar").bounding_box()
        answer = await page.get_by_role("region", name="Answer").bounding_box()
        assert bar is not None
        assert answer is not None
        assert answer["y"] >= bar["y"] + bar["height"]  # nothing of it is under the bar


# -- gateway


async def test_the_gateway_about_itself(browser: Browser, fleet: Fleet) -> None:
    await fleet.gateway.call(CALL, "faulty")
    async with opened(browser, fleet.api, "#/gateway") as page:
        await expect(page.get_by_role("region", name="Process")).to_contain_text("serving")
        await expect(page.get_by_role("region", name="Process")).to_contain_text("authentication is off")
        await expect(page.locator(".limits")).to_contain_text("a2a.agent_max_concurrency")
        await expect(page.locator("table.nodes tbody tr")).to_contain_text("this one")
        faults = page.get_by_role("region", name="Recent faults", exact=True)
        await expect(faults.locator("tbody tr").first).to_contain_text("AGENT_HTTP_ERROR")
        settings = page.get_by_role("region", name="Settings in force")
        await page.get_by_label("Find a setting").fill("health.interval")
        await expect(settings.locator("tbody tr")).to_have_count(1)
        await expect(settings.locator("tbody tr")).to_contain_text("3600")
        await expect(settings.locator("tbody tr")).to_contain_text("set")
        await page.get_by_label("Find a setting").fill("")
        await page.get_by_label("Only those").check()
        assert 2 <= await settings.locator("tbody tr").count() < 10
        await faults.get_by_role("link", name="faulty").first.click()
        await expect(page.locator("h1")).to_have_text("faulty")

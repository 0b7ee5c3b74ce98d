"""The handoff inspector in headless Chromium: every control of it, and what it shows at each moment.

Health contract 8; contract 6.2 for what a page may do with text of others.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner
from playwright.async_api import Browser, expect

from gateway.handoff_examples import ACCEPTED, CARDS, DEADLINES_MS, DEFAULTS, FIXTURES, ORIGIN
from healthcheck.cli import handoff
from tests.fakes import reply
from tests.fakes.browser import CHROMIUM, chromium
from tests.fakes.certs import Authority
from tests.fakes.console import AXE, DESK, judged, opened
from tests.fakes.console import PHONE as PHONE_SIZE
from tests.fakes.handoff_page import PHONE, Inspector, inspector
from tests.fakes.health_peer import A2APeer
from tests.fakes.issuer import SECRET, token
from tests.fakes.running import Running, running
from tests.fakes.sdks import UUID

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: the console is not tried in a browser"),
]

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as it:
        yield it


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("handoff-console-ca"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def peer(authority: Authority) -> AsyncIterator[A2APeer]:
    async with A2APeer(tls=authority.server()) as it:
        yield it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(authority: Authority, peer: A2APeer) -> AsyncIterator[Running]:
    sections: dict[str, Any] = {
        "upstream": {"ca_file": str(authority.ca_file)},
        "health": {"enable": True, "interval_seconds": 3600},
    }
    async with running(**sections) as it:
        await it.register(peer.base, "peer", description="As registered")
        await it.register("http://127.0.0.1:1/", "silent", skills=[{"id": "say", "name": "Say"}])
        for agent_id in ("peer", "silent"):
            await it.client.post(f"/agents/{agent_id}/health/check")
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, gateway: Running) -> AsyncIterator[Inspector]:
    async with inspector(browser, gateway.api) as it:
        yield it


# -- the timeline


async def test_the_gates_unfold_over_sixty_seconds(page: Inspector) -> None:
    """In steps of ten; each moment shows what is decided by then, and nothing of what follows."""
    await page.shows(stopping_gate="none", sends="0", destination="not known yet", final_state="in progress")
    await page.play()
    for done in range(6):
        await page.wait(9.9)
        wanted = ["pass"] * done + ["looking"] + ["waiting"] * (5 - done)
        assert await page.gates() == wanted
        await page.wait(0.1)
        assert (await page.gates())[: done + 1] == ["pass"] * (done + 1)
        await page.shows(
            destination="not known yet" if done < 1 else f"{ORIGIN}/a2a",
            credential_exposed="not known yet" if done < 3 else "no",
            final_state="completed" if done == 5 else "in progress",
            sends="1 (simulated: nothing left this gateway)" if done == 5 else "0",
        )
        request = page.card("Request").locator("pre")
        assert await request.count() == (1 if done >= 4 else 0)
    await page.at("1:00")
    assert '"method": "SendMessage"' in (await request.text_content() or "")
    assert ACCEPTED in (await page.card("Response").locator("pre").text_content() or "")
    await expect(page.page.get_by_role("figure")).to_have_text(f"Accepted text artifact{ACCEPTED}")
    await expect(page.button("Play")).to_be_visible()
    await page.wait(5)
    await page.at("1:00")
    assert len(page.asked) == 1


async def test_pause_and_play_again(page: Inspector) -> None:
    await page.play(12)
    await page.press("Pause")
    await page.at("0:12")
    await page.wait(30)
    await page.at("0:12")
    await page.play(8)
    await page.at("0:20")
    await page.end()
    await page.play(3)
    await page.at("0:03")


async def test_next_gate_pauses_and_goes_to_the_next_boundary(page: Inspector) -> None:
    await page.play(13)
    for time in ("0:20", "0:30", "0:40", "0:50", "1:00", "1:00"):
        await page.press("Next gate")
        await page.at(time)
        await page.wait(5)
        await page.at(time)
    await expect(page.button("Play")).to_be_visible()
    assert len(page.asked) == 1


async def test_next_gate_asks_for_the_trace_if_there_is_none(page: Inspector) -> None:
    await page.press("Next gate")
    await page.at("0:10")
    assert await page.gates() == ["pass", *["waiting"] * 5]


async def test_restart_keeps_the_inputs(page: Inspector) -> None:
    await page.input("Task").fill("Again?")
    await page.play(25)
    await page.press("Restart")
    await page.at("0:00")
    await expect(page.input("Task")).to_have_value("Again?")
    await page.wait(10)
    await page.at("0:10")
    assert [asked["text"] for asked in page.asked] == ["Again?"]


async def test_seek(page: Inspector) -> None:
    """By mouse and by keyboard; while it plays, it plays on from there."""
    await page.seek(45)
    await page.at("0:45")
    assert await page.gates() == [*["pass"] * 4, "looking", "waiting"]
    await page.slider.press("ArrowRight")
    await page.at("0:46")
    await page.slider.press("Home")
    await page.at("0:00")
    await page.slider.press("End")
    await page.at("1:00")
    await expect(page.slider).to_have_attribute("aria-valuetext", "60 of 60 seconds, the end")
    await page.seek(30)
    await page.play(1)
    await page.seek(50)
    await page.wait(2)
    await page.at("0:52")
    await expect(page.slider).to_have_attribute("aria-valuetext", "52 of 60 seconds, gate 6 of 6: response")


async def test_speeds(page: Inspector) -> None:
    """Ten seconds at each: before it plays, and while it plays."""
    await expect(page.speed("Normal speed")).to_be_checked()
    await page.speed("A quarter of the speed").check()
    await page.play(40)
    await page.at("0:10")
    for name, seconds, time in (
        ("Half the speed", 20, "0:20"),
        ("Normal speed", 10, "0:30"),
        ("Twice the speed", 5, "0:40"),
        ("A quarter of the speed", 40, "0:50"),
    ):
        await page.speed(name).check()
        await page.wait(seconds)
        await page.at(time)


async def test_a_hidden_tab_pauses(page: Inspector) -> None:
    await page.play(7)
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.page.evaluate(hide, True)
    await page.wait(30)
    await page.page.evaluate(hide, False)
    await page.wait(5)
    await page.at("0:07")
    await expect(page.button("Play")).to_be_visible()


async def test_leaving_the_view_ends_it(page: Inspector) -> None:
    """Nothing ticks on, and coming back begins anew."""
    await page.play(5)
    await page.page.goto(page.page.url.replace("#/handoff", "#/agents"))
    await expect(page.page.get_by_role("heading", name="Agents", level=1)).to_be_visible()
    await page.wait(60)
    await page.page.go_back()
    await page.at("0:00")


async def test_a_stop_is_told_with_its_remedy(page: Inspector) -> None:
    await page.input("Card from").select_option("wrong-origin")
    await page.play(19.9)
    assert await page.gates() == ["pass", "looking", *["waiting"] * 4]
    await page.wait(0.1)
    assert await page.gates() == ["pass", "endpoint-not-allowed", *["not reached"] * 4]
    await page.shows(
        stopping_gate="2 endpoint endpoint-not-allowed",
        destination="https://elsewhere.example/a2a",
        final_state="endpoint-not-allowed",
        sends="0",
    )
    await expect(page.page.get_by_text("If you trust this origin")).to_be_visible()
    await expect(page.card("Response")).to_contain_text("nothing was sent")
    said = page.page.locator("[role=status]", has_text="Gate 2, endpoint: stop, endpoint-not-allowed")
    await expect(said).to_have_count(1)


async def test_exposure_is_flagged(page: Inspector) -> None:
    await page.input("Card from").select_option("wrong-origin")
    await page.input("Endpoint policy").select_option("advertised")
    await page.input("Credential scope").select_option("broad")
    await page.seek(39)
    await page.shows(credential_exposed="not known yet")
    await page.seek(40)
    await page.shows(credential_exposed="yes", stopping_gate="none")


TIMELINE = """async (steps) => {
  const { Timeline } = await import(`${location.origin}/console/js/handoff_timeline.js`);
  let now = 5000;
  const timeline = new Timeline(() => now);
  const seen = [];
  for (const [name, value] of steps) {
    if (name === "wait") now += value * 1000;
    else timeline[name](value);
    seen.push([timeline.seconds, timeline.playing]);
  }
  return seen;
}"""


async def test_the_timeline_alone_on_a_clock_that_is_given(page: Inspector) -> None:
    """Positions stay within 0 and 60; it comes to rest at the end; a change of speed or place loses nothing."""
    steps = [
        (["wait", 9], [0, False]),
        (["play", None], [0, True]),
        (["wait", 4], [4, True]),
        (["setSpeed", 0.25], [4, True]),
        (["wait", 4], [5, True]),
        (["play", None], [5, True]),
        (["seek", -3], [0, True]),
        (["setSpeed", 2], [0, True]),
        (["wait", 5], [10, True]),
        (["next", None], [20, False]),
        (["wait", 5], [20, False]),
        (["seek", 99], [60, False]),
        (["next", None], [60, False]),
        (["play", None], [0, True]),
        (["wait", 29], [58, True]),
        (["wait", 29], [60, False]),
        (["setSpeed", 1], [60, False]),
        (["seek", 59], [59, False]),
        (["play", None], [59, True]),
        (["pause", None], [59, False]),
    ]
    seen = await page.page.evaluate(TIMELINE, [step for step, _ in steps])
    assert seen == [wanted for _, wanted in steps]


# -- the inputs

#: A control, what is done with it, and what is then asked.
CHANGES: dict[str, tuple[str, str, str, Any]] = {
    "destination": ("Destination", "fill", "https://other.example", {"destination": "https://other.example"}),
    "skill": ("Requested skill", "fill", "translate", {"skill": "translate"}),
    "task": ("Task", "fill", "Really?", {"text": "Really?"}),
    "card": ("Agent card", "fill", "{}", {"card": "{}"}),
    "advertised": ("Endpoint policy", "select", "advertised", {"policy": "advertised"}),
    "broad": ("Credential scope", "select", "broad", {"credential": "broad"}),
    "missing": ("Credential scope", "select", "missing", {"credential": "missing"}),
    "public": ("Admit a card that asks for no credential", "check", "", {"public": True}),
    "version": ("Protocol version", "select", "0.3.0", {"protocol_version": "0.3.0"}),
    "100 ms": ("Deadline", "select", "100", {"deadline_ms": 100}),
    "300 ms": ("Deadline", "select", "300", {"deadline_ms": 300}),
    **{f"card {id}": ("Card from", "select", id, {"card": card}) for id, _, card in CARDS if id != "valid"},
    **{
        f"answer {id}": ("Peer's answer", "select", id, {"answer": {"fixture": id, "delay_ms": 150}})
        for id in FIXTURES
        if id != "completed"
    },
    "delay": ("Peer delay, ms", "fill", "90", {"answer": {"fixture": "malformed", "delay_ms": 90}}),
    "dry run": ("Peer's answer", "select", "dry", {"answer": None}),
}


async def test_every_input_counts_and_resets_the_trace(page: Inspector) -> None:
    """One after the other: what is asked holds all changes so far."""
    wanted = dict(DEFAULTS)
    for label, act, value, asked in CHANGES.values():
        await page.play(15)
        assert page.asked[-1] == wanted
        control = page.input(label)
        if act == "check":
            await control.check()
        else:
            await (control.fill(value) if act == "fill" else control.select_option(value))
        await page.at("0:00")
        await expect(page.button("Play")).to_be_visible()
        assert await page.gates() == ["waiting"] * 6, label
        wanted = {**wanted, **asked}
    await page.end()
    assert page.asked[-1] == wanted
    assert len(page.asked) == len(CHANGES) + 1


async def test_deadlines_and_the_peers_delay(page: Inspector) -> None:
    options = await page.input("Deadline").locator("option").all_text_contents()
    assert options == [f"{ms} ms" for ms in DEADLINES_MS["fixture"]] == ["100 ms", "200 ms", "300 ms"]
    await expect(page.input("Peer delay, ms")).to_have_value("150")
    for deadline, state in ((100, "timeout-unknown"), (200, "completed"), (300, "completed")):
        await page.input("Deadline").select_option(str(deadline))
        await page.end()
        await page.shows(final_state=state)
        if deadline == 100:
            await expect(page.card("Response")).to_contain_text("No answer within 100 ms")


async def test_answers(page: Inspector) -> None:
    for answer, state in (
        ("working", "working-not-complete"),
        ("failed", "peer-failed"),
        ("wrong-id", "response-rejected"),
        ("malformed", "response-rejected"),
        ("dry", "ready"),
        ("completed", "completed"),
    ):
        await page.input("Peer's answer").select_option(answer)
        await page.end()
        sent = "0" if answer == "dry" else "1 (simulated: nothing left this gateway)"
        await page.shows(final_state=state, sends=sent)
        assert await page.page.get_by_role("figure").count() == (1 if answer == "completed" else 0)
        if answer == "working":
            await page.shows(task_id="task-1")
        assert await page.card("Response").locator("pre").count() == (0 if answer == "dry" else 1)


async def command(file: Path, *more: str) -> Any:
    arguments = ["--card", str(file), "--format", "json", "--skill", DEFAULTS["skill"], *more]
    outcome = await asyncio.to_thread(CliRunner().invoke, handoff, arguments, env={"HANDOFF_TOKEN": "x"})
    return json.loads(outcome.stdout)


async def test_its_results_are_the_commands(page: Inspector, tmp_path: Path) -> None:
    """Gate by gate, as the page shows them and as it exports them, for every named card."""
    file = tmp_path / "card.json"
    await page.input("Peer's answer").select_option("dry")
    for id, _, card in reversed(CARDS):
        file.write_text(card)
        wanted = await command(file, "--origin", ORIGIN, "--credential", f"{ORIGIN}=HANDOFF_TOKEN")
        await page.input("Card from").select_option(id)
        await expect(page.input("Agent card")).to_have_value(card)
        await page.end()
        assert await page.gates() == [gate.get("reason", gate["result"]) for gate in wanted["gates"]]
        _, text = await page.saved("Export trace")
        model = json.loads(text)["model"]
        assert UUID.sub("id", json.dumps(model["trace"])) == UUID.sub("id", json.dumps(wanted))


async def test_mistakes_are_shown_where_they_are(page: Inspector) -> None:
    await page.input("Destination").fill("agent.example")
    await page.input("Peer delay, ms").fill("")
    await page.press("Play")
    await expect(page.input("Destination")).to_have_attribute("aria-invalid", "true")
    await expect(page.page.get_by_text("Must be an origin such as https://agent.example")).to_be_visible()
    await expect(page.page.get_by_text("Must be a whole number of milliseconds")).to_be_visible()
    await expect(page.input("Destination")).to_be_focused()
    await page.at("0:00")
    await page.input("Destination").fill(ORIGIN)
    await expect(page.input("Destination")).not_to_have_attribute("aria-invalid", "true")
    await page.input("Peer delay, ms").fill("150")
    await page.end()


async def test_a_gateway_that_does_not_answer(page: Inspector) -> None:
    await page.page.route("**/handoff/trace", lambda route: route.abort())
    await page.press("Play")
    alert = page.page.get_by_role("alert")
    await expect(alert).to_have_text("The gateway gave no trace: the gateway does not answer")
    await page.at("0:00")
    await page.page.unroute("**/handoff/trace")
    await page.play()
    await expect(alert).to_be_hidden()
    page.complaints.clear()  # the browser's own line for the request that was not answered


async def test_an_answer_to_other_inputs_is_not_shown(page: Inspector) -> None:
    """An input that changes while the gateway is asked makes that answer void."""
    held: list[Any] = []
    await page.page.route("**/handoff/trace", lambda route: held.append(route))
    await page.press("Play")
    await expect(page.page.get_by_text("Asking", exact=True)).to_be_visible()
    await expect(page.button("Play")).to_be_focused()
    await page.press("Next gate")  # one question at a time
    await page.input("Task").fill("Another")
    await expect(page.page.get_by_text("Ready to play")).to_be_visible()
    await page.page.unroute("**/handoff/trace")
    await page.end()
    assert [asked["text"] for asked in page.asked] == [DEFAULTS["text"], "Another"]
    request = page.card("Request").locator("pre")
    assert '"text": "Another"' in (await request.text_content() or "")


# -- registered agents


async def test_a_registered_agents_own_card(page: Inspector, peer: A2APeer) -> None:
    """The one that it publishes; what it says of where, what and how goes into the inputs."""
    await page.input("Card from").select_option("own")
    agent = page.input("Registered agent")
    await agent.fill("pe")
    await expect(page.page.locator("datalist option")).to_have_count(1)
    assert await page.page.locator("datalist option").get_attribute("value") == "peer"
    await agent.fill("peer")
    await expect(page.page.get_by_text("As the agent publishes it.")).to_be_visible()
    assert json.loads(await page.input("Agent card").input_value()) == peer.card
    await expect(page.input("Destination")).to_have_value(peer.at("").rstrip("/"))
    await expect(page.input("Requested skill")).to_have_value("echo")
    await expect(page.input("Protocol version")).to_have_value("1.0")
    await expect(page.input("Credential scope")).to_have_value("missing")
    await page.seek(40)
    assert await page.gates() == ["pass", "pass", "pass", "security-missing", "not reached", "not reached"]


async def test_a_link_names_the_agent(page: Inspector, peer: A2APeer) -> None:
    """`#/handoff?agent=peer`, from the page of that agent."""
    await page.page.goto(page.page.url.replace("#/handoff", "#/agents/peer"))
    await page.page.get_by_role("link", name="Hand off", exact=True).click()
    await expect(page.page).to_have_url(re.compile("#/handoff[?]agent=peer$"))
    await expect(page.page.get_by_text("As the agent publishes it.")).to_be_visible()
    assert json.loads(await page.input("Agent card").input_value()) == peer.card


async def test_an_agent_among_many_is_found_by_its_whole_id(browser: Browser) -> None:
    """Only so many are suggested, and the one that is named may not be among them."""
    async with running() as many:
        for number in range(51):
            await many.register("http://127.0.0.1:1/", f"worker-{number}")
        await many.register("http://127.0.0.1:1/last", "worker")
        async with inspector(browser, many.api) as page:
            await page.input("Card from").select_option("own")
            await page.input("Registered agent").fill("worker")
            await expect(page.page.get_by_text("As it is registered")).to_be_visible()
            await expect(page.page.locator("datalist option")).to_have_count(50)
            assert json.loads(await page.input("Agent card").input_value())["url"] == "http://127.0.0.1:1/last"
            page.complaints.clear()  # without a health engine nobody knows a published card: a 404


async def test_the_registered_card_where_no_published_one_is_known(page: Inspector) -> None:
    await page.input("Card from").select_option("own")
    await page.input("Registered agent").fill("silent")
    await expect(page.page.get_by_text("As it is registered")).to_be_visible()
    card = json.loads(await page.input("Agent card").input_value())
    assert card["url"] == "http://127.0.0.1:1/"
    assert not card.keys() & {"agent_id", "registered_at", "last_seen", "health"}
    await expect(page.input("Requested skill")).to_have_value("say")


async def send(page: Inspector, agent_id: str = "peer") -> None:
    await page.input("Card from").select_option("own")
    await page.input("Registered agent").fill(agent_id)
    await expect(page.page.get_by_text("As the agent publishes it.")).to_be_visible()
    await page.input("Admit a card that asks for no credential").check()
    await page.input("Peer's answer").select_option("send")


def sends(peer: A2APeer) -> int:
    return sum(1 for one in peer.requests if one.method == "POST" and b"SendMessage" in one.body)


async def test_a_real_send_is_made_once_and_only_by_its_button(page: Inspector, peer: A2APeer) -> None:
    """Playing, seeking and restarting never send."""
    before = sends(peer)
    done = json.loads(FIXTURES["completed"][1]("x", "1.0"))["result"]
    peer.rpc["SendMessage"] = reply.result(done)
    await send(page)
    for control in (page.button("Play"), page.button("Next gate"), page.button("Restart"), page.slider):
        await expect(control).to_be_disabled()
    assert await page.input("Deadline").locator("option").all_text_contents() == ["1 s", "5 s", "10 s", "30 s"]
    await expect(page.input("Peer delay, ms")).to_be_hidden()
    await page.press("Send the task")
    await expect(page.button("Pause")).to_be_visible()
    await page.wait(60)
    await page.shows(final_state="completed", sends="1", destination=peer.base)
    await expect(page.page.get_by_role("figure")).to_contain_text(ACCEPTED)
    await page.press("Restart")
    await page.play(20)
    await page.end()
    assert (sends(peer) - before, len(page.asked)) == (1, 1)
    await page.input("Task").fill("Another task")
    await page.at("0:00")
    await expect(page.button("Play")).to_be_disabled()
    assert sends(peer) - before == 1


async def test_what_is_being_sent_cannot_be_changed(page: Inspector) -> None:
    """Nothing calls a task back: until its answer is there the inputs stand, and there is no second one."""
    held: list[Any] = []
    await send(page)
    await page.page.route("**/handoff/trace", lambda route: held.append(route))
    await page.press("Send the task")
    await expect(page.page.get_by_text("Sending", exact=True)).to_be_visible()
    assert await page.page.evaluate("document.querySelector('.handoff-form').inert") is True
    await page.page.keyboard.press("Enter")  # on the same button
    assert len(held) == 1
    await held[0].continue_()
    await expect(page.button("Pause")).to_be_visible()
    assert await page.page.evaluate("document.querySelector('.handoff-form').inert") is False
    assert len(page.asked) == 1


async def test_a_real_send_to_nobody(page: Inspector) -> None:
    await send(page)
    await page.input("Card from").select_option("valid")
    await page.input("Registered agent").fill("nobody-at-all")
    await page.press("Send the task")
    await expect(page.page.get_by_role("alert")).to_have_text("The gateway gave no trace: agent not found")
    await page.input("Registered agent").fill("")
    await page.press("Send the task")
    await expect(page.page.get_by_text("Must be the id of a registered agent")).to_be_visible()


async def test_a_real_send_elsewhere_is_refused(page: Inspector, peer: A2APeer) -> None:
    before = sends(peer)
    await send(page)
    await page.input("Card from").select_option("valid")
    await page.input("Destination").fill(ORIGIN)
    await page.input("Requested skill").fill(str(DEFAULTS["skill"]))
    await page.press("Send the task")
    await expect(page.button("Pause")).to_be_visible()
    await page.end()
    await page.shows(sends="0", final_state="credential-missing")
    assert sends(peer) == before


# -- what is taken along


async def test_export_keeps_the_model_and_the_inspected_prefix_apart(page: Inspector) -> None:
    await expect(page.button("Export trace")).to_be_disabled()
    await page.seek(25)
    await page.at("0:25")
    name, text = await page.saved("Export trace")
    assert name.startswith("handoff-trace-")
    assert name.endswith(".json")
    exported = json.loads(text)
    assert exported["format"] == "vitalgate-handoff-trace/1"
    assert exported["inputs"] == DEFAULTS
    assert [gate["result"] for gate in exported["model"]["trace"]["gates"]] == ["pass"] * 6
    assert exported["model"]["artifact_text"] == ACCEPTED
    inspected = exported["inspected"]
    assert [gate["gate"] for gate in inspected["gates"]] == ["card", "endpoint"]
    assert inspected["gates"] == exported["model"]["trace"]["gates"][:2]
    assert (inspected["seconds"], inspected["destination"]) == (25, f"{ORIGIN}/a2a")
    hidden = ("request", "response", "artifact_text", "final_state", "credential_exposed")
    assert {inspected[member] for member in hidden} == {None}
    await page.end()
    _, text = await page.saved("Export trace")
    assert json.loads(text)["inspected"]["artifact_text"] == ACCEPTED


async def test_a_baseline_is_captured_replaced_cleared_and_compared(page: Inspector) -> None:
    baseline = page.card("Baseline")
    await expect(page.button("Capture baseline")).to_be_disabled()
    await expect(page.button("Clear baseline")).to_be_disabled()
    await page.end()
    await page.press("Capture baseline")
    await expect(baseline).to_contain_text("No difference at this moment.")
    await expect(baseline).to_contain_text("The inputs are the same.")
    await page.input("Peer's answer").select_option("failed")
    await expect(baseline).to_contain_text("A baseline is kept. Play the trace to compare the two.")
    await page.seek(50)
    await expect(baseline).to_contain_text("No difference at this moment.")
    await page.end()
    differing = baseline.locator("tr.differs")
    rows = [" | ".join(await row.locator("th, td").all_text_contents()) for row in await differing.all()]
    assert rows == [
        "Answer | completed after 150 ms | failed after 150 ms (differs)",
        "Gate 6, response | pass | stop: task-failed (differs)",
        "Stopping gate | none | response (differs)",
        "Final state | completed | peer-failed (differs)",
        f"Accepted text | {ACCEPTED} | none (differs)",
    ]
    await expect(baseline).to_contain_text("4 of 13 differ at this moment.")
    await page.press("Replace baseline")
    await expect(baseline).to_contain_text("No difference at this moment.")
    await page.press("Clear baseline")
    await expect(page.button("Capture baseline")).to_be_enabled()
    await expect(page.button("Clear baseline")).to_be_disabled()
    await expect(baseline.locator("table")).to_have_count(0)


async def test_notes_stay_in_this_browser(page: Inspector) -> None:
    """Kept over a reload, sent nowhere, exported when asked."""
    bodies: list[str] = []
    page.page.on("request", lambda request: bodies.append(f"{request.url} {request.post_data}"))
    await expect(page.button("Export notes")).to_be_disabled()
    await page.input("Your notes").fill(f"Look again tomorrow. {HOSTILE}")
    await page.end()
    await page.page.reload()
    await expect(page.input("Your notes")).to_have_value(f"Look again tomorrow. {HOSTILE}")
    name, text = await page.saved("Export notes")
    assert name.startswith("handoff-notes-")
    assert text == f"Look again tomorrow. {HOSTILE}"
    assert "tomorrow" not in "".join(bodies)
    await page.input("Your notes").fill("")
    await page.page.reload()
    await expect(page.input("Your notes")).to_have_value("")


async def test_full_screen(page: Inspector) -> None:
    await page.press("Full screen")
    await expect(page.button("Leave full screen")).to_be_visible()
    assert await page.page.evaluate("document.fullscreenElement.className") == "view view-handoff handoff"
    await page.play(10)
    await page.at("0:10")
    await page.press("Leave full screen")
    await expect(page.button("Full screen")).to_be_visible()
    assert await page.page.evaluate("document.fullscreenElement") is None


# -- text of others, people


async def test_text_is_never_markup(page: Inspector, peer: A2APeer) -> None:
    """In the card, the inputs and the peer's answer: shown as it is."""
    dialogs: list[str] = []
    page.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    task = {
        "id": "t",
        "contextId": "c",
        "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": HOSTILE}]}],
    }
    peer.rpc["SendMessage"] = reply.result({"task": task})
    await send(page)
    card = json.loads(await page.input("Agent card").input_value())
    card["skills"].append({"id": HOSTILE, "name": HOSTILE})
    await page.input("Agent card").fill(json.dumps(card))
    await page.input("Requested skill").fill(HOSTILE)
    await page.input("Task").fill(HOSTILE)
    await page.press("Send the task")
    await expect(page.button("Pause")).to_be_visible()
    await page.end()
    await page.press("Capture baseline")
    await expect(page.page.get_by_role("figure")).to_have_text(f"Accepted text artifact{HOSTILE}")
    assert json.dumps(HOSTILE) in (await page.card("Request").locator("pre").text_content() or "")
    assert json.dumps(HOSTILE) in (await page.card("Response").locator("pre").text_content() or "")
    assert await page.page.locator("main img, main script").count() == 0
    assert dialogs == []


async def test_an_answer_that_is_no_json_is_shown_as_it_came(page: Inspector, peer: A2APeer) -> None:
    peer.rpc["SendMessage"] = reply.body(b"<b>busy</b>", status=503)
    await send(page)
    await page.press("Send the task")
    await expect(page.button("Pause")).to_be_visible()
    await page.end()
    await page.shows(final_state="response-rejected", sends="1")
    await expect(page.card("Response").locator("pre")).to_have_text("<b>busy</b>")
    await expect(page.card("Response")).to_contain_text("HTTP 503")


async def test_json_keeps_its_tokens(page: Inspector) -> None:
    """Numbers and escapes are shown as they came, and not as a parser would write them."""
    text = '{"n":12345678901234567890.10,"s":"\\u003cb\\"{,","e":[],"o":{},"a":[1,{"b":null}]}'
    found = await page.page.evaluate(
        "async (text) => (await import(`${location.origin}/console/js/handoff_text.js`)).indented(text)", text
    )
    assert found == (
        '{\n  "n": 12345678901234567890.10,\n  "s": "\\u003cb\\"{,",\n  "e": [],\n  "o": {},\n'
        '  "a": [\n    1,\n    {\n      "b": null\n    }\n  ]\n}'
    )


async def test_by_keyboard_alone(page: Inspector) -> None:
    """Every control is reached by Tab, in the order of the page, and does what it does by key."""
    reached: list[str] = []
    await page.end()
    await page.page.locator("h1").click()
    name = """(({ labels, ariaLabel, textContent }) =>
      (labels?.[0]?.textContent || ariaLabel || textContent).trim())(document.activeElement)"""
    for _ in range(28):
        await page.page.keyboard.press("Tab")
        reached.append(await page.page.evaluate(name))
    wanted = [
        "Export trace",
        "Full screen",
        "Play",
        "Next gate",
        "Restart",
        "1×",
        "Timeline, in seconds",
        "Card from",
    ]
    start = reached.index("Export trace")
    assert reached[start : start + len(wanted)] == wanted
    for control in (
        "Agent card",
        "Destination",
        "Deadline",
        "The message",
        "The answer",
        "Capture baseline",
        "Your notes",
    ):
        assert control in reached
    await page.button("Restart").press("Enter")
    await page.at("0:00")
    await page.button("Next gate").press("Space")
    await page.at("0:10")
    await page.speed("Normal speed").press("ArrowRight")
    await expect(page.speed("Twice the speed")).to_be_checked()
    await page.button("Play").press("Space")
    await page.wait(5)
    await page.at("0:20")
    await page.button("Pause").press("Space")
    await page.at("0:20")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone(browser: Browser, gateway: Running, scheme: str) -> None:
    """Nothing is wider than the screen, and playing brings the gates into sight."""
    async with inspector(browser, gateway.api, viewport=PHONE, scheme=scheme, has_touch=True) as page:
        wide = "document.documentElement.scrollWidth - innerWidth"
        assert await page.page.evaluate(wide) <= 0
        await page.input("Card from").select_option("wrong-origin")
        await page.play(20)
        await expect(page.page.get_by_text("endpoint-not-allowed").first).to_be_in_viewport()
        await expect(page.button("Pause")).to_be_in_viewport()
        await page.end()
        assert await page.page.evaluate(wide) <= 0


async def test_with_authentication_on(browser: Browser) -> None:
    """Contract 6.1: nothing is shown before there is a token, and a policy may forbid it."""
    rules = [{"principals": ["alice"], "read": True}]
    auth = {"enable": True, "secret_env": "JWT_SECRET", "policy": rules}
    async with running(environ={"JWT_SECRET": SECRET}, auth=auth) as secured:
        page = await browser.new_page()
        try:
            await page.goto(f"{secured.api}/#/handoff")
            await page.get_by_label("Bearer token").fill(token(sub="alice"))
            await page.get_by_role("button", name="Use it").click()
            shown = Inspector(page)
            await shown.end()
            await shown.shows(final_state="completed")
        finally:
            await page.close()


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: `make .js-sdk` needs npm")
@pytest.mark.parametrize("size", [DESK, PHONE_SIZE], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(browser: Browser, gateway: Running, scheme: str, size: tuple[int, int]) -> None:
    """At the start, at a stop, at the end beside a baseline, and with mistakes marked; the clock runs here."""
    async with opened(
        browser, gateway.api, "#/handoff", size=size, scheme=scheme, expected=("status of 400",), still=True
    ) as bare:
        page = Inspector(bare)
        await expect(page.button("Play")).to_be_visible()
        assert await judged(bare) == []
        await page.end()
        await page.press("Capture baseline")
        await expect(page.page.get_by_role("figure")).to_be_visible()
        assert await judged(bare) == []
        await page.input("Card from").select_option("wrong-origin")
        await page.seek(25)
        await expect(page.page.get_by_text("If you trust this origin")).to_be_visible()
        assert await judged(bare) == []
        await page.input("Peer's answer").select_option("send")
        await page.input("Destination").fill("nowhere")
        await page.press("Send the task")
        await expect(page.page.get_by_text("Must be an origin such as")).to_be_visible()
        assert await judged(bare) == []

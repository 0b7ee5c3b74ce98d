"""The benchmark's own parts: what it sends, renders, counts and judges. No load generator or proxy needed."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from litestar.testing import AsyncTestClient

from gateway import settings
from tests.benchmarks import (
    bench,
    cases,
    client,
    configs,
    events,
    load,
    payloads,
    processes,
    reference,
    report,
    stream_agent,
    targets,
)
from tests.benchmarks.cases import Case, Group
from tests.benchmarks.events import Checker, WrongStreamError
from tests.benchmarks.processes import BenchError
from tests.benchmarks.stream_load import Load
from tests.benchmarks.subjects import ROUTES, START, STREAM_PATH
from tests.benchmarks.targets import Number, Target

DEAD = "http://127.0.0.1:1/"


@pytest.mark.parametrize("size", [payloads.SMALL_REQUEST, payloads.SMALL_RESPONSE, payloads.LARGE])
def test_payloads_have_their_size_and_answer_each_other(size: int) -> None:
    request, response = payloads.request(max(size, 400)), payloads.response(size)
    assert len(response) == size
    assert json.loads(request)["method"] == "message/send"
    assert json.loads(request)["id"] == json.loads(response)["id"]
    assert not set(b"'$\\") & set(response)  # it stands in a quoted string of nginx's configuration


def test_a_payload_too_small_for_its_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="100 bytes"):
        payloads.request(100)


# --- configurations ---


def test_nginx_routes_every_path() -> None:
    text = configs.nginx(
        port=1, folder="/f", agent_port=2, routes=ROUTES, stream_port=3, stream_path=STREAM_PATH, user=""
    )
    for path, target in ROUTES.items():
        assert f"location = {path} {{ proxy_pass http://agent{target}; }}" in text
    assert f"location = {STREAM_PATH} {{" in text
    assert "server 127.0.0.1:3;" in text
    assert text.count("{") == text.count("}")


def test_the_agent_answers_with_the_small_payload() -> None:
    text = configs.agent(port=1, folder="/f", small=payloads.response(), user="user root;")
    assert f"return 200 '{payloads.response().decode()}';" in text
    assert "listen 127.0.0.1:1 " in text


def test_envoy_routes_every_path() -> None:
    text = configs.envoy(port=1, agent_port=2, routes=ROUTES, stream_port=3, stream_path=STREAM_PATH)
    (listener,) = json.loads(text)["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    found = {one["match"]["path"]: one["route"]["regex_rewrite"]["substitution"] for one in routes}
    assert found == ROUTES | {STREAM_PATH: "/"}
    assert listener["address"]["socket_address"]["port_value"] == 1


@pytest.mark.parametrize("log_calls", [True, False])
def test_the_gateway_takes_its_configuration(tmp_path: Path, log_calls: bool) -> None:
    file = tmp_path / "vitalgate.yaml"
    file.write_text(configs.vitalgate(port=7001, metrics_port=7002, log_calls=log_calls))
    loaded = settings.load(str(file), {}).settings
    assert (loaded.server.port, loaded.metrics.port, loaded.log.calls) == (7001, 7002, log_calls)
    assert loaded.registry.url == "memory://"
    assert loaded.a2a.agent_max_concurrency > bench.FULL["streams"]  # all of them may be one agent's


# --- targets ---


def test_targets_name_what_the_scenarios_measure() -> None:
    known = {case.name: case.subjects for group in cases.GROUPS for case in group.cases}
    for target in targets.load():
        for number in filter(None, (target.value, target.per)):
            assert number.subject in known[number.case], target.what
            assert number.name in report.COLUMNS, target.what


def test_targets_get_stricter_from_step_to_step() -> None:
    for target in targets.load():
        steps = [target.first, target.goal, *([] if target.stretch is None else [target.stretch])]
        assert steps == sorted(steps, reverse=True), target.what


def test_subjects_of_the_scenarios_can_be_started() -> None:
    named = {name for group in cases.GROUPS for case in group.cases for name in case.subjects}
    assert named == {*START, *cases.IN_PROCESS, *cases.NODES}


@pytest.mark.parametrize("kind", cases.IN_PROCESS)
def test_a_call_without_the_kernel_costs_no_more_than_the_gate(kind: str) -> None:
    cost = cases.on_core_alone(kind, max(os.sched_getaffinity(0)))
    assert cost["units"] <= targets.gate()[kind], f"{cost['cpu_us']:.1f} us per call"


def test_a_verified_token_costs_next_to_nothing() -> None:
    """Performance: authentication with a remembered token, at most 1.15 times the CPU of a call without.

    Both are measured side by side; what else the machine does may spoil a round, and not three of them.
    """

    def ratio() -> float:
        core = max(os.sched_getaffinity(0))
        costs = {kind: cases.on_core_alone(kind, core)["cpu_us"] for kind in ("whole", "auth")}
        return costs["auth"] / costs["whole"]

    rounds = []
    while not rounds or (min(rounds) > 1.15 and len(rounds) < 3):
        rounds.append(ratio())
    assert min(rounds) <= 1.15


def test_a_target_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "targets.toml"
    file.write_text('[[target]]\nwhat="x"\nvalue="a/b.c"\nfirst=1\ngoal=1\nstrech=1\n')
    with pytest.raises(ValueError, match="strech"):
        targets.load(file)


@pytest.mark.parametrize("text", ["a", "a/b", "a.b", "/b.c", "a/.c", "a/b."])
def test_a_number_without_its_parts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="case/subject"):
        Number.parse(text)


@pytest.mark.parametrize(
    ("value", "verdict"), [(2.1, "MISSED"), (2.0, "first"), (1.0, "goal"), (0.6, "goal"), (0.5, "stretch")]
)
def test_the_verdict_is_the_best_step_met(value: float, verdict: str) -> None:
    assert Target("x", Number("c", "s", "n"), None, 2.0, 1.0, 0.5).verdict(value) == verdict


RATIO = Target("ratio", Number("c", "ours", "cpu_us"), Number("c", "theirs", "cpu_us"), 2.0, 1.0, None)


def test_a_ratio_is_taken_inside_one_repeat() -> None:
    # The medians of both sides are equal; repeat by repeat ours costs three times, twice and a third.
    ours, theirs = [30.0, 20.0, 10.0], [10.0, 10.0, 30.0]
    results = {"c": {"ours": [{"cpu_us": v} for v in ours], "theirs": [{"cpu_us": v} for v in theirs]}}
    (judgement,) = targets.judge([RATIO], results)
    assert judgement.median == 2.0
    assert (judgement.verdict, judgement.failed) == ("first", False)


def test_wrong_answers_make_a_target_invalid() -> None:
    results: bench.Raw = {"c": {"ours": [None, {"cpu_us": 1.0}], "theirs": [{"cpu_us": 1.0}, {"cpu_us": 1.0}]}}
    (judgement,) = targets.judge([RATIO], results)
    assert (judgement.median, judgement.verdict, judgement.failed) == (None, "INVALID", True)


def test_what_a_run_was_not_asked_for_is_not_judged() -> None:
    assert targets.judge([RATIO], {"c": {"ours": [{"cpu_us": 1.0}]}}) == []


# --- the run ---


def test_every_repeat_visits_every_pair_and_wrong_answers_count_as_none() -> None:
    visits: list[str] = []

    def measure(_bench: object, name: str) -> dict[str, float]:
        visits.append(name)
        if name == "liar":
            raise BenchError("wrong answer")
        return {"p50_us": float(len(visits))}

    group = Group("g", (Case("one", "", ("a", "liar"), measure), Case("two", "", ("a", "b"), measure)), cold=True)
    idle = type("Idle", (), {"running": {}})()
    results = bench.measure(idle, [group], repeats=3, seed=1)
    assert sorted(visits[:4]) == sorted(visits[4:8]) == sorted(visits[8:]) == ["a", "a", "b", "liar"]
    assert results["one"]["liar"] == [None, None, None]
    assert [len(repeats) for case in results.values() for repeats in case.values()] == [3, 3, 3, 3]


def test_a_group_may_be_repeated_less_often() -> None:
    group = Group("g", (Case("one", "", ("a",), lambda _bench, _name: {}),), cold=True, at_most=2)
    idle = type("Idle", (), {"running": {}})()
    assert [bench.measure(idle, [group], repeats, seed=1)["one"]["a"] for repeats in (1, 3)] == [[{}], [{}, {}]]


def test_added_latency_is_what_exceeds_the_direct_call_of_the_same_repeat() -> None:
    results: bench.Raw = {"c": {"direct": [{"p50_us": 20.0}, None], "envoy": [{"p50_us": 50.0}, {"p50_us": 60.0}]}}
    bench.add_latency(results)
    assert results["c"]["envoy"] == [{"p50_us": 50.0, "added_p50_us": 30.0}, {"p50_us": 60.0}]


def test_scenarios_are_chosen_by_case_or_group() -> None:
    (group,) = cases.select(["calls-c8", "calls-c1"], ["vitalgate", "direct"])
    assert [(case.name, case.subjects) for case in group.cases] == [
        ("calls-c1", ("direct", "vitalgate")),
        ("calls-c8", ("vitalgate",)),
    ]
    assert len(cases.select(["calls"], [])[0].cases) == 6
    usual = [group.name for group in cases.GROUPS if not group.extra]
    assert [group.name for group in cases.select([], [])] == usual
    assert [group.name for group in cases.select(["soak"], [])] == ["soak"]


@pytest.mark.parametrize("wanted", [["calls-c7"], ["scrape", "nonsense"]])
def test_an_unknown_scenario_is_named_with_the_known_ones(wanted: list[str]) -> None:
    with pytest.raises(BenchError, match=r"no scenario (calls-c7|nonsense); there are: agents, "):
        cases.select(wanted, [])


def test_an_unknown_scenario_ends_the_run_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--scenario", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("bench: no scenario nonsense")


def test_noise_is_told_only_when_the_measured_processes_had_to_wait() -> None:
    assert bench.noise({"c": {"a": [{"waited": 0.01}, None], "b": [{"waited": 0.3}, {"waited": 0.02}]}}) is None
    assert "30%" in (bench.noise({"c": {"a": [{"waited": 0.3}]}}) or "")


def test_the_tables_show_medians_ratios_and_verdicts() -> None:
    results: bench.Raw = {"c": {"envoy": [{"cpu_us": 10.0}], "ours": [{"cpu_us": 15.0}], "liar": [None]}}
    text = report.measurements(results, {"c": "about it"})
    assert "c: about it" in text
    assert "liar: INVALID" in text
    assert next(line for line in text.splitlines() if "ours" in line).split() == ["ours", "15.0", "1.50"]
    (judgement,) = targets.judge([RATIO], {"c": {"ours": [{"cpu_us": 3.0}], "theirs": [{"cpu_us": 1.0}]}})
    assert report.verdicts([judgement]).splitlines()[-1].split() == ["ratio", "2", "1", "-", "3", "3-3", "MISSED"]


# --- load ---

RESULT = (
    "Running 1s test\nRESULT requests=10 duration_us=2000000 p50_us=150 p99_us=900 wrong={wrong} connect=0 read=0 "
    "write=0 timeout=0 sample={sample}\n"
)


def test_a_window_is_read_from_the_load_generators_output() -> None:
    window = load.parse(RESULT.format(wrong=0, sample=""))
    assert (window.answers, window.seconds, window.p50_us, window.p99_us) == (10, 2.0, 150, 900)
    assert window.complaint is None


def test_a_window_with_a_wrong_body_says_which() -> None:
    complaint = load.parse(RESULT.format(wrong=1, sample='200 {"error": {"a"=1}}')).complaint
    assert complaint is not None
    assert "'wrong': 1" in complaint
    assert '200 {"error": {"a"=1}}' in complaint


def test_a_window_without_answers_is_no_window() -> None:
    assert load.parse(RESULT.format(wrong=0, sample="").replace("requests=10", "requests=0")).complaint
    with pytest.raises(BenchError, match="no result"):
        load.parse("unable to connect")


def test_a_missing_load_generator_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match="apt-get install wrk"):
        load.wrk()


def test_the_stall_is_the_longest_answer_above_the_usual_one() -> None:
    stalls = client.Stalls()
    stalls.latencies += [0.001, 0.001, 0.021]
    assert stalls.longest_ms == pytest.approx(20)


# --- streams ---


def wire(count: int) -> bytes:
    return b"".join(events.event(number, 1000) for number in range(count)) + events.FINAL


def test_events_are_a2a_events_of_one_size() -> None:
    sizes = {len(events.event(number, stamp)) for number, stamp in ((0, 0), (10**9, time.monotonic_ns()))}
    assert sizes == {events.SIZE}
    for event in (events.event(7, 8), events.FINAL):
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        assert json.loads(event[6:])["id"] == payloads.CALL_ID
    assert json.loads(events.FINAL[6:])["result"]["final"] is True
    assert events.plan(events.request(5, 0.5)) == (5, 0.5)


@pytest.mark.parametrize("step", [1, 7, events.SIZE, 100_000])
def test_every_event_is_checked_however_the_bytes_are_cut(step: int) -> None:
    latencies: list[int] = []
    checker = Checker(3, latencies)
    text = events.KEEPALIVE + wire(3).replace(events.FINAL, events.KEEPALIVE + events.FINAL)
    seen = sum(checker.feed(text[at : at + step], 1500) for at in range(0, len(text), step))
    assert (seen, checker.number, checker.complete, latencies) == (3, 3, True, [500] * 3)


@pytest.mark.parametrize(
    "text",
    [
        events.event(1, 0),  # one is missing
        events.event(0, 0) * 2,  # one is there twice
        wire(1),  # ends too early
        wire(3),  # ends too late
        wire(2) + events.FINAL,
        events.event(0, 0).replace(b"fox", b"fix"),
        b"event: x\n" + events.event(0, 0),
        b"data: {}\n\n",
    ],
)
def test_a_wrong_event_is_told(text: bytes) -> None:
    with pytest.raises(WrongStreamError):
        Checker(2, []).feed(text, 0)


@asynccontextmanager
async def agent_and_load() -> AsyncIterator[Load]:
    streams = stream_agent.Streams()
    async with await stream_agent.serve(0, streams) as server:
        caller = Load(server.sockets[0].getsockname()[1])
        yield caller
        await caller.leave()
        await asyncio.wait_for(streams.unused.wait(), 10)
        caller.check()  # who leaves complains of nothing


async def test_the_streaming_agent_and_its_load_fit_together() -> None:
    async with agent_and_load() as caller:
        await caller.open(["/"] * 3, 20, 0)
        await caller.open(["/"] * 2, 4, 0.01)
        await caller.whole(10)
        assert (caller.events, len(caller.latencies)) == (3 * 20 + 2 * 4, 68)
        caller.callers[0].begin("/", 5, 0)  # the connection serves another stream
        await caller.whole(10)
        assert caller.events == 73


async def test_the_agent_tells_how_many_streams_are_open() -> None:
    async with agent_and_load() as caller:
        await caller.open(["/"] * 4, 2, 1000)
        assert await asyncio.to_thread(client.open_streams, caller.port) == 4
        await caller.leave()
        async with asyncio.timeout(10):
            while await asyncio.to_thread(client.open_streams, caller.port):
                pass


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ONE = b"%x\r\n%b\r\n" % (events.SIZE, events.event(0, 0))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "no stream"),
        (STREAM_HEAD + ONE, "connection lost after 1 events"),
        (STREAM_HEAD + ONE + b"0\r\n\r\n", "an end after 1 events"),
        (STREAM_HEAD + b"2\r\nxxx\r\n", "broken chunk"),
        (STREAM_HEAD + b"zz\r\n", "wrong stream"),
    ],
)
async def test_an_end_without_the_last_event_and_chunk_is_an_error(answer: bytes, complaint: str) -> None:
    closed = asyncio.Event()

    async def agent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}}")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with await asyncio.start_server(agent, "127.0.0.1", 0) as server:
        caller = Load(server.sockets[0].getsockname()[1])
        with pytest.raises(BenchError, match=complaint):
            await one_stream(caller)
        await caller.leave()
        await asyncio.wait_for(closed.wait(), 10)


async def one_stream(caller: Load) -> None:
    await caller.open(["/"], 5, 0)
    await caller.whole(10)


# --- processes ---

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
while True: sum(range(1000))
"""


def test_a_process_is_pinned_measured_and_ended_with_its_children(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    process = processes.start("busy", [sys.executable, "-c", PARENT], core=core, log=tmp_path / "log")
    try:
        child = processes.wait_until(lambda: process.log.read_text().strip() or None, process=process, seconds=20)
        assert set(processes.tree(process.popen.pid)) == {process.popen.pid, int(child)}
        assert os.sched_getaffinity(int(child)) == {core}
        processes.wait_until(lambda: process.cpu_seconds() > 0.05 or None, process=process, seconds=20)
        assert process.pss_mb() > 1
        assert process.waited_seconds() >= 0
    finally:
        process.stop()
    assert process.popen.returncode == -signal.SIGTERM
    assert not _runs(int(child))


def _runs(pid: int) -> bool:
    """Whether a process lives; killed ones may wait a moment for the reaper, as zombies."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_process_that_ends_early_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('port in use')"]
    process = processes.start("broken", command, core=min(os.sched_getaffinity(0)), log=tmp_path / "log")
    begin = time.monotonic()
    with pytest.raises(BenchError, match=r"broken ended with exit code 1:\nport in use"):
        processes.wait_until(lambda: None, process=process, seconds=20)
    assert time.monotonic() - begin < 15
    process.stop()


# --- the reference stack ---


@pytest.mark.parametrize(
    ("agent", "body", "code"),
    [
        ("bench", b"{", -32700),
        ("bench", b"[]", -32600),
        ("nobody", payloads.request(), -32002),
        ("bench", payloads.request(), -32003),
    ],
)
async def test_the_reference_stack_does_a_gateways_least(agent: str, body: bytes, code: int) -> None:
    async with AsyncTestClient(reference.build({"bench": DEAD})) as caller:
        answer = await caller.post(f"/a2a/{agent}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == code


def test_a_page_gets_the_tables_between_its_marks() -> None:
    page = "a\n<!-- bench: one -->\nold\n<!-- end of bench -->\nb\n<!-- bench: two -->\n<!-- end of bench -->\n"
    once = report.renewed(page, {"one": "1", "two": "2"})
    assert once.startswith("a\n<!-- bench: one -->\n```text\n1\n```\n<!-- end of bench -->\nb\n")
    assert report.renewed(once, {"one": "1", "two": "2"}) == once
    with pytest.raises(ValueError, match="bench: three"):
        report.renewed(page, {"three": "3"})


def test_the_page_on_performance_can_be_renewed() -> None:
    page = (Path(bench.__file__).parents[2] / "docs" / "performance.md").read_text()
    assert report.renewed(page, dict.fromkeys(("run", "targets", "measured"), "")) != page

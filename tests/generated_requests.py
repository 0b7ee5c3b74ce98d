"""What callers and agents may do, generated from a seed: requests whole and torn, faulty, odd; answers alike."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fakes import reply
from tests.fakes.agent import Behaviour
from tests.fakes.stream_reply import sse

METHODS = ["POST"] * 40 + ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "post", "PATCH"]
TARGETS = ["/a2a/echo"] * 30 + [
    "/a2a/echo/",
    "/a2a/echo?A2A-Version=1.0",
    "/a2a/echo?format=envelope&x=%20",
    "/a2a/echo?A2A-Version=%00",
    "/a2a/other",
    "/a2a/unknown-agent",
    "/a2a/",
    "/a2a",
    "/a2a/UPPER",
    "/a2a/%65cho",
    "/a2a/echo/stream",
    "/a2a/echo/more",
    "/a2a/echo#part",
    "//a2a/echo",
    "http://localhost/a2a/echo",
    "http://elsewhere.example/a2a/echo",
    "/live",
    "*",
]
HEADERS = [
    "Content-Type: text/plain",
    "Content-Type: application/json; charset=utf-8",
    "content-type:application/json",
    "A2A-Version: 1.0",
    "A2A-Version: 0.3",
    "A2A-Extensions: https://example.org/x",
    "X-Request-ID: mine-1",
    "X-Request-ID: not usable",
    "X-Team: blue",
    "X_Team: red",
    "Accept: text/event-stream",
    "Accept: */*",
    "Accept-Encoding: gzip",
    "User-Agent: generated/1",
    "Cookie: a=b",
    "Authorization: Bearer abc",
    "X-Agent-Authorization: Bearer def",
    "X-KubeMQ-Caller-ID: somebody",
    "Via: 1.1 other",
    "X-Forwarded-For: 10.0.0.1",
    "Forwarded: for=10.0.0.1",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate: a=b",
    "X-Stream-Format: envelope",
    "Origin: http://localhost",
    "Origin: https://evil.example",
    "Origin: null",
    "Connection: keep-alive",
    "Connection: close",
    "Connection: X-Team, keep-alive",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "Expect: something",
    "TE: trailers",
    "Keep-Alive: timeout=5",
    "X-Blank:    around   ",
    "X-Empty:",
    "X-High: \xfc\xff",
    "Last-Event-ID: 7",
]
HOSTS = ["Host: localhost"] * 20 + [
    "Host: 127.0.0.1:80",
    "HOST:localhost",
    "Host: evil.example",
    "Host:",
    "",
    "Host: localhost\r\nHost: localhost",
]

BODIES = [
    b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"text":"hello"}]}}}',
    b'{"jsonrpc":"2.0","id":"a","method":"SendMessage","params":{"message":{}}}',
    b'{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"id":"t"}}',
    b'{"jsonrpc":"2.0","id":3,"method":"message/stream","params":{}}',
    b'{"jsonrpc":"2.0","id":4,"method":"agent/getAuthenticatedExtendedCard"}',
    b'{"jsonrpc":"2.0","id":5,"method":"GetExtendedAgentCard","params":{}}',
    b'{"jsonrpc":"2.0","id":6,"method":"unheard/of","params":null}',
    b'{"jsonrpc":"2.0","method":"message/send","params":{}}',
    b'{"jsonrpc": "2.0", "method": "message/send", "params": {"id": 1}, "id": 7}',
    b'{"id":8,"params":{"a":"\\u00e9","method":"x","id":9},"method":"message/send","jsonrpc":"2.0"}\n',
    b'{"jsonrpc":"2.0","id":9,"method":"message/send","params":{"configuration":{"timeout":30}}}',
    b'{"jsonrpc":"2.0","id":10,"method":"message/send","params":{"configuration":{"timeout":-1}}}',
    b'{"jsonrpc":"2.0","id":11,"method":"message/send","params":[1]}',
    b'{"jsonrpc":"2.0","id":12,"id":13,"method":"message/send","params":{}}',
    b'{"jsonrpc":"2.0","id":14,"method":"message/send","params":{"x":"\xff"}}',
    b'{"jsonrpc":"2.0","id":15,"method":"message/send","params":{"x":"\xc3\xa9"}}',
    b'{"jsonrpc":"1.0","id":16,"method":"message/send"}',
    b'{"jsonrpc":"2.0","id":true,"method":"message/send"}',
    b'{"jsonrpc":"2.0","id":17,"method":""}',
    b'[{"jsonrpc":"2.0","id":18,"method":"message/send"}]',
    b"{bad",
    b"",
    b"null",
    b'{"jsonrpc":"2.0","id":19,"method":"message/send","params":{"x":"' + b"x" * 3000 + b'"}}',
    b'{"jsonrpc":"2.0","id":20,"method":"message/send","params":{"x":"' + b"x" * 6000 + b'"}}',
    b"POST /a2a/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
]
USUAL_BODIES = 3

EVENT = b'data: {"jsonrpc":"2.0","id":3,"result":{"kind":"status-update","status":{"state":"%b"},"final":%b}}\n\n'
WORKING, DONE = EVENT % (b"working", b"false"), EVENT % (b"completed", b"true")
OWN = b'event: task.status\ndata: {"progress":1}\n\n'


def behaviours(chance: random.Random) -> Behaviour:
    """What an agent may do to one request."""
    make = chance.choice([reply.echo] * 12 + FAULTS)
    behaviour: Behaviour = make()
    return behaviour


HEAD_OF_AGENT = (
    ("Content-Type", "application/json"),
    ("X-Agent", "1"),
    ("X_Agent", "2"),
    ("Connection", "X-Gone"),
    ("X-Gone", "3"),
    ("A2A-Version", "1.0"),
    ("Set-Cookie", "a=b"),
)

FAULTS: Final[list[Any]] = [
    lambda: reply.result({"ok": 1}),
    lambda: reply.error(-32001),
    lambda: reply.error(-32001, status=404),
    lambda: reply.json({"no": "envelope"}),
    lambda: reply.body(b"not JSON"),
    lambda: reply.body(b""),
    lambda: reply.body(b"busy", status=503, headers=(("Retry-After", "7"),)),
    lambda: reply.body(b"{}", status=500),
    lambda: reply.body(b'{"jsonrpc":"2.0","id":1,"result":{}}', headers=HEAD_OF_AGENT),
    lambda: reply.body(b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 30_000 + b'"}'),
    lambda: reply.body(b"x", status=401, headers=(("WWW-Authenticate", "Bearer"),)),
    lambda: reply.with_id(b"99"),
    lambda: reply.with_id(None, "error"),
    lambda: reply.redirect("http://127.0.0.1:1/"),
    lambda: reply.no_content(),
    lambda: reply.chunked(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    lambda: reply.until_close(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    lambda: reply.http10(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    lambda: reply.short(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    lambda: reply.two_lengths(b"{}"),
    lambda: reply.length_and_chunked(b"{}"),
    lambda: reply.interim(reply.echo()),
    lambda: reply.switching(),
    lambda: reply.coded(reply.gzip(b'{"jsonrpc":"2.0","id":1,"result":{}}')),
    lambda: reply.many_headers(),
    lambda: reply.close(),
    lambda: reply.reset(),
    lambda: sse(WORKING, DONE),
    lambda: sse(WORKING, WORKING + DONE, size=7),
    lambda: sse(OWN, OWN, b"event: task.done\ndata: {}\n\n"),
    lambda: sse(b": note\n\n", WORKING, end="close"),
    lambda: sse(WORKING, DONE, gzip=True),
    lambda: sse(DONE, framing="HTTP/1.0"),
    lambda: sse(status=500),
]


@dataclass
class Exchange:
    """What one caller does on one connection: requests, each in pieces, and what the agent does to them."""

    seed: int
    requests: list[list[bytes]] = field(default_factory=list)
    agent: list[Behaviour] = field(default_factory=list)


def generated(seed: int) -> Exchange:
    """The same bytes for the same seed. Half of the callers say the same head again and again, as real ones do."""
    chance = random.Random(seed)
    made = Exchange(seed)
    usual = chance.random() < 0.5
    head = usual_head(chance)
    for _ in range(chance.randint(1, 5)):
        body = chance.choice(BODIES[:USUAL_BODIES] if chance.random() < 0.6 else BODIES)
        again = usual and chance.random() < 0.85
        data = head.replace(b"LENGTH", b"%d" % len(body)) + body if again else request(chance, body)
        if again and body in BODIES[:USUAL_BODIES] and b"Origin" not in head and chance.random() < 0.1:
            # Dropped while the agent is at work. (Behind a request that is refused at once it may be served.)
            data += chance.choice([data, b"\r\n", b"junk", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
            made.requests.append([data])  # what comes behind must come with it
        else:
            made.requests.append(pieces(chance, data))
        made.agent.append(behaviours(chance))
    return made


def usual_head(chance: random.Random) -> bytes:
    lines = ["POST /a2a/echo HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += chance.sample([line for line in HEADERS if not line.startswith(("Expect", "Upgrade", "Conn"))], 2)
    lines.insert(chance.randint(1, len(lines)), "Content-Length: LENGTH")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def request(chance: random.Random, body: bytes) -> bytes:
    version = "HTTP/1.0" if chance.random() < 0.05 else "HTTP/1.1"
    lines = [f"{chance.choice(METHODS)} {chance.choice(TARGETS)} {version}", chance.choice(HOSTS)]
    lines += chance.sample(HEADERS, chance.choice([0, 1, 1, 2, 2, 3, 6]))
    if chance.random() < 0.8:
        lines.insert(chance.randint(1, len(lines)), "Content-Type: application/json")
    framing, body = framed(chance, body)
    lines.insert(chance.randint(1, len(lines)), framing)
    return "\r\n".join([line for line in lines if line] + ["", ""]).encode("latin-1") + body


def framed(chance: random.Random, body: bytes) -> tuple[str, bytes]:
    kind = chance.choice(
        ["length"] * 8 + ["chunked", "chunked", "zeros", "both", "plus", "twice", "bad chunk", "comma"]
    )
    right = f"Content-Length: {len(body)}"
    if kind in ("chunked", "both", "bad chunk"):
        at = chance.randint(0, len(body))
        parts = [part for part in (body[:at], body[at:]) if part]
        coded = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        coded = b"zz\r\n" + coded if kind == "bad chunk" else coded
        return ("Transfer-Encoding: chunked" + ("\r\n" + right if kind == "both" else "")), coded
    return {
        "zeros": f"Content-Length: 00{len(body)}",
        "plus": f"Content-Length: +{len(body)}",
        "twice": f"{right}\r\n{right}",
        "comma": f"Content-Length: {len(body)}, {len(body)}",
    }.get(kind, right), body


def pieces(chance: random.Random, data: bytes) -> list[bytes]:
    if chance.random() < 0.75 or len(data) < 3:
        return [data]
    cuts = sorted(chance.sample(range(1, len(data)), min(len(data) - 1, chance.choice([1, 1, 2, 5]))))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

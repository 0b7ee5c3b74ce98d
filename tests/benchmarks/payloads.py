"""The messages that every measured call carries: fixed bytes, so that an answer can be compared whole."""

import string

CALL_ID = "bench-1"
SMALL_REQUEST = 441
SMALL_RESPONSE = 600
LARGE = 100 * 1024

_REQUEST = (
    '{"jsonrpc":"2.0","id":"%s","method":"message/send","params":{"message":{"role":"user",'
    '"messageId":"3f1c0c1e-6f0a-4a51-9d54-0b8f5a0c7a11","kind":"message","parts":[{"kind":"text","text":"%s"}]},'
    '"configuration":{"acceptedOutputModes":["text/plain"],"blocking":true}}}'
)
_RESPONSE = (
    '{"jsonrpc":"2.0","id":"%s","result":{"role":"agent","kind":"message",'
    '"messageId":"9b7f4f0e-52b4-4f0e-8f8c-3f7f0e3f2c77","contextId":"ctx-1",'
    '"parts":[{"kind":"text","text":"%s"}]}}'
)


WORDS = string.ascii_lowercase + " "


def request(size: int = SMALL_REQUEST) -> bytes:
    """A `message/send` request of exactly `size` bytes."""
    return _sized(_REQUEST, size)


def request_of(words: str) -> bytes:
    """A `message/send` request of about 100 KB whose text says this again and again."""
    return (_REQUEST % (CALL_ID, words * (LARGE // len(words.encode())))).encode()


def response(size: int = SMALL_RESPONSE) -> bytes:
    """The agent's JSON-RPC answer to it, of exactly `size` bytes."""
    return _sized(_RESPONSE, size)


def card(agent_id: str, url: str) -> dict[str, str]:
    """The smallest registration the gateway takes (contract 5.1)."""
    return {"agent_id": agent_id, "name": agent_id, "url": url}


def _sized(template: str, size: int) -> bytes:
    room = size - len(template % (CALL_ID, ""))
    if room < 1:
        raise ValueError(f"a message of {size} bytes has no room for its text")
    text = (WORDS * (room // len(WORDS) + 1))[:room]
    return (template % (CALL_ID, text)).encode("ascii")

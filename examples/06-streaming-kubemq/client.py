"""Reads a stream in KubeMQ's envelope: `python3 client.py [AGENT_ID]` (standard library only).

Each event is `event: task.status|task.artifact|task.done|task.error|message` and `data:` with `stream_id`, `type`
and the agent's own data as `payload`. A stream without `task.done` or `task.error` at its end was cut off.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Iterable, Iterator

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:9090")
SILENCE_SECONDS = 60  # more than the gateway's `a2a.keepalive_seconds`: a comment comes at least that often


def events(lines: Iterable[bytes]) -> Iterator[dict]:
    """What the gateway sends, which is a part of the event-stream grammar: LF alone, one `data:` per event."""
    for line in lines:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def main(agent_id: str) -> int:
    message = {"role": "user", "parts": [{"text": "count"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": message}}
    # The envelope is also what A2A agents' events come in then: the same program reads both.
    headers = {"Content-Type": "application/json", "X-Stream-Format": "envelope"}
    request = urllib.request.Request(f"{GATEWAY}/a2a/{agent_id}", json.dumps(call).encode(), headers)
    with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as answer:
        if answer.headers.get_content_type() != "text/event-stream":
            print("no stream:", json.load(answer)["error"]["message"])
            return 1
        for event in events(answer):
            print(event["type"], json.dumps(event["payload"]), flush=True)
            if event["type"] in ("done", "error"):
                return int(event["type"] == "error")
    print("the stream was cut off")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "count-agent-01"))

"""An agent without SDK and event loop: the standard library's HTTP server, kept registered by a thread.

    pip install vitalgate
    make run                              # in another terminal: a gateway on 127.0.0.1:9090
    python examples/08-plain-agent.py     # GATEWAY_URL=http://host:port for another one

It speaks A2A 0.3 and answers `message/send` in capitals. Ctrl-C deregisters it. GATEWAY_TOKEN is the token to show
where the gateway asks for one. Then call it:

    curl -s http://127.0.0.1:9090/a2a/plain-shout -H 'Content-Type: application/json' -d '{"jsonrpc":"2.0","id":1,
      "method":"message/send","params":{"message":{"role":"user","parts":[{"kind":"text","text":"hello"}]}}}'
"""

import contextlib
import http.server
import json
import os
import signal
import uuid

from registry.client import Change, Membership

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:9090")
TOKEN = os.environ.get("GATEWAY_TOKEN")


class Shout(http.server.BaseHTTPRequestHandler):
    """The agent's work: one JSON-RPC request, one answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"jsonrpc": "2.0", "id": call.get("id")}
        if call["method"] == "message/send":
            texts = [part["text"].upper() for part in call["params"]["message"]["parts"] if part["kind"] == "text"]
            answer["result"] = message(" ".join(texts))
        elif call["method"] == "tasks/get":  # what the gateway's health checks ask, too: there are no tasks here
            answer["error"] = {"code": -32001, "message": "task not found"}
        else:
            answer["error"] = {"code": -32601, "message": "method not found"}
        self.reply(answer)

    def do_GET(self) -> None:  # the gateway's health checks read the agent's own card, and compare
        self.reply(card(self.server.server_port))

    def reply(self, document: dict) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def message(text: str) -> dict:
    parts = [{"kind": "text", "text": text}]
    return {"kind": "message", "role": "agent", "messageId": str(uuid.uuid4()), "parts": parts}


def card(port: int) -> dict:
    return {
        "name": "Plain shout",
        "description": "Says everything in capitals.",
        "version": "1.0.0",
        "protocolVersion": "0.3.0",
        "url": f"http://127.0.0.1:{port}/",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "shout", "name": "Shout", "description": "Says it in capitals.", "tags": ["text"]}],
    }


def told(change: Change) -> None:
    print(change, flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends it as Ctrl-C does
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shout)
    membership = Membership(GATEWAY, card(server.server_port), agent_id="plain-shout", token=TOKEN, told=told)
    with membership.in_thread(), contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()

"""An agent written for KubeMQ's A2A connector, unchanged: plain HTTP, the REST registry, `message/send`.

python3 agent.py (standard library only). GATEWAY_URL is where KubeMQ's connector used to listen.
"""

import http.server
import json
import os
import threading
import time
import urllib.error
import urllib.request

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:9090")
AGENT_ID = "echo-agent-01"


class Agent(http.server.BaseHTTPRequestHandler):
    """Answers `message/send` with the text it got and the caller that KubeMQ names in a header."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"jsonrpc": "2.0", "id": call.get("id")}
        if call["method"] == "message/send":
            text = call["params"]["message"]["parts"][0]["text"]
            answer["result"] = {
                "status": "completed",
                "output": text,
                "caller": self.headers["X-KubeMQ-Caller-ID"],
            }
        else:
            answer["error"] = {"code": -32601, "message": "method not found"}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def post(path: str, body: dict) -> dict:
    content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(GATEWAY + path, content, headers), timeout=10) as answer:
        return json.load(answer)


def stay_registered(card: dict) -> None:
    while True:
        try:
            post("/agents/register", card)
            print(f"registered as {AGENT_ID}", flush=True)
            while True:
                time.sleep(post("/agents/heartbeat", {"agent_id": AGENT_ID})["ttl_seconds"] / 3)
        except urllib.error.HTTPError as error:
            print(f"{error.code}: {error.read().decode()}: registering again", flush=True)
        except OSError as error:
            print(f"{error}: trying again", flush=True)
        time.sleep(1)


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    card = {
        "agent_id": AGENT_ID,
        "name": "Echo Agent",
        "description": "Echoes messages back to the caller",
        "url": f"http://127.0.0.1:{server.server_port}/",
        "version": "1.0.0",
        "skills": [{"id": "echo", "name": "Echo", "description": "Echo", "tags": ["echo", "test"]}],
        "defaultInputModes": ["text"],
        "defaultOutputModes": ["text"],
        "protocolVersions": ["1.0"],
    }
    threading.Thread(target=stay_registered, args=[card], daemon=True).start()
    server.serve_forever()

"""A streaming agent as it is written for KubeMQ's A2A connector: its events are its own, not A2A's.

python3 agent.py (standard library only). GATEWAY_URL is where the gateway listens; PAUSE_SECONDS is the time
between events. The gateway puts each event into KubeMQ's envelope; `task.done` or `task.error` ends the stream.
"""

import http.server
import json
import os
import threading
import time
import urllib.error
import urllib.request

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:9090")
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.5"))
AGENT_ID = "count-agent-01"


class Agent(http.server.BaseHTTPRequestHandler):
    """Answers `message/stream` by counting to three, and hears of streams that nobody reads any more."""

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if call["method"] == "message/stream":
            self.stream()
        elif call["method"] == "stream_cancel":
            print(f"nobody reads {call['params']['stream_id']} any more", flush=True)
            self.answer({"jsonrpc": "2.0", "id": call["id"], "result": {}})
        else:
            error = {"code": -32601, "message": "method not found"}
            self.answer({"jsonrpc": "2.0", "id": call.get("id"), "error": error})

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            self.event("task.status", {"state": "working"})
            for number in (1, 2, 3):
                time.sleep(PAUSE_SECONDS)
                self.event("task.artifact", {"number": number})
            self.event("task.done", {"state": "completed"})
        except OSError:  # whoever was reading has left, so the gateway has hung up
            print("the stream was closed", flush=True)

    def event(self, name: str, data: dict) -> None:
        self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())

    def answer(self, answer: dict) -> None:
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
    server.daemon_threads = True
    card = {"agent_id": AGENT_ID, "name": "Count Agent", "url": f"http://127.0.0.1:{server.server_port}/"}
    threading.Thread(target=stay_registered, args=[card], daemon=True).start()
    server.serve_forever()

"""A small agent runtime with a health document and the safe POST, on the standard library alone.

    python runtime.py --port 8701 --name front --capability answer --downstream worker=http://127.0.0.1:8702/health
    python runtime.py --port 8702 --name worker --capability work

GET and HEAD of /health give the health document. POST of {"safe": true, "text": ..., "downstream": ...} does a
harmless piece of work: with `downstream` it hands the text on to that peer and says whether the peer did it.
With --token-env NAME, all of it needs the bearer token in that variable.
"""

from __future__ import annotations

import argparse
import json
import os
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_BODY = 128 * 1024


class Runtime(BaseHTTPRequestHandler):
    options: argparse.Namespace

    def do_HEAD(self) -> None:
        self._answer(200, self._document())

    def do_GET(self) -> None:
        self._answer(200, self._document())

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self._answer(413, {"error": "too large"})
            return
        try:
            task = json.loads(self.rfile.read(length))
        except ValueError:
            task = None
        # only what is marked safe may be done on behalf of a health check
        if not isinstance(task, dict) or task.get("safe") is not True or not isinstance(task.get("text"), str):
            self._answer(400, {"error": 'expected {"safe": true, "text": "..."}'})
            return
        self._answer(200, self._work(task))

    def _work(self, task: dict[str, Any]) -> dict[str, Any]:
        peer = task.get("downstream")
        if peer is None:
            return {"completed": True, "success": bool(task["text"].strip())}
        url = self.options.downstream.get(peer)
        done = url is not None and hand_on(url, task["text"])
        return {"completed": True, "success": done, "downstream": peer}

    def _document(self) -> dict[str, Any]:
        return {
            "version": "v1",
            "name": self.options.name,
            "live": True,
            "ready": True,
            "capabilities": self.options.capability,
            "dependencies": list(self.options.downstream),
        }

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        if self.path != "/health":
            status, value = 404, {"error": "only /health"}
        elif self.options.token and self.headers.get("Authorization") != f"Bearer {self.options.token}":
            status, value = 401, {"error": "unauthorized"}
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: checks come every few seconds."""


def hand_on(url: str, text: str) -> bool:
    """Whether the peer did the work."""
    body = json.dumps({"safe": True, "text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=2) as response:
            answer = json.load(response)
    except (OSError, ValueError):
        return False
    return answer.get("completed") is True and answer.get("success") is True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="0 takes any free one")
    parser.add_argument("--name", default="runtime")
    parser.add_argument("--capability", action="append", default=[])
    parser.add_argument("--downstream", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--token-env", metavar="NAME")
    options = parser.parse_args()
    options.downstream = dict(one.split("=", 1) for one in options.downstream)
    options.token = os.environ[options.token_env] if options.token_env else None
    Runtime.options = options
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Runtime)
    print(f"ready http://127.0.0.1:{server.server_address[1]}/health", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

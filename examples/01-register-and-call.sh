#!/usr/bin/env bash
# Registers an agent, finds it, calls it through the gateway and takes it out again, all with curl.
#
#   make run                             # in another terminal: a gateway on 127.0.0.1:9090
#   examples/01-register-and-call.sh     # GATEWAY_URL=http://host:port for another one
#
# Needs curl and python3. The agent at the end of this file is any program that answers a POST with JSON.
set -euo pipefail

gateway=${GATEWAY_URL:-http://127.0.0.1:9090}
id=curl-echo

main() {
  start_agent

  say "Register the agent"
  post /agents/register '{
    "agent_id": "'$id'",
    "name": "Echo",
    "url": "'"$agent_url"'",
    "skills": [{"id": "echo", "name": "Echo", "tags": ["text"]}]
  }'

  say "Find agents by the tags of their skills"
  get '/agents?skill_tags=text'

  say "Call it"
  post /a2a/$id '{
    "jsonrpc": "2.0", "id": 1, "method": "message/send",
    "params": {"message": {"kind": "message", "role": "user", "messageId": "m1",
                           "parts": [{"kind": "text", "text": "hello"}]}}
  }'

  say "Stay registered: agents send this before agent_ttl_seconds are over"
  post /agents/heartbeat '{"agent_id": "'$id'"}'

  say "Deregister"
  post /agents/deregister '{"agent_id": "'$id'"}'

  say "From now on, calls say that there is no such agent (in error.data: by whom, and whether to retry)"
  post /a2a/$id '{"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": {"id": "t1"}}'
}

say() { printf '\n# %s\n' "$1"; }
get() { curl -sS --fail-with-body -w '\n' "$gateway$1"; }
post() { curl -sS --fail-with-body -w '\n' -H 'Content-Type: application/json' -d "$2" "$gateway$1"; }

start_agent() {
  dir=$(mktemp -d)
  mkfifo "$dir/port"
  python3 -c "$agent" >"$dir/port" &
  trap 'kill $! 2>/dev/null; rm -r "$dir"' EXIT
  read -r port <"$dir/port"
  agent_url=http://127.0.0.1:$port/
}

agent='
import http.server, json

class Agent(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = call["params"]["message"]["parts"][0]["text"]
        result = {"kind": "message", "role": "agent", "messageId": "m2", "parts": [{"kind": "text", "text": text}]}
        answer = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
print(server.server_port, flush=True)
server.serve_forever()
'

main

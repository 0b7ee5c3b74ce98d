#!/usr/bin/env bash
# Who may do what: tokens of several callers against the gateway of gateway.yaml. See README.md beside this file.
#
#   examples/07-security/try.sh        # GATEWAY_URL, AGENT_URL, KEY for others
#
# Needs curl and the command vitalgate. The agent is vitalgate's own demo agent, which nobody has to start: the
# calls that are allowed end in "agent unreachable" then, and that they got so far is what is shown.
set -euo pipefail

here=$(dirname "$0")
gateway=${GATEWAY_URL:-http://127.0.0.1:9090}
agent=${AGENT_URL:-http://127.0.0.1:8000/}
config=${CONFIG:-$here/gateway.yaml}
key=${KEY:-$here/key.pem}

token() { vitalgate token "$@" --config "$config" --key "$key" --kid example-1 --seconds 300; }
say() { printf '\n# %s\n' "$1"; }
send() { # TOKEN PATH BODY
  curl -sS -w '\n%{http_code}\n' ${1:+-H "Authorization: Bearer $1"} -H 'Content-Type: application/json' -d "$3" "$gateway$2"
}

ci=$(token ci --scope agents:write)
alice=$(token alice)
mallory=$(token mallory)
card='{"agent_id": "team-echo", "name": "Echo", "url": "'$agent'"}'
call='{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {"kind": "message",
  "role": "user", "messageId": "m1", "parts": [{"kind": "text", "text": "hello"}]}}}'

say "ci registers an agent of its team"
send "$ci" /agents/register "$card"

say "ci may not register others"
send "$ci" /agents/register "${card/team-echo/payments}"

say "alice may not register"
send "$alice" /agents/register "$card"

say "alice calls it"
send "$alice" /a2a/team-echo "$call"

say "mallory may not, and does not learn whether there is such an agent"
send "$mallory" /a2a/team-echo "$call"

say "nobody may without a token"
send "" /a2a/team-echo "$call"

say "but everybody may read the card, which says how to come in"
curl -sS -w '\n' "$gateway/a2a/team-echo/.well-known/agent-card.json"

say "ci takes the agent out again"
send "$ci" /agents/deregister '{"agent_id": "team-echo"}'

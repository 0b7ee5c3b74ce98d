#!/usr/bin/env bash
# The calls of a KubeMQ user, unchanged. GATEWAY_URL and METRICS_URL are where KubeMQ used to listen.
set -euo pipefail

gateway=${GATEWAY_URL:-http://127.0.0.1:9090}
metrics=${METRICS_URL:-http://127.0.0.1:8080}

say() { printf '\n# %s\n' "$1"; }
post() { curl -sS --fail-with-body -w '\n' -H 'Content-Type: application/json' -d "$2" "$gateway$1"; }

say "Discovery"
curl -sS --fail-with-body -w '\n' "$gateway/agents?skill_tags=echo"
curl -sS --fail-with-body -w '\n' "$gateway/agents/echo-agent-01"

say "A call"
post /a2a/echo-agent-01 '{
  "jsonrpc": "2.0", "id": "1", "method": "message/send",
  "params": {"message": {"role": "user", "parts": [{"text": "hello"}]}, "configuration": {"timeout": 10}}
}'

say "An unknown agent: KubeMQ's -32002, with HTTP status 200"
post /a2a/no-such-agent '{"jsonrpc": "2.0", "id": "2", "method": "message/send", "params": {}}'

say "The same metrics"
curl -sS --fail-with-body "$metrics/metrics" | grep '^kubemq_a2a_requests_total'

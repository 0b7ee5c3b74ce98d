"""What each code and reason means, its most likely cause, and what to try next: the words of `doctor`."""

from __future__ import annotations

from healthcheck.model import Finding
from healthcheck.reasons import REASONS, Explanation


def explain(finding: Finding) -> Explanation | None:
    """The explanation of a finding's reason, else of its code; None for what needs none."""
    if finding.code is None:
        return None
    return REASONS.get((finding.code, finding.reason or "")) or CODES_EXPLAINED[finding.code]


CODES_EXPLAINED: dict[str, Explanation] = {
    "endpoint_invalid": Explanation(
        "The endpoint cannot be used, so nothing was sent.",
        "A missing http:// or https://, a space, or a host name that is not one.",
        "Give an absolute URL such as https://agent.example/rpc.",
    ),
    "bearer_env": Explanation(
        "The token could not be read, so nothing was sent.",
        "The variable is not set in the environment of this process.",
        "Export the variable and run again; check the name after bearer_env.",
    ),
    "type_unsupported": Explanation(
        "This type word is allowed in a file, but no adapter exists for it.",
        "A type of another tool, or a spelling mistake.",
        "Use one of a2a, agent, multi-agent, http, api, gateway, router.",
    ),
    "check_unsupported": Explanation(
        "A check was asked for that this type does not have, so nothing was sent.",
        "The list of checks was copied from a target of another type.",
        "Remove it from checks; http, api, gateway and router have configuration, reachability and latency.",
    ),
    "a2a_origin": Explanation(
        "The card names an address on another scheme, host or port; nothing was sent there.",
        "The agent does not know its public address, or sits behind a proxy or gateway.",
        "Set the agent's public URL in its card, or check the address that the card names.",
    ),
    "address_not_allowed": Explanation(
        "The gateway's address rules forbid connecting there, so nothing was sent.",
        "The name leads to a link-local, loopback or denied address.",
        "Register another address, or change upstream.allow_loopback, allow_private, allow_hosts or deny_hosts.",
    ),
    "dns_failed": Explanation(
        "The host name has no address.",
        "A spelling mistake, or a name that is known only inside another network.",
        "Try `getent hosts NAME` on this machine.",
    ),
    "connect_refused": Explanation(
        "The machine answered that nothing listens on this port.",
        "The agent is not running, listens on another port, or only on another address.",
        "Start the agent, or compare its port with `ss -ltn` on its machine.",
    ),
    "connect_failed": Explanation(
        "No connection could be made.",
        "No route to the network, or a firewall that rejects the connection.",
        "Try `curl -v URL` from this machine.",
    ),
    "tls_failed": Explanation(
        "The connection was made, but no TLS session.",
        "The port speaks plain HTTP, or only an old TLS version.",
        "Try the endpoint with http://, or `openssl s_client -connect HOST:PORT`.",
    ),
    "tls_certificate": Explanation(
        "The server's certificate was not accepted, so nothing was sent.",
        "A private certificate authority, or a certificate that is not made out to this host.",
        "Give the authority's file with --ca-file, or in SSL_CERT_FILE.",
    ),
    "connection_lost": Explanation(
        "The connection was accepted and then closed without a byte.",
        "The agent crashed on the request, or a proxy in front of it has no agent behind it.",
        "Read the agent's log at the time of this check.",
    ),
    "deadline": Explanation(
        "Not a single byte came within the deadline.",
        "The agent hangs, or a firewall drops the packets silently.",
        "See in which step time was lost (steps), then raise timeout_ms if the agent is merely slow.",
    ),
    "deadline_partial": Explanation(
        "The answer had begun when the deadline passed, so the evidence is incomplete.",
        "The agent sends slowly, or keeps the connection open after its answer.",
        "Raise timeout_ms, or see what `curl -v URL` waits for.",
    ),
    "interrupted": Explanation(
        "The connection broke in the middle of the answer.",
        "The agent was restarted, or a proxy ended the connection.",
        "Run the check again; if it repeats, read the agent's log.",
    ),
    "not_http": Explanation(
        "Bytes came, but they are no HTTP response.",
        "Another service listens on this port, or the port expects TLS.",
        "Try the endpoint with https://, and check the port.",
    ),
    "tls_unverified": Explanation(
        "The agent works, but anybody on the way could have answered in its place.",
        "a2a.agent_tls_skip_verify is on.",
        "Turn it off; give a private authority's certificate in upstream.ca_file.",
    ),
    "not_probed": Explanation(
        "The run ended before this target's turn came; nothing is known about it.",
        "Many slow targets in one run: at most 16 are probed at once, for at most 60 seconds.",
        "Lower timeout_ms of slow targets, or split the file.",
    ),
    "budget_exhausted": Explanation(
        "The time for this target ran out before the check could finish.",
        "budget_ms is lower than what the checks and retries need together.",
        "Raise budget_ms, or lower retries and timeout_ms.",
    ),
    "adapter_fault": Explanation(
        "The check itself failed; this says nothing about the agent.",
        "A fault in this program.",
        "Please report it with the endpoint's type and the options used.",
    ),
    "cancelled": Explanation(
        "The check was cancelled before it ended; this says nothing about the agent.",
        "The transport gave up the request.",
        "Run the check again.",
    ),
    "latency": Explanation(
        "The target works, but answers more slowly than thresholds.latency_ms allows.",
        "Load on the agent, or a long way to it.",
        "Compare timings_ms: a long first_byte is the agent, a long connect is the network.",
    ),
    "dependency_degraded": Explanation(
        "The target works; something that it uses is impaired.",
        "An optional dependency fails, or a critical one is degraded.",
        "Look at the dependencies below it.",
    ),
    "dependency_failed": Explanation(
        "Something that the target cannot do without does not work.",
        "A critical dependency is unhealthy, unreachable or misconfigured.",
        "Repair the dependency below it, or mark it critical: false.",
    ),
    "dependency_unknown": Explanation(
        "It is not known whether something that the target needs works.",
        "A critical dependency could not be judged.",
        "Look at the dependency below it.",
    ),
    "a2a_auth": Explanation(
        "The agent wants a credential that it did not get.",
        "The token is wrong or expired, or no token was configured.",
        "Name the variable that holds the token: --bearer-env NAME, or auth.bearer_env.",
    ),
    "a2a_http": Explanation(
        "The agent's server answered with an HTTP error instead of the protocol.",
        "The path is wrong, or the agent fails inside.",
        "Check the endpoint's path, then the agent's log.",
    ),
    "a2a_card": Explanation(
        "The agent card breaks a rule, so clients cannot rely on it.",
        "A card written by hand, or for another protocol version.",
        "Compare the card with the specification of the version that was asked for.",
    ),
    "a2a_version": Explanation(
        "The agent does not offer the protocol version, transport or extensions asked for.",
        "The agent speaks the other version of A2A.",
        "Run again with --protocol-version 0.3.0 (or 1.0); nothing is downgraded silently.",
    ),
    "a2a_protocol": Explanation(
        "An answer came that no A2A client could read.",
        "The path belongs to something else (a web page, a REST API), or the agent breaks JSON-RPC.",
        "Check the URL in the card, and send the agent a GetTask by hand.",
    ),
    "a2a_rpc": Explanation(
        "The agent understood the envelope and answered with an error that is not expected here.",
        "A fault inside the agent.",
        "Read the agent's log at the time of this check.",
    ),
    "a2a_required": Explanation(
        "The card does not offer something that this check requires.",
        "Another version of the agent is deployed, or the requirement is out of date.",
        "Compare required_skills and required_capabilities with the card.",
    ),
    "a2a_limit": Explanation(
        "The answer was larger than 1 MiB, or ended before its announced end.",
        "The URL serves something else, or the agent was stopped while it sent.",
        "Look at the size of the answer: `curl -s URL | wc -c`.",
    ),
    "a2a_gateway": Explanation(
        "A gateway in between made this answer itself; it proves nothing about the agent.",
        "The gateway cannot reach the agent, or does not know it.",
        "Check the agent's own URL, past the gateway; then the gateway's view of it.",
    ),
    "card_drift": Explanation(
        "The card that the agent publishes is not the one that it registered.",
        "The agent was deployed anew, or its registration was written by hand.",
        "Register the published card; `drift` names the members that differ.",
    ),
    "a2a_functional": Explanation(
        "A real message was sent, and the agent did not complete it.",
        "The task fails inside the agent (a model, a tool, a quota).",
        "Send the same text by hand and read the agent's log.",
    ),
    "a2a_pending": Explanation(
        "The agent took the message and has not finished; it was not asked again.",
        "The task takes longer than a blocking answer, or needs more input.",
        "Choose a text that the agent can finish at once.",
    ),
    "agent_auth": Explanation(
        "The health resource wants a credential that it did not get.",
        "The token is wrong or expired, or no token was configured.",
        "Name the variable that holds the token: --bearer-env NAME, or auth.bearer_env.",
    ),
    "agent_http": Explanation(
        "The health resource answered with an HTTP error.",
        "The path is wrong, or the runtime fails inside.",
        "Check the endpoint's path with `curl -i URL`.",
    ),
    "agent_document": Explanation(
        "The health document breaks a rule.",
        "A member is missing or has another type, or the content type is not application/json.",
        "Serve all six members: version, name, live, ready, capabilities, dependencies.",
    ),
    "agent_readiness": Explanation(
        "The runtime says of itself that it cannot work now.",
        "It is starting, stopping, or lacks something that it needs.",
        "Read the runtime's log; check its dependencies.",
    ),
    "agent_required": Explanation(
        "The health document lacks something that this check requires.",
        "Another version of the runtime is deployed, or the requirement is out of date.",
        "Compare required_capabilities with the document.",
    ),
    "agent_limit": Explanation(
        "The answer was larger than 64 KiB, or ended before its announced end.",
        "The URL serves something else than a health document.",
        "Look at the size of the answer: `curl -s URL | wc -c`.",
    ),
    "agent_task": Explanation(
        "The test task was done, and not successfully, or by another peer than the one asked for.",
        "The path to the downstream peer is broken or leads elsewhere.",
        "Read the runtime's log; check what downstream it uses.",
    ),
    "agent_pending": Explanation(
        "The answer to the test task does not say that it was completed; it was not asked again.",
        "The runtime answers before the work is done, or does not know the safe POST.",
        'Answer {"completed": true, "success": true} once the work is done.',
    ),
    "http_auth": Explanation(
        "The endpoint wants a credential that it did not get.",
        "The token is wrong or expired, or no token was configured.",
        "Name the variable that holds the token: --bearer-env NAME, or auth.bearer_env.",
    ),
    "http_status": Explanation(
        "The endpoint answered with another status than the expected one.",
        "The path is wrong, or the service fails.",
        "Check with `curl -i URL`, or set http.expected_status.",
    ),
    "http_body": Explanation(
        "The body lacks the text of http.body_contains.",
        "The service answers, but reports a fault, or another service answers.",
        "Look at the body with `curl -s URL`.",
    ),
    "http_limit": Explanation(
        "The body ended early, or is larger than http.max_body_bytes and the text is not in the first part.",
        "A page that grew, or a service that was stopped while it sent.",
        "Raise http.max_body_bytes, or choose a smaller resource.",
    ),
}

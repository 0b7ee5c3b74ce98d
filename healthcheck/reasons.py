"""What a code means with one of its reasons, where that says more than the code alone (see `explain`)."""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """Three short sentences for people."""

    meaning: str
    cause: str
    remedy: str


_NOT_AN_AGENT = "The endpoint belongs to something else than an A2A agent, or the card lies elsewhere."
_BEHIND_A_PROXY = "What stands in front of the agent answered {}: the agent itself did not."
_CERTIFICATE = "The server's certificate was not accepted, so nothing was sent."
_OTHER_VERSION = "Run again with the other --protocol-version (1.0 or 0.3.0)."
_CARD = "The agent card breaks a rule, so clients cannot rely on it."

REASONS: dict[tuple[str, str], Explanation] = {
    ("endpoint_invalid", "url_userinfo"): Explanation(
        "The endpoint holds a user name or password, so nothing was sent.",
        "A credential was put into the URL.",
        "Remove it from the URL; give a bearer token in a variable with --bearer-env.",
    ),
    ("endpoint_invalid", "url_fragment"): Explanation(
        "The endpoint ends in a #fragment, which is never sent.",
        "The URL was copied from a browser.",
        "Remove the # and what follows.",
    ),
    ("bearer_env", "unusable"): Explanation(
        "The variable holds something that no header can carry, so nothing was sent.",
        "A line break at its end, a space or quotes inside.",
        'Set it without a line break: export NAME="$(cat FILE)".',
    ),
    ("budget_exhausted", "run_ended"): Explanation(
        "The run ended while this target was being asked; nothing is known about it.",
        "Many slow targets in one run, which lasts at most 60 seconds.",
        "Lower timeout_ms of slow targets, or split the file.",
    ),
    ("a2a_origin", "card_url_origin"): Explanation(
        "card_url lies on another scheme, host or port than the endpoint, so nothing was sent.",
        "The card is served by another service than the agent.",
        "Use a card_url on the endpoint's own origin.",
    ),
    ("tls_certificate", "certificate_expired"): Explanation(
        _CERTIFICATE, "It has expired.", "Renew the certificate on the server."
    ),
    ("tls_certificate", "certificate_not_yet_valid"): Explanation(
        _CERTIFICATE, "It is not valid yet, or a clock is wrong.", "Compare `date` on both machines."
    ),
    ("tls_certificate", "certificate_untrusted"): Explanation(
        _CERTIFICATE,
        "It is signed by itself or by an authority that this machine does not know.",
        "Give the authority's certificate with --ca-file FILE, or in SSL_CERT_FILE.",
    ),
    ("tls_certificate", "certificate_name"): Explanation(
        _CERTIFICATE,
        "It is made out to another host name.",
        "Use the name in the certificate, or have one issued for this host.",
    ),
    ("a2a_auth", "credential_missing"): Explanation(
        "The card asks for a bearer token and none was configured, so no call was made.",
        "The agent is protected.",
        "Name the variable that holds the token: --bearer-env NAME, or auth.bearer_env.",
    ),
    ("a2a_auth", "security_unsupported"): Explanation(
        "The card asks for another kind of credential than a bearer token, so no call was made.",
        "The agent uses API keys, OAuth flows or client certificates.",
        "Offer HTTP bearer as one alternative in the card, or check it with type http.",
    ),
    ("a2a_auth", "task_auth_required"): Explanation(
        "The agent stopped the test message and asks for a further login.",
        "The task needs rights of a user that this check does not have.",
        "Choose a text that needs no such rights.",
    ),
    ("a2a_http", "http_404"): Explanation(
        "The server answered 404: nothing is there.",
        _NOT_AN_AGENT,
        "Check the path; give the card's address with --card-url if it is not at /.well-known/agent-card.json.",
    ),
    ("a2a_http", "redirect"): Explanation(
        "The server answered with a redirect, which is never followed.",
        "A missing or additional slash, http:// instead of https://, or a login page.",
        "Use the address to which it redirects.",
    ),
    ("a2a_http", "http_429"): Explanation(
        "The agent refuses because it is asked too often.",
        "A rate limit.",
        "Check less often.",
    ),
    **{
        ("a2a_http", f"http_{status}"): Explanation(
            _BEHIND_A_PROXY.format(status),
            "A proxy or load balancer runs, the agent behind it does not, or it is starting.",
            "Check the agent's process, then the address at which the proxy looks for it.",
        )
        for status in (502, 503, 504)
    },
    ("a2a_card", "json"): Explanation(
        "What was found in place of the card is not JSON.", _NOT_AN_AGENT, "Look at it with `curl -i`."
    ),
    ("a2a_card", "interfaces_missing"): Explanation(
        "The card has no supportedInterfaces, which 1.0 requires: it looks like a card of 0.3.",
        "The agent speaks A2A 0.3, or the card is not the agent's: that of a gateway, on whose origin it lies.",
        "Run again with --protocol-version 0.3.0 (a2a.protocol_version), or name the agent's card (--card-url).",
    ),
    ("a2a_card", "url_missing"): Explanation(_CARD, "A 0.3 card needs url.", "Add url to the card."),
    ("a2a_card", "protocol_version_missing"): Explanation(
        _CARD, "A 0.3 card needs protocolVersion.", 'Add "protocolVersion": "0.3.0" to the card.'
    ),
    ("a2a_card", "name_blank"): Explanation(_CARD, "name is missing or blank.", "Give the agent a name."),
    ("a2a_card", "version_blank"): Explanation(
        _CARD, "version (of the agent) is missing or blank.", "Give the card a version."
    ),
    ("a2a_card", "description"): Explanation(
        _CARD, "description is missing or not text.", "Describe the agent in the card."
    ),
    ("a2a_card", "capabilities"): Explanation(
        _CARD, "capabilities is missing, or holds something else than true or false.", "Correct capabilities."
    ),
    ("a2a_card", "modes"): Explanation(
        _CARD, "A mode is no media type such as text/plain.", "Write defaultInputModes as media types."
    ),
    ("a2a_card", "skills"): Explanation(
        _CARD, "A skill has no id or name, or its tags are no list of texts.", "Correct skills."
    ),
    ("a2a_card", "skills_duplicate"): Explanation(
        _CARD, "Two skills have the same id.", "Give every skill its own id."
    ),
    ("a2a_card", "json_object"): Explanation(
        "What was found in place of the card is JSON, but not an object.",
        _NOT_AN_AGENT,
        "Look at it with `curl -i`.",
    ),
    ("a2a_card", "interfaces"): Explanation(
        _CARD,
        "An entry of supportedInterfaces lacks url, protocolBinding or protocolVersion, or one is not text.",
        "Correct supportedInterfaces.",
    ),
    ("a2a_card", "protocol_version"): Explanation(
        _CARD, "protocolVersion is no version such as 0.3.0.", "Correct protocolVersion in the card."
    ),
    ("a2a_card", "transport"): Explanation(
        _CARD, "preferredTransport is no text.", 'Write "preferredTransport": "JSONRPC".'
    ),
    ("a2a_card", "extensions"): Explanation(
        _CARD,
        "An entry of capabilities.extensions has no uri, or its required is not true or false.",
        "Correct capabilities.extensions.",
    ),
    ("a2a_card", "security"): Explanation(
        _CARD,
        "securitySchemes is no object, or the security requirements are no list of objects.",
        "Correct both in the card.",
    ),
    ("a2a_card", "url_malformed"): Explanation(
        _CARD,
        "The agent's address in it is not a usable URL.",
        "Correct url in the card, or in its supportedInterfaces.",
    ),
    ("a2a_card", "url_scheme"): Explanation(
        _CARD,
        "The agent's address in it is no absolute http or https URL.",
        "Write it in full, such as https://agent.example/rpc.",
    ),
    ("a2a_card", "url_userinfo"): Explanation(
        _CARD,
        "The agent's address in it holds a user name or password.",
        "Remove it from the card: a card is public.",
    ),
    ("a2a_card", "url_fragment"): Explanation(
        _CARD, "The agent's address in it ends in a #fragment.", "Remove the # and what follows from the card."
    ),
    ("a2a_version", "version"): Explanation(
        "The card does not offer the protocol version asked for.",
        "The agent speaks the other version of A2A.",
        _OTHER_VERSION,
    ),
    ("a2a_version", "version_not_supported"): Explanation(
        "Version mismatch: the agent answered -32009, it does not serve this protocol version.",
        "Its card promises a version that its server refuses, or a proxy drops the A2A-Version header.",
        _OTHER_VERSION,
    ),
    ("a2a_version", "transport"): Explanation(
        "The card offers no JSON-RPC interface.",
        "The agent serves gRPC or HTTP+JSON only.",
        "Add a JSONRPC interface to the agent; this engine speaks no other transport.",
    ),
    ("a2a_version", "extension_required"): Explanation(
        "The card requires an extension that this engine does not know.",
        "The agent works only with special clients.",
        "Mark the extension required: false if plain clients may call the agent.",
    ),
    ("a2a_rpc", "method_not_found"): Explanation(
        "Version mismatch: the agent answered -32601, it does not know the method of this protocol version.",
        "1.0 calls it GetTask, 0.3 calls it tasks/get; the agent speaks the other version, or keeps no tasks.",
        f"{_OTHER_VERSION} An agent that keeps no tasks may be left as it is.",
    ),
    ("a2a_protocol", "not_json"): Explanation(
        "The answer to the call is not JSON.",
        "The address in the card belongs to something else (a web page, an event stream).",
        "Check that address with `curl -i`.",
    ),
    ("a2a_protocol", "other_id"): Explanation(
        "The answer carries another id than the call.",
        "The agent or something in front of it mixes up answers, or changes ids.",
        "Send two calls at once by hand and compare the ids.",
    ),
    ("a2a_functional", "no_text_modes"): Explanation(
        "The card's default modes do not include text/plain both ways, so nothing was sent.",
        "The agent works with other media types.",
        "Add text/plain to defaultInputModes and defaultOutputModes, or leave out the functional check.",
    ),
    ("a2a_pending", "task_input_required"): Explanation(
        "The agent asks for more input before it can finish.",
        "The text of the test message is not complete for this agent.",
        "Choose a text that the agent can answer at once.",
    ),
    ("agent_required", "dependency_not_configured"): Explanation(
        "The runtime says that it needs a peer that is not configured here, so its state is unknown.",
        "The dependencies of this target in the file are out of date.",
        "Add the peer to dependencies, under the name that the runtime uses.",
    ),
    ("agent_document", "json"): Explanation(
        "What was found in place of the health document is not JSON.",
        "The endpoint belongs to something else than an agent runtime.",
        "Look at it with `curl -i`.",
    ),
    ("agent_document", "document_duplicates"): Explanation(
        "The health document breaks a rule.",
        "A name stands twice in capabilities or dependencies.",
        "Name each of them once.",
    ),
    ("agent_document", "content_type"): Explanation(
        "The health document is not served as application/json.",
        "A framework's default content type, or a web page.",
        "Serve it with Content-Type: application/json.",
    ),
}

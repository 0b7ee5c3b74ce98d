"""Every code that a finding may carry: its status unless said otherwise, and its message.

The messages are the engine's own (health contract 2): no byte of a response, no credential, no URL and no
text of an exception ever reaches a result. `explain.py` says what each code means and what to do.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """A status word and the sentence shown to people."""

    status: str
    message: str


CODES: dict[str, Code] = {
    # configuration: judged before anything is sent
    "endpoint_invalid": Code("MISCONFIGURED", "the endpoint is not a usable http or https URL"),
    "bearer_env": Code("MISCONFIGURED", "the environment variable of the bearer token is not usable"),
    "type_unsupported": Code("MISCONFIGURED", "no adapter for this type"),
    "check_unsupported": Code("MISCONFIGURED", "this type does not have a check that was asked for"),
    "a2a_origin": Code("MISCONFIGURED", "an address lies outside the endpoint's scheme, host and port"),
    "address_not_allowed": Code("MISCONFIGURED", "the gateway may not connect to this address"),
    # the network
    "dns_failed": Code("UNREACHABLE", "the host name could not be resolved"),
    "connect_refused": Code("UNREACHABLE", "the connection was refused"),
    "connect_failed": Code("UNREACHABLE", "no connection could be made"),
    "tls_failed": Code("UNREACHABLE", "the TLS handshake failed"),
    "tls_certificate": Code("UNREACHABLE", "the TLS certificate was not accepted"),
    "connection_lost": Code("UNREACHABLE", "the connection was closed before any answer"),
    "deadline": Code("UNREACHABLE", "no answer within the deadline"),
    "deadline_partial": Code("UNKNOWN", "the answer began but was not complete within the deadline"),
    "interrupted": Code("UNKNOWN", "the connection broke while the answer was arriving"),
    "not_http": Code("UNKNOWN", "the answer was not HTTP"),
    "tls_unverified": Code("DEGRADED", "the TLS certificate is not verified, as configured"),
    # the engine
    "not_probed": Code("UNKNOWN", "not probed: no free probe slot before the run ended"),
    "budget_exhausted": Code("UNKNOWN", "the time for this target ran out"),
    "adapter_fault": Code("UNKNOWN", "the check itself failed"),
    "cancelled": Code("UNKNOWN", "the check was cancelled"),
    "latency": Code("DEGRADED", "slower than the latency threshold"),
    "dependency_degraded": Code("DEGRADED", "a dependency is impaired"),
    "dependency_failed": Code("UNHEALTHY", "a critical dependency does not work"),
    "dependency_unknown": Code("UNKNOWN", "the state of a critical dependency is unknown"),
    # adapter a2a
    "a2a_auth": Code("MISCONFIGURED", "the agent does not accept the credential that was configured"),
    "a2a_http": Code("UNHEALTHY", "the agent answered with an HTTP error or a redirect"),
    "a2a_card": Code("UNHEALTHY", "the agent card is not valid"),
    "a2a_version": Code("UNHEALTHY", "the agent does not serve the protocol version or transport asked for"),
    "a2a_protocol": Code("UNHEALTHY", "the answer is not a valid JSON-RPC response"),
    "a2a_rpc": Code("UNHEALTHY", "the agent answered with a JSON-RPC error"),
    "a2a_required": Code("UNHEALTHY", "a required skill or capability is missing"),
    "a2a_limit": Code("UNKNOWN", "the answer was over the size limit or cut off"),
    "a2a_gateway": Code("UNKNOWN", "a gateway answered in place of the agent"),
    "card_drift": Code("DEGRADED", "the published card differs from the registered one"),
    "a2a_functional": Code("UNHEALTHY", "the agent did not complete the test message"),
    "a2a_pending": Code("UNKNOWN", "the agent has not finished the test message"),
    # adapters agent and multi-agent
    "agent_auth": Code("MISCONFIGURED", "the agent does not accept the credential that was configured"),
    "agent_http": Code("UNHEALTHY", "the health resource answered with an HTTP error or a redirect"),
    "agent_document": Code("UNHEALTHY", "the health document is not valid"),
    "agent_readiness": Code("UNHEALTHY", "the agent says that it is not live or not ready"),
    "agent_required": Code("UNHEALTHY", "a required capability or dependency is missing"),
    "agent_limit": Code("UNKNOWN", "the answer was over the size limit or cut off"),
    "agent_task": Code("UNHEALTHY", "the agent did not carry out the test task"),
    "agent_pending": Code("UNKNOWN", "the agent has not finished the test task"),
    # adapters http, api, gateway and router
    "http_auth": Code("MISCONFIGURED", "the endpoint does not accept the credential that was configured"),
    "http_status": Code("UNHEALTHY", "the HTTP status is not the expected one"),
    "http_body": Code("UNHEALTHY", "the body does not contain the expected text"),
    "http_limit": Code("UNKNOWN", "the answer was over the size limit or cut off"),
}

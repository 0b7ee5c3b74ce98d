"""Shell completion: the scripts, and the ids of agents that the gateway knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.operator.agents import members
from gateway.operator.client import Answer, Client, run
from gateway.operator.endpoint import read_endpoint
from gateway.operator.failures import Failed
from registry.agent import is_agent_id

#: Whoever presses the tab key does not wait for longer.
SECONDS: Final = 1.0


def agent_ids(params: Mapping[str, Any], incomplete: str) -> list[str]:
    """The ids of registered agents that begin like this; none if the gateway does not tell in time."""

    async def main() -> Answer:
        async with Client(endpoint) as client:
            return await client.ask("GET", "agents")

    url, token, token_file, ca_file = (params.get(name) for name in ("url", "token", "token_file", "ca_file"))
    if token_file == "-":  # noqa: S105 - standard input is where the shell reads its keys
        return []
    try:
        endpoint = read_endpoint(url, token, token_file, ca_file)
        found = members(run(main(), SECONDS, endpoint.url).document())
    except Failed:
        return []
    ids = [one.get("agent_id") for one in found]
    return [one for one in ids if isinstance(one, str) and is_agent_id(one) and one.startswith(incomplete)]

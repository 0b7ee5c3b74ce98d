"""Read agent cards as the official 0.3 SDK does. Run by the Python of the 0.3 SDK's own environment.

Takes JSON lines on standard input: `{"card": {...}}` to parse a card, `{"base": "http://..."}` to resolve one.
Writes one JSON line each: the URL and the transport a client would use, or why the SDK refuses the card.
"""

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import AgentCard


async def read(line: dict, http: httpx.AsyncClient) -> dict:
    try:
        if "base" in line:
            card = await A2ACardResolver(http, line["base"]).get_agent_card()
        else:
            card = AgentCard.model_validate(line["card"])
        ClientFactory(ClientConfig(httpx_client=http)).create(card)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {
        "url": card.url,
        "transport": card.preferred_transport,
        "version": card.protocol_version,
        "others": len(card.additional_interfaces or ()),
        "skills": [skill.id for skill in card.skills],
    }


async def main() -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        for line in sys.stdin:
            print(json.dumps(await read(json.loads(line), http)), flush=True)


asyncio.run(main())

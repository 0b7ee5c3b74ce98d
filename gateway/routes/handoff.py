"""The data of the console's handoff inspector (health contract 8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

import httpx
from litestar import Request, Response, Router, post, route
from litestar.enums import HttpMethod, MediaType

from gateway import handoff_examples as examples
from gateway.handoff import Route, judged, sent
from gateway.handoff_form import MOST_BYTES, Form, Sending, read_form
from gateway.headers import caller_line
from gateway.identity import ANONYMOUS, Identity
from gateway.proxy import Proxy
from gateway.routes import handoff_schema as schema
from gateway.routes.body import read_body
from gateway.routes.registry import REFUSALS
from registry.errors import Forbidden, NotFound

AnyRequest: TypeAlias = Request[Any, Any, Any]

_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_FRESH: Final = {"Cache-Control": "no-store"}


def handoff_routes(
    proxy: Proxy, transport: httpx.AsyncBaseTransport, user_agent: str, *, calls: bool = True
) -> list[Router]:
    """Make the handlers.

    Args:
        proxy: Finds agents, and knows what is in flight.
        transport: The gateway's connections; what is sent goes out there.
        user_agent: What the gateway calls itself.
        calls: Agents are called here (`a2a.enable`); otherwise nothing is sent to them either.
    """
    own = {"Via": proxy.via.decode(), "User-Agent": user_agent}

    @route(
        "/examples",
        http_method=_READ,
        sync_to_thread=False,
        summary="Named cards, fixtures and inputs for the handoff inspector",
        operation_class=schema.EXAMPLES,
    )
    def shown() -> Response[dict[str, Any]]:
        return Response(examples.document(), media_type=MediaType.JSON, headers=_FRESH)

    @post(
        "/trace",
        status_code=200,
        summary="May this peer be handed this task? Six gates, on a fixture or a registered agent",
        operation_class=schema.TRACE,
    )
    async def trace(request: AnyRequest) -> Response[bytes]:
        form = read_form(await read_body(request, MOST_BYTES))
        if not isinstance(form.answer, Sending):
            return _answer(judged(form))
        return _answer(await hand_over(request, form, form.answer.agent_id))

    async def hand_over(request: AnyRequest, form: Form, agent_id: str) -> Mapping[str, Any]:
        identity = cast("Identity", request.scope.get("vitalgate.identity", ANONYMOUS))
        client = str(request.scope.get("vitalgate.client", ""))
        if not identity.grants.call(agent_id):
            proxy.logs.audit(
                "handoff",
                caller=identity.name,
                agent=agent_id,
                outcome="refused",
                reason="FORBIDDEN",
                client=client,
            )
            raise Forbidden("the policy does not let you call this agent")
        peer = await proxy.peers.look_up(agent_id) if calls else None
        if peer is None:
            raise NotFound
        document = await sent(form, peer, Route(transport, proxy.lifecycle, _told(identity, own)))
        state = document["trace"]["final_state"]
        outcome = "ok" if document["trace"]["sends"] else "failed" if state == "unreachable" else "refused"
        proxy.logs.audit(
            "handoff", caller=identity.name, agent=agent_id, outcome=outcome, reason=state, client=client
        )
        return document

    return [Router("/handoff", route_handlers=[shown, trace], exception_handlers=REFUSALS)]


def _told(identity: Identity, own: Mapping[str, str]) -> Mapping[str, str]:
    """What the agent is told of who asks, as with every call (contract 2.2)."""
    name, _, value = caller_line(identity.name).decode().rstrip().partition(": ")
    return {name: value, **own}


def _answer(document: Mapping[str, Any]) -> Response[bytes]:
    """Written in ASCII: a card may hold halves of pairs, which only escapes can carry."""
    return Response(json.dumps(document).encode(), media_type=MediaType.JSON, headers=_FRESH)

"""The cards, and the answers to whoever looks for one in the wrong place (contract 1, 5.4, 5.5)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from litestar import Request, Response, route
from litestar.datastructures import Headers
from litestar.enums import HttpMethod, MediaType
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from gateway import cards
from gateway.card_cache import CardCache, Published
from gateway.conditional import Representation, is_current, represent
from gateway.routes import problem
from registry.agent import Agent, Registration

AnyRequest: TypeAlias = Request[Any, Any, Any]
View: TypeAlias = Literal["gateway", "registry"]

_NAMES: Final = ("agent-card.json", "agent.json")
_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_AGENT_CARD: Final = re.compile(rb"/a2a/([a-z0-9][a-z0-9-]{0,126}[a-z0-9])/\.well-known/agent(?:-card)?\.json")
_NOT_STORED: Final = {"Cache-Control": "no-store"}
_NO_SLASH: Final = "no agent is named here: clients need the base URL with its trailing slash, /a2a/{agent_id}/"
_NO_BASE: Final = "a card needs an address: send a usable Host header, or set server.public_url"


@dataclass(frozen=True, slots=True)
class CardTerms:
    """What the served cards depend on beside the agent.

    Attributes:
        public_url: `server.public_url`; without it the request's scheme and host count.
        view: `a2a.agent_card`, the form served where the request asks for none.
        security: Whose security schemes the served cards show.
    """

    public_url: str | None = None
    view: View = "gateway"
    security: cards.Security = cards.Security.NONE

    def base(self, request: AnyRequest) -> str:
        """Give the public base URL, or refuse a request that leaves none to give."""
        hosts = [value for name, value in request.scope["headers"] if name == b"host"]
        base = cards.public_base(self.public_url, request.scope["scheme"], hosts)
        if base is None:
            raise HTTPException(_NO_BASE, status_code=400)
        return base

    def caching(self) -> dict[str, str]:
        """Give the headers that say who may keep a card, and for how long."""
        if self.public_url is not None:
            return {"Cache-Control": "public, max-age=60"}
        return {"Cache-Control": "private, max-age=60", "Vary": "Host"}

    def render(self, agent: Agent, base: str, published: Published) -> bytes:
        """Write an agent's card in the gateway's form."""
        card = cards.served_card(
            cards.parse_card(agent.card),
            cards.address(base, agent.agent_id),
            security=self.security,
            published=published,
        )
        return cards.dump(card)


@dataclass(frozen=True, slots=True)
class _Desk:
    """Finds the card that a request asks for, and answers with it or with "you have it already"."""

    terms: CardTerms
    resolve: Callable[[str], Agent | None]
    registration: Callable[[str], Registration | None]
    published: Callable[[str], Published]
    clock: Callable[[], float]
    rendered: CardCache

    def current(self, request: AnyRequest, view: View) -> Representation | None:
        named = _AGENT_CARD.fullmatch(request.scope["raw_path"])
        agent_id = named[1].decode("ascii") if named else ""
        if view == "gateway":
            agent = self.resolve(agent_id)
            if agent is None:
                return None
            return self.rendered.get(agent, self.terms.base(request), self.published(agent_id))
        found = self.registration(agent_id)
        # Every heartbeat changes this form, and more than one of them may bear the same second.
        return None if found is None else represent(found.document(), self.clock(), dated=False)

    def answer(self, request: AnyRequest, card: Representation) -> Response[Any]:
        headers = self.terms.caching() | {"ETag": card.etag, "Last-Modified": card.last_modified}
        tags, date = (_header(request.headers, name) for name in ("if-none-match", "if-modified-since"))
        if is_current(card, tags, date, self.clock()):
            return Response(None, status_code=304, headers=headers)
        return Response(card.body, media_type=MediaType.JSON, headers=headers)


def card_routes(
    terms: CardTerms,
    *,
    resolve: Callable[[str], Agent | None],
    registration: Callable[[str], Registration | None],
    platform_name: str,
    version: str,
    published: Callable[[str], Published] = lambda agent_id: None,
    clock: Callable[[], float] = time.time,
) -> list[HTTPRouteHandler]:
    """Make the handlers of all card routes.

    Args:
        terms: What the cards depend on.
        resolve: Finds a live agent; the same object for as long as it is registered unchanged.
        registration: Finds a live agent together with its lease.
        platform_name: Name of the gateway in its own card.
        version: The gateway's version.
        published: Tells what an agent publishes of itself, as far as that is known (contract 5.4).
        clock: Seconds since 1970.
    """
    desk = _Desk(terms, resolve, registration, published, clock, CardCache(terms.render, clock=clock))
    started = clock()

    @_reads("/a2a/{agent_id:str}/.well-known", "An agent's card")
    def agent_card(
        request: AnyRequest, agent_id: FromPath[str], view: FromQuery[View | None] = None
    ) -> Response[Any]:
        card = desk.current(request, view or terms.view)
        if card is None:
            return problem(404, "agent not found", headers=_NOT_STORED)
        return desk.answer(request, card)

    @_reads("/.well-known", "The gateway's own card")
    def platform_card(request: AnyRequest) -> Response[Any]:
        card = cards.platform_card(terms.base(request), name=platform_name, version=version)
        return desk.answer(request, represent(cards.dump(card), started))

    @_reads("/a2a/.well-known", None)
    def no_trailing_slash() -> Response[Any]:
        return problem(404, _NO_SLASH, headers=_NOT_STORED)

    @route(["/a2a", "/a2a/{agent_id:str}"], http_method="OPTIONS", sync_to_thread=False, include_in_schema=False)
    def call_options() -> Response[None]:
        return Response(None, status_code=204, headers={"Allow": "OPTIONS, POST"})

    @route("/a2a/{agent_id:str}/stream", http_method="OPTIONS", sync_to_thread=False, include_in_schema=False)
    def stream_options() -> Response[None]:
        return Response(None, status_code=204, headers={"Allow": "GET, OPTIONS"})

    return [agent_card, platform_card, no_trailing_slash, call_options, stream_options]


def _reads(folder: str, summary: str | None) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Make a handler for GET and HEAD of a card's two names; the server leaves out the body of a HEAD."""
    return route(
        [f"{folder}/{name}" for name in _NAMES],
        http_method=_READ,
        sync_to_thread=False,
        summary=summary,
        include_in_schema=summary is not None,
    )


def _header(headers: Headers, name: str) -> str | None:
    lines = headers.getall(name, [])
    return ", ".join(lines) if lines else None

"""Who may pass: host, origin, token, policy and rate, in this order (contract 1, 2.1, 6).

The proxied path and the REST routes ask here; how a refusal reads is their matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gateway.headers import Headers, Inbound, is_same_credential
from gateway.hosts import HostCheck, is_loopback
from gateway.identity import ANONYMOUS, Identity, InvalidTokenError
from gateway.jsonrpc import Refused
from gateway.limits import Rates
from gateway.origins import Origins, cors, origin_in
from gateway.peers import is_agent_id
from gateway.proxies import Sent, TrustedProxies

if TYPE_CHECKING:
    from gateway.auth import Authenticator

UNAUTHENTICATED, FORBIDDEN, ORIGIN_NOT_TRUSTED, RATE_LIMITED = (
    "UNAUTHENTICATED",
    "FORBIDDEN",
    "ORIGIN_NOT_TRUSTED",
    "RATE_LIMITED",
)
#: The reasons for which a caller is refused, whatever it asked for; each of them is audited.
REFUSALS: Final = frozenset((UNAUTHENTICATED, FORBIDDEN, ORIGIN_NOT_TRUSTED, RATE_LIMITED))

#: What everybody may read, matched on the whole raw path (contract 1).
_PUBLIC: Final = re.compile(
    rb"/|/console/[a-z0-9/._-]+|/live|/ready|/health|/schema|/a2a/[^/]+/?"
    rb"|(?:/a2a|/a2a/[^/]+)?/\.well-known/agent(?:-card)?\.json"
).fullmatch
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
#: Where the agent in question tells what may be done: judged when it is known.
_OWNING: Final = re.compile(rb"/agents/[^/]+/?").fullmatch
_ADMINISTERING: Final = b"/admin/"
#: Somebody else's request may come from this machine, too: if a proxy runs on it, or a browser.
_PASSED_ON: Final = frozenset((b"forwarded", b"via", b"x-real-ip", b"origin"))
_PROXYS: Final = b"x-forwarded-"
_FOREIGN_SITES: Final = frozenset((b"cross-site", b"same-site"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a request at the gate.

    Attributes:
        identity: The caller; ANONYMOUS where nobody asks.
        refused: Why it may not pass; empty if it may.
        wait: Seconds after which RATE_LIMITED will be over.
        cors: What a browser is told with the answer.
    """

    identity: Identity = ANONYMOUS
    refused: str = ""
    wait: float = 0.0
    cors: Headers = field(default_factory=list)


class Gate:
    """Judges requests to the API listener."""

    def __init__(
        self,
        hosts: HostCheck,
        origins: Origins,
        proxies: TrustedProxies,
        *,
        auth: Authenticator | None = None,
        requests: Rates | None = None,
        registrations: Rates | None = None,
    ) -> None:
        """Take what judges.

        Args:
            hosts: The host check.
            origins: Which pages may call.
            proxies: Whose `X-Forwarded-*` headers are believed.
            auth: Tells who calls; None: nobody asks.
            requests: How often a caller may send a request; None: as often as it likes.
            registrations: How often a caller may register.
        """
        self.hosts = hosts
        self._auth = auth
        self.proxies = proxies
        self._believing = bool(proxies)
        self.change(origins, requests, registrations)

    def change(self, origins: Origins, requests: Rates | None, registrations: Rates | None) -> None:
        """Judge by these from now on; see `__init__`."""
        self._origins = origins
        self._requests = requests
        self.limits = requests is not None  # whether requests are counted
        self._registrations = registrations

    def direct(self, headers: Headers, fields: Mapping[bytes, bytes], peer: str) -> Identity | None:
        """Give the caller of a plain call whom nothing needs to be asked or told; None: judge at length.

        Args:
            headers: All headers.
            fields: The same by name; of several with one name, one.
            peer: Address of whoever is connected.
        """
        host = self.proxies.sent(headers, peer).host if self._believing else fields.get(b"host", b"")
        if b"origin" in fields or not self.hosts.allows_host(host):
            return None
        if self._auth is None:
            return ANONYMOUS
        authorization = fields.get(b"authorization")
        if authorization is None or len(fields) < len(headers):  # a header twice, and it may be this one
            return None
        return self._auth.remembered(authorization)

    def sent(self, scope: Mapping[str, Any]) -> Sent:
        """Give the request as its sender made it."""
        client = scope.get("client")
        return self.proxies.sent(scope["headers"], client[0] if client else "")

    def allows_host(self, sent: Sent) -> bool:
        """Tell whether a request was sent to a host of the gateway's own, as far as that is checked."""
        return self.hosts.allows_host(sent.host)

    async def judge(self, headers: Headers, sent: Sent) -> Verdict:
        """Judge a call, but for its rate: that is counted where the call begins (`limit`)."""
        told = self.judge_origin(headers, sent)
        return told if told.refused else await self._judge_token(headers, told.cors)

    async def judge_rest(
        self, method: str, path: bytes, headers: Headers, told: Verdict, client: str = ""
    ) -> Verdict:
        """Judge a request to a REST route whose origin is trusted; `client` is the sender's address."""
        if is_public(method, path):
            return told
        verdict = await self._judge_token(headers, told.cors)
        identity = verdict.identity
        if verdict.refused:
            return verdict
        if not self._may(method, path, identity, headers, client):
            return Verdict(identity, FORBIDDEN, 0.0, told.cors)
        wait = self.limit(identity)
        if not wait and self._registrations is not None and (method, path) == ("POST", b"/agents/register"):
            wait = self._registrations.take(identity.name)
        return Verdict(identity, RATE_LIMITED if wait else "", wait, told.cors)

    def _may(self, method: str, path: bytes, identity: Identity, headers: Headers, client: str) -> bool:
        """Tell whether a caller may use a route; what administers is open to this machine where nobody asks."""
        if path.startswith(_ADMINISTERING):
            return identity.grants.administer if self._auth is not None else _is_local(headers, client)
        return identity.grants.read or (method not in _READING and _OWNING(path) is not None)

    def judge_origin(self, headers: Headers, sent: Sent) -> Verdict:
        """Judge the page that makes a browser send a request."""
        origin = origin_in(headers)
        if origin is None:
            return Verdict()
        if not self._origins.trusts(origin, sent):
            return Verdict(refused=ORIGIN_NOT_TRUSTED)
        return Verdict(cors=cors(origin))

    def is_foreign(self, headers: Headers) -> bool:
        """Tell whether a browser says that another site makes it send a request without `Origin`.

        An image or a script may be fetched from anywhere, and where a GET begins work, that is work.
        """
        return not self._origins.everybody and any(
            name == b"sec-fetch-site" and value in _FOREIGN_SITES for name, value in headers
        )

    def limit(self, identity: Identity) -> float:
        """Count a request: 0, or the seconds after which the caller may send the next."""
        return 0.0 if self._requests is None else self._requests.take(identity.name)

    async def _judge_token(self, headers: Headers, told: Headers) -> Verdict:
        if self._auth is None:
            return Verdict(cors=told)
        try:
            return Verdict(await self._auth.authenticate(headers), cors=told)
        except InvalidTokenError:
            return Verdict(refused=UNAUTHENTICATED, cors=told)


def is_public(method: str, path: bytes) -> bool:
    """Tell whether everybody may send this request, whose path is as it came (contract 1)."""
    return method in _READING and _PUBLIC(path) is not None


def _is_local(headers: Headers, client: str) -> bool:
    return is_loopback(client) and not any(name in _PASSED_ON or name.startswith(_PROXYS) for name, _ in headers)


def check_grants(identity: Identity, agent: bytes, inbound: Inbound, authenticated: bool) -> None:
    """Refuse what a caller may not do, before it learns whether there is such an agent.

    Raises:
        Refused: FORBIDDEN.
    """
    if is_agent_id(agent) and not identity.grants.call(agent.decode()):
        raise Refused(FORBIDDEN, "the policy does not let you call this agent")
    if inbound.credential is None:
        return
    if not inbound.credential:
        raise Refused(FORBIDDEN, "more than one credential for the agent")
    if authenticated and is_same_credential(inbound.credential, inbound.token):
        raise Refused(FORBIDDEN, "the token for the gateway is not passed on to agents")


def challenge(headers: Headers) -> bytes:
    """Write the value of `WWW-Authenticate`: no word on what was wrong (RFC 6750, section 3)."""
    shown = any(name == b"authorization" for name, _ in headers)
    return b'Bearer realm="vitalgate", error="invalid_token"' if shown else b'Bearer realm="vitalgate"'


def retry_after(wait: float) -> bytes:
    """Write the value of `Retry-After`: whole seconds, rounded up."""
    return b"%d" % max(1, math.ceil(wait))

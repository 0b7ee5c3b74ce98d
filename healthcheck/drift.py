"""pure: what a published card says otherwise than the registered one, by member, never with contents.

Only what the registrant sent is compared: who registers the minimum has promised no skills (health contract 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from healthcheck.card import major_minor, media_type
from healthcheck.url import Url, UrlError, parse_url

Card = Mapping[str, Any]

#: Words that KubeMQ's agents write where a media type belongs.
BARE_MODES: Final = {"text": "text/plain", "file": "application/octet-stream", "data": "application/json"}


def drift(registered: Card, published: Card, endpoint: Url) -> tuple[str, ...]:
    """Name the members that differ: name, version, skills, modes, protocol versions, address."""
    found = [
        member
        for member, differs in _COMPARISONS.items()
        if member in registered and differs(registered, published)
    ]
    if _versions(registered) and _versions(registered) != _versions(published):
        found.append("protocol_versions")
    if endpoint.origin not in {url.origin for url in addresses(published) if same_path(url, endpoint)}:
        found.append("address")
    return tuple(found)


def addresses(card: Card) -> list[Url]:
    """Give the JSON-RPC addresses of a card, in both forms; what is no URL is left out."""
    texts = [entry.get("url") for entry in _entries(card.get("supportedInterfaces")) if _over_rpc(entry)]
    texts += [entry.get("url") for entry in _entries(card.get("additionalInterfaces")) if _over_rpc(entry)]
    if card.get("preferredTransport") in (None, "JSONRPC"):
        texts.append(card.get("url"))
    return list(_urls(texts))


def same_path(one: Url, other: Url) -> bool:
    """Tell whether two addresses name the same resource, wherever it is; a slash at the end does not count."""
    return one.target.partition("?")[0].rstrip("/") == other.target.partition("?")[0].rstrip("/")


def _urls(texts: list[Any]) -> Iterator[Url]:
    for text in texts:
        try:
            yield parse_url(text if isinstance(text, str) else "")
        except UrlError:
            continue


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _over_rpc(entry: Mapping[str, Any]) -> bool:
    name = entry.get("protocolBinding", entry.get("transport"))
    return isinstance(name, str) and name.upper() == "JSONRPC"


def _versions(card: Card) -> frozenset[tuple[int, int]]:
    entries = [entry for entry in _entries(card.get("supportedInterfaces")) if _over_rpc(entry)]
    texts = [entry.get("protocolVersion") for entry in entries] + [card.get("protocolVersion")]
    known = (major_minor(text) for text in texts if isinstance(text, str))
    return frozenset(version for version in known if version is not None)


def _differ(member: str) -> Callable[[Card, Card], bool]:
    return lambda registered, published: registered.get(member) != published.get(member)


def _skills_differ(registered: Card, published: Card) -> bool:
    mine, theirs = (
        {(str(skill.get("id")), str(skill.get("name"))) for skill in _entries(card.get("skills"))}
        for card in (registered, published)
    )
    return mine != theirs


def _modes_differ(member: str) -> Callable[[Card, Card], bool]:
    return lambda registered, published: modes(registered.get(member)) != modes(published.get(member))


def modes(value: Any) -> frozenset[str]:
    """Give the modes of a list as media types, bare words among them; what is neither stays as it is."""
    return (
        frozenset(_mode(mode) for mode in value if isinstance(mode, str))
        if isinstance(value, list)
        else frozenset()
    )


def _mode(text: str) -> str:
    try:
        return BARE_MODES.get(text) or media_type(text)
    except ValueError:
        return text


_COMPARISONS: Final[Mapping[str, Callable[[Card, Card], bool]]] = {
    "name": _differ("name"),
    "version": _differ("version"),
    "skills": _skills_differ,
    "defaultInputModes": _modes_differ("defaultInputModes"),
    "defaultOutputModes": _modes_differ("defaultOutputModes"),
}

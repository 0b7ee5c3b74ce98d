"""What to try when a handoff stopped, by reason: the words that `vitalgate handoff` adds for people."""

from __future__ import annotations

from collections.abc import Mapping

REMEDIES: Mapping[str, str] = {
    # 1 card
    "card-malformed": "Judge the card with `vitalgate doctor a2a URL`, or look at it: it may be no agent card.",
    "card-unreachable": "Check the card's URL with `curl -v`.",
    "card-http-status": "Check the card's URL with `curl -i`; redirects are not followed, credentials not sent.",
    "card-too-large": "Check the card's URL: a card has at most 1 MiB.",
    "card-url": "Give an absolute http or https URL without user name and fragment, or a file.",
    # 2 endpoint
    "endpoint-malformed": "The address in the card is not a usable URL: its owner has to correct it.",
    "endpoint-not-https": "Tasks go out over https only: the agent needs an https address in its card.",
    "endpoint-userinfo": "The address in the card holds a user name: its owner has to remove it.",
    "endpoint-fragment": "The address in the card holds a #fragment: its owner has to remove it.",
    "endpoint-not-allowed": "If you trust this origin, allow it with --origin.",
    # 3 contract
    "protocol-version": "Run again with the other --protocol-version (1.0 or 0.3.0), if the card offers it.",
    "transport": "Only JSON-RPC is spoken: the card must offer it.",
    "extension-required": "The agent works only with clients that know its extension; this one does not.",
    "skill-not-advertised": "Compare --skill with the ids in the card, upper and lower case too.",
    "input-mode": "Name a media type that the skill takes with --input-mode.",
    "output-mode": "Name a media type that the skill gives with --output-mode.",
    # 4 credential
    "credential-missing": "Give a token with --credential ORIGIN=ENV, and set that variable.",
    "credential-origin": "The token belongs elsewhere; --credential-scope broad would show it to this origin.",
    "security-missing": "The card asks for no credential: admit that with --public.",
    "security-unsupported": "The card offers no way in with a bearer token alone.",
    # 5 request
    "request-invalid": "Give --send a text of 1 byte to 64 KiB in UTF-8.",
}

"""The tokens that the gateway shows to agents, from the variables that the configuration names (contract 6.4)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from gateway.settings_model import Credential

log = logging.getLogger(__name__)

#: What may follow `Bearer ` in a header: anything else would change the header, or not be one.
_TOKEN: Final = re.compile(r"[\x21-\x7e]+").fullmatch


def read_credentials(named: Mapping[str, Credential], environ: Mapping[str, str]) -> dict[str, str | None]:
    """Give the token of each agent; None where its variable is not set, or holds no token. Says so in the log."""
    values = {agent_id: environ.get(one.bearer_env) for agent_id, one in named.items()}
    tokens = {agent_id: value if usable(value) else None for agent_id, value in values.items()}
    for agent_id, token in tokens.items():
        if token is None:
            fields = {"agent": agent_id, "variable": named[agent_id].bearer_env}
            log.warning("no usable token for an agent: calls to it will fail", extra={"fields": fields})
    return tokens


def usable(text: str | None) -> bool:
    """Whether a variable's value can be shown to an agent as its token."""
    return text is not None and _TOKEN(text) is not None

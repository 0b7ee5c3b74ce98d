"""`vitalgate nodes` and `vitalgate reload`: the gateway itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.operator import output
from gateway.operator.agents import Document, age, ask, mapping, members
from gateway.operator.endpoint import Endpoint
from gateway.operator.failures import AUTH, Failed
from gateway.operator.output import Column

_NODES: Final = (
    Column("NODE", whole=True),
    Column("HOST", whole=True),
    Column("PID", whole=True),
    Column("VERSION", whole=True),
    Column("UP", whole=True),
    Column("CHECKS", whole=True),
    Column("THIS ONE", whole=True),
    Column("ADDRESS"),
    Column("LOAD"),
)
_WHO_MAY: Final = (
    "with authentication, a token is needed to which auth.policy grants administer; "
    "without it, only the gateway's own machine may ask"
)


def show_nodes(endpoint: Endpoint, seconds: float, as_json: bool) -> None:
    """Show the nodes of a cluster."""
    answer = ask(endpoint, seconds, "GET", "nodes")
    if as_json:
        output.write_document(answer.body)
        return
    document = mapping(answer.document())
    found = members(document.get("nodes"))
    output.write_table(_NODES, [_node(one, document.get("node")) for one in found])
    if document.get("connected") is False:
        output.say("the node that was asked has no contact with the store: what it shows of others may be old")


def _node(one: Document, own: object) -> Sequence[object]:
    load = [f"{name}={value}" for name, value in mapping(one.get("load")).items()]
    known = [one.get(name) for name in ("id", "host", "pid", "version")]
    flags = [one.get("checking"), one.get("id") == own]
    return [*known, age(one.get("started_at")), *flags, one.get("address"), " ".join(load)]


def reload(endpoint: Endpoint, seconds: float, as_json: bool) -> None:
    """Have the gateway read its settings again (contract 8)."""
    try:
        answer = ask(endpoint, seconds, "POST", "admin/reload")
    except Failed as error:
        raise Failed(AUTH, error.lines[0], _WHO_MAY) if error.code == AUTH else error from None
    if as_json:
        output.write_document(answer.body)
        return
    outcome = mapping(answer.document())
    changed, fixed = outcome.get("changed"), outcome.get("unchanged_until_restart")
    if not changed and not fixed:
        output.write("nothing has changed\n")
    for names, words in ((changed, "changed"), (fixed, "needs a restart")):
        for name in names if isinstance(names, list) else ():
            output.write(output.lines_of(f"{words}: {name}") + "\n")

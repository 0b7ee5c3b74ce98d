"""Pure: streams that a browser's EventSource opens by GET, and the note that one was left (contract 3.6, 3.7)."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import parse_qs

#: Ids of the events of a pushed stream: `<stream id>:<number>`. Stream ids say which process made them.
_EVENT_ID: Final = re.compile(rb"s-[0-9a-f]+-[0-9a-f]+:[0-9]+").fullmatch

_OPENINGS: Final = {
    (False, False): "message/stream",
    (False, True): "tasks/resubscribe",
    (True, False): "SendStreamingMessage",
    (True, True): "SubscribeToTask",
}


def wanted_task(query: bytes) -> str | None:
    """Give the task that a query names with `taskId`; None if it names none.

    An empty name is passed on, for the agent to refuse: it is no wish for new work.
    """
    names = parse_qs(query.decode("ascii", "replace"), keep_blank_values=True).get("taskId")
    return names[0] if names else None


def opening(stream_id: bytes, task_id: str | None, *, only_v1: bool) -> bytes:
    """Write the request that opens a pushed stream (contract 3.6).

    Args:
        stream_id: Becomes the request's id.
        task_id: The task to attach to; None to begin anew.
        only_v1: The agent is known to speak only A2A 1.0.
    """
    params: dict[str, Any] = {} if task_id is None else {"id": task_id}
    return _request(stream_id, _OPENINGS[only_v1, task_id is not None], params)


def cancellation(stream_id: bytes) -> bytes:
    """Write the note that a stream is not read any more (contract 3.7)."""
    return _request(stream_id, "stream_cancel", {"stream_id": stream_id.decode()})


def is_of_an_ended_stream(event_id: bytes) -> bool:
    """Tell whether a `Last-Event-ID` names a stream of ours.

    Whoever sends it has lost that stream, so it has ended, in this process or in one before it; opening it again
    would start the work again.
    """
    return _EVENT_ID(event_id) is not None


def _request(id: bytes, method: str, params: dict[str, Any]) -> bytes:
    request = {"jsonrpc": "2.0", "id": id.decode(), "method": method, "params": params}
    return json.dumps(request, separators=(",", ":")).encode()

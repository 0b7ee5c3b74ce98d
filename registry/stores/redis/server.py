"""What a server must be, and allow its user, to keep registrations: found out at the start."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from registry.errors import StoreUnavailable
from registry.stores.redis.script import Script

COMMANDS: Final = (
    *("DEL", "EXISTS", "EXPIRE", "GET", "HDEL", "HGET", "HMGET", "HSCAN", "HSET", "PUBLISH", "SET"),
    *("ZADD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZREM", "ZSCORE"),
)
"""All that the steps do. One that is refused in the middle of a step would leave it half done."""

#: commands → those that the user may not do (servers before Redis 7 cannot tell)
RIGHTS: Final = Script(
    "rights",
    """
local lacking, name = {}, p .. 'store'
for _, command in ipairs(redis.acl_check_cmd and a or {}) do
  if not redis.acl_check_cmd(command, name, name, name) then lacking[#lacking + 1] = command end
end
return lacking
""",
)

_log = logging.getLogger(__name__)


async def run_id(command: Callable[..., Awaitable[Any]]) -> str:
    """Asks which life of the server this is: another after every start; empty if it does not tell."""
    return _info(await command("INFO", "server")).get("run_id", "")


def _info(answer: bytes) -> dict[str, str]:
    lines = answer.decode("utf-8", "replace").splitlines()
    return dict(line.partition(":")[::2] for line in lines)


async def check_server(command: Callable[..., Awaitable[Any]], shown: str) -> None:
    """Asks what kind of server it is; warns where it may take agents away.

    Raises:
        StoreUnavailable: it cannot be used.
    """
    info = _info(await command("INFO"))
    if info.get("cluster_enabled") == "1":
        raise StoreUnavailable("it is a Redis Cluster, which is not supported: use one server, or Sentinel")
    if info.get("role") == "slave":
        raise StoreUnavailable("it is a read-only replica: name the master, or use redis+sentinel://")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        _log.warning(
            "registry store %s: maxmemory-policy is %s: agents may vanish under memory pressure; "
            "set it to noeviction",
            shown,
            policy,
        )


def check_rights(lacking: list[bytes]) -> None:
    """Takes the answer of `RIGHTS`.

    Raises:
        StoreUnavailable: the user lacks some.
    """
    if lacking:
        names = ", ".join(one.decode() for one in lacking)
        raise StoreUnavailable(f"the user may not do {names}: give it more rights")

"""The steps by which nodes agree, in Lua: each is done wholly or not at all, by the store's clock.

Keys under the prefix: ``nodes`` (hash: id → document), ``nodes/leases`` (sorted set: id → end), ``health`` (hash:
agent id → its last report, after a line ``moved stamp digest-of-url``), ``trial/{agent id}`` (the node that may
send the trial call). Channels: ``nodes`` and ``health``. All times are microseconds of cluster time.
"""

from __future__ import annotations

from typing import Final

from registry.stores.redis.script import Script

_COMMON: Final = """
local nodes, leases, health = p .. 'nodes', p .. 'nodes/leases', p .. 'health'
local function trial(id) return p .. 'trial/' .. id end
local function is_agent(id) return redis.call('EXISTS', p .. 'agents/' .. id) == 1 end
local function live_nodes()
  local found, live = {}, redis.call('ZRANGEBYSCORE', leases, '(' .. text(now), '+inf', 'WITHSCORES')
  for at = 1, #live, 2 do
    found[#found + 1] = live[at]
    found[#found + 1] = live[at + 1]
    found[#found + 1] = redis.call('HGET', nodes, live[at]) or ''
  end
  return found
end
local function alive(node) return tonumber(redis.call('ZSCORE', leases, node) or '0') > now end
local function known(id)
  local kept = redis.call('HGET', health, id)
  if not kept then return nil end
  local moved, stamp, url = string.match(kept, '^(%d+) (%d+) (%x+)\\n')
  return tonumber(moved), tonumber(stamp), url
end
"""


def _script(name: str, source: str) -> Script:
    return Script(name, _COMMON + source)


#: id, length of the lease, document → for each live node: id, end, document
RENEW: Final = _script(
    "renew node",
    """
local id, length, document = a[1], a[2], a[3]
local news = not redis.call('ZSCORE', leases, id)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', text(now))) do
  redis.call('ZREM', leases, gone)
  redis.call('HDEL', nodes, gone)
  news = true
end
redis.call('ZADD', leases, text(now + length), id)
redis.call('HSET', nodes, id, document)
if news then redis.call('PUBLISH', p .. 'nodes', id) end
return live_nodes()
""",
)

#: for each live node: id, end, document
LIST: Final = _script("list nodes", "return live_nodes()")

#: id
LEAVE: Final = _script(
    "node leaves",
    """
redis.call('ZREM', leases, a[1])
redis.call('HDEL', nodes, a[1])
redis.call('PUBLISH', p .. 'nodes', a[1])
return 0
""",
)

#: message without report (or empty), then for each report: agent id, moved, stamp, digest of the url, message, the
#: node that gives the trial call back (or empty)
TELL: Final = _script(
    "tell of health",
    """
if a[1] ~= '' then redis.call('PUBLISH', p .. 'health', a[1]) end
for at = 2, #a, 6 do
  local id, moved, stamp, url, release = a[at], tonumber(a[at + 1]), tonumber(a[at + 2]), a[at + 3], a[at + 5]
  local before, last, old = known(id)
  local later = before == nil or stamp > last
  if old == url then later = moved > before or (moved == before and stamp > last) end
  redis.call('PUBLISH', p .. 'health', a[at + 4])
  if later and is_agent(id) then
    redis.call('HSET', health, id, a[at + 1] .. ' ' .. a[at + 2] .. ' ' .. url .. '\\n' .. a[at + 4])
  end
  if release ~= '' and redis.call('GET', trial(id)) == release then redis.call('DEL', trial(id)) end
end
return 0
""",
)

#: node, agent ids: what is kept of them goes, unless they are registered anew; the node's trial calls go anyway
FORGET: Final = _script(
    "forget health",
    """
for at = 2, #a do
  local id = a[at]
  if not is_agent(id) then redis.call('HDEL', health, id) end
  if not is_agent(id) or redis.call('GET', trial(id)) == a[1] then redis.call('DEL', trial(id)) end
end
return 0
""",
)

#: agent id, node, moved, stamp (what the node knows), longest time in milliseconds → 1: it may send the trial call
TRY: Final = _script(
    "try agent",
    """
local id, node, moved, stamp = a[1], a[2], tonumber(a[3]), tonumber(a[4])
local holder = redis.call('GET', trial(id))
if holder and holder ~= node and alive(holder) then return 0 end
local before, last = known(id)
if before and (before > moved or (before == moved and last > stamp)) then return 0 end
redis.call('SET', trial(id), node, 'PX', a[5])
return 1
""",
)

#: cursor, how many about → next cursor, then agent id and what is kept, one after the other
READ: Final = _script(
    "read health",
    """
local found = redis.call('HSCAN', health, a[1], 'COUNT', a[2])
table.insert(found[2], 1, found[1])
return found[2]
""",
)

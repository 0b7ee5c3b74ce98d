"""The steps of the store, in Lua: each is done wholly or not at all, by the server's clock.

Keys under the prefix: ``agents/{id}`` (hash: format, card, owner as JSON, registered_at, seen, ttl, number,
rev), ``leases`` (sorted set: id → end), ``store`` (hash: token, format, born, version, healed, run), ``buried``
(hash: id → version at which it was removed: what is older is not put back), ``contact``, ``clock``. All times
are microseconds of cluster time. `rev` is the version of the agent's last change but its lease; versions and
lease numbers are never below the time: none comes twice, whatever the server forgot.

A message on ``discovery`` is a line (previous version, version, kind, and by kind more) and a body. Who knows
another previous version has missed something.
"""

from __future__ import annotations

from typing import Final

from registry.stores.redis.script import Script

QUIET_SECONDS: Final = 3
"""When no node had contact for longer than this, nobody could be heard: agents get their time anew."""
REBUILD_SECONDS: Final = 600
"""How long a new data set takes back what nodes know of the one before."""

_COMMON: Final = """
local store, leases = p .. 'store', p .. 'leases'
local function key(id) return p .. 'agents/' .. id end
local function ends(id) return tonumber(redis.call('ZSCORE', leases, id) or '0') end
local function row(id, ...)
  local had = redis.pcall('HMGET', key(id), ...)
  if had.err and not string.find(had.err, 'WRONGTYPE', 1, true) then error(had) end
  local whole, some = true, had.err
  for at, name in ipairs({...}) do
    some = some or had[at]
    whole = whole and had[at] and (name == 'card' or name == 'owner' or tonumber(had[at]))
  end
  if whole then return had end
  if some then redis.call('DEL', key(id)) end
  if some or ends(id) > 0 then redis.call('ZREM', leases, id) end
end
local function next_version()
  local before = redis.call('HGET', store, 'version') or '0'
  local version = text(math.max((number(before) or 0) + 1, now))
  redis.call('HSET', store, 'version', version)
  return before, version
end
local function tell(...) redis.call('PUBLISH', p .. 'discovery', table.concat({...}, ' ')) end
local function age() return now - (number(redis.call('HGET', store, 'born')) or 0) end
local function bury(id, version)
  if age() < REBUILD and (number(redis.call('HGET', p .. 'buried', id)) or 0) < tonumber(version) then
    redis.call('HSET', p .. 'buried', id, version)
    redis.call('EXPIRE', p .. 'buried', REBUILD / 1000000)
  end
end
local function drop(id, kind, since)
  redis.call('DEL', key(id))
  redis.call('ZREM', leases, id)
  local before, version = next_version()
  if kind == 'removed' then bury(id, since or version) end
  tell(before, version, kind, id, since or version)
  return version
end
""".replace("REBUILD", str(REBUILD_SECONDS * 1_000_000))


def _script(name: str, source: str) -> Script:
    return Script(name, _COMMON + source)


# The first command of each step that writes must be one that a server out of memory refuses: then nothing is done.

#: id, card, owner, ttl, most → kind, version, rev, number, end, seen, registered_at; or "forbidden", or "full"
PUT: Final = _script(
    "put",
    """
local id, card, owner, ttl, most = a[1], a[2], a[3], a[4], tonumber(a[5])
local had = row(id, 'card', 'owner', 'registered_at', 'rev', 'number')
local live = had and ends(id) > now
if live and had[2] ~= 'null' and had[2] ~= owner then return {'forbidden'} end
local function others() return redis.call('ZCOUNT', leases, '(' .. text(now), '+inf') end
local function heal()
  if now - (number(redis.call('HGET', store, 'healed')) or 0) < 1000000 then return end
  redis.call('HSET', store, 'healed', text(now))
  for _, one in ipairs(redis.call('ZRANGE', leases, 0, -1)) do row(one, 'rev', 'number', 'seen', 'ttl') end
end
if not live and most > 0 and others() >= most then
  heal()
  if others() >= most then return {'full'} end
end
local before, version = next_version()
local kind, rev, registered = 'registered', version, text(now)
if live then
  kind, registered = 'replaced', had[3]
  if had[1] == card and had[2] == owner then rev = had[4] end
end
local number = text(math.max(tonumber(version), had and had[5] + 1 or 0))
local over, seen = text(now + ttl), text(now)
redis.call('HSET', key(id), 'format', 1, 'card', card, 'owner', owner, 'registered_at', registered, 'rev', rev,
  'number', number, 'seen', seen, 'ttl', ttl)
redis.call('ZADD', leases, over, id)
tell(before, version, kind, id, rev, number, over, seen, ttl, registered .. '\\n' .. owner .. '\\n' .. card)
return {kind, version, rev, number, over, seen, registered}
""",
)

#: (id, principal, ttl)... → for each: "number end seen", "forbidden", or "" (not alive)
RENEW: Final = _script(
    "renew",
    """
local out = {}
for i = 1, #a, 3 do
  local id = a[i]
  local had = row(id, 'owner', 'number')
  local answer = ''
  if had and ends(id) > now then
    if had[1] ~= 'null' and had[1] ~= a[i + 1] then
      answer = 'forbidden'
    else
      local number, over, seen = text(math.max(had[2] + 1, now)), text(now + a[i + 2]), text(now)
      redis.call('HSET', key(id), 'number', number, 'seen', seen, 'ttl', a[i + 2])
      redis.call('ZADD', leases, over, id)
      answer = number .. ' ' .. over .. ' ' .. seen
    end
  end
  out[#out + 1] = answer
end
return out
""",
)

#: lines of "id number end seen ttl": what this node renewed, for the others
ANNOUNCE: Final = _script(
    "announce",
    """
local before, version = next_version()
tell(before, version, 'renewed\\n' .. a[1])
return 1
""",
)

#: id, principal → version; 0 if not alive; -1 if forbidden
REMOVE: Final = _script(
    "remove",
    """
local id = a[1]
local had = row(id, 'owner')
if not had or ends(id) <= now then return '0' end
if had[1] ~= 'null' and had[1] ~= a[2] then return '-1' end
return drop(id, 'removed')
""",
)

#: id, number → "expired" version; "gone" version; "kept" number end seen ttl
EXPIRE: Final = _script(
    "expire",
    """
local id = a[1]
local had = row(id, 'number', 'seen', 'ttl')
if not had then return {'gone', redis.call('HGET', store, 'version') or '0'} end
local over = ends(id)
if had[1] ~= a[2] or over > now then return {'kept', had[1], text(over), had[2], had[3]} end
return {'expired', drop(id, 'expired')}
""",
)

#: ids... → version, then id, rev, number, end, seen, ttl, registered_at, owner, card of each that is there
READ: Final = _script(
    "read",
    """
local out = {redis.call('HGET', store, 'version') or '0'}
for _, id in ipairs(a) do
  local had = row(id, 'rev', 'number', 'seen', 'ttl', 'registered_at', 'owner', 'card')
  if had then
    out[#out + 1] = {id, had[1], had[2], text(ends(id)), had[3], had[4], had[5], had[6], had[7]}
  end
end
return out
""",
)

#: → version, lines of "id rev number end seen ttl"
LIST: Final = _script(
    "list",
    """
local lines = {}
local all = redis.call('ZRANGE', leases, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local had = row(all[i], 'rev', 'number', 'seen', 'ttl')
  if had then
    lines[#lines + 1] = table.concat({all[i], had[1], had[2], text(tonumber(all[i + 1])), had[3], had[4]}, ' ')
  end
end
return {redis.call('HGET', store, 'version') or '0', table.concat(lines, '\\n')}
""",
)

#: → version; notes the contact, and gives all their time anew if there was none for long
TICK: Final = _script(
    "tick",
    """
local contact = number(redis.call('GET', p .. 'contact'))
redis.call('SET', p .. 'contact', text(now))
if contact and now - contact > QUIET then
  local all = redis.call('ZRANGEBYSCORE', leases, '(' .. text(contact), '+inf', 'WITHSCORES')
  for i = 1, #all, 2 do
    local had = row(all[i], 'ttl', 'number')
    if had and now + had[1] > tonumber(all[i + 1]) then
      redis.call('ZADD', leases, text(now + had[1]), all[i])
      redis.call('HSET', key(all[i]), 'number', text(math.max(had[2] + 1, now)))
    end
  end
  local before, version = next_version()
  tell(before, version, 'reload')
end
return redis.call('HGET', store, 'version') or '0'
""".replace("QUIET", str(QUIET_SECONDS * 1_000_000)),
)

#: whether to tell, then (id, rev, number, seen, ttl, registered_at, owner, card)...: what a node knows
RESTORE: Final = _script(
    "restore",
    """
if age() > REBUILD then return 0 end
local before, version = next_version()
for i = 2, #a, 8 do
  local id, rev, lease, seen, ttl = a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4]
  local had = row(id, 'rev', 'number')
  local same = had and had[1] == rev
  local older = not had or tonumber(had[1]) < tonumber(rev) or (same and tonumber(had[2]) < tonumber(lease))
  if older and (number(redis.call('HGET', p .. 'buried', id)) or 0) < tonumber(rev) then
    redis.call('HSET', key(id), 'format', 1, 'number', version, 'seen', seen, 'ttl', ttl,
      'rev', rev, 'registered_at', a[i + 5], 'owner', a[i + 6], 'card', a[i + 7])
    redis.call('ZADD', leases, text(now + ttl), id)
  end
end
if a[1] == '1' then tell(before, version, 'reload') end
return 1
""".replace("REBUILD", str(REBUILD_SECONDS * 1_000_000)),
)

#: version, ids, then (id, version)...: what a node knew then, and what was removed when: the store forgot that
AGREE: Final = _script(
    "agree",
    """
local known = {}
for id in string.gmatch(a[2], '%S+') do known[id] = true end
local function end_older(id, version)
  local had = not known[id] and row(id, 'rev')
  if had and tonumber(had[1]) <= tonumber(version) then drop(id, 'removed', version) end
end
for i = 3, #a, 2 do
  bury(a[i], a[i + 1])
  end_older(a[i], a[i + 1])
end
for _, id in ipairs(redis.call('ZRANGE', leases, 0, -1)) do end_older(id, a[1]) end
return 1
""",
)

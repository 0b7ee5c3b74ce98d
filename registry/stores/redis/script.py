"""Steps that the server takes as one: Lua, and what every script begins with."""

from __future__ import annotations

from hashlib import sha1
from typing import Final

DONE, OFF, STRANGE = 0, 1, 2
"""How an answer begins: the step was taken; not, because the sender's time is off; not, because the data set is
another, or forgot what this node knows of it."""

# Times are whole microseconds. Lua would write such a number as 1.7e+15 wherever it becomes text: hence `text`.
_PRELUDE: Final = """
local p, sent, late, early = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local token, known = ARGV[5], tonumber(ARGV[6])
local function number(text)
  return text and #text < 18 and string.match(text, '^%-?%d+$') and tonumber(text) or nil
end
local clock, offset = redis.call('TIME'), number(redis.call('GET', p .. 'clock')) or 0
local now = clock[1] * 1000000 + clock[2] + offset
if sent ~= 0 and (now - sent > late or now - sent < early) then return {1, now} end
if token ~= '' then
  local had = redis.call('HMGET', p .. 'store', 'token', 'version')
  if had[1] ~= token or (number(had[2]) or 0) < known then return {2, now} end
end
local a = {}
for i = 7, #ARGV do a[i - 6] = ARGV[i] end
local function text(number) return string.format('%.0f', number) end
local function step()
"""


class Script:
    """One atomic step in Lua.

    Its source is the body of a function: it sees `p` (key prefix), `now` (cluster time in microseconds), `a` (the
    arguments, from 1), `text(number)` and `number(text)` (a whole one, or nil), and returns a value without nil
    in it.
    """

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = f"-- vitalgate {name}{_PRELUDE}{source}\nend\nreturn {{0, now, step()}}\n"
        self.sha = sha1(self.source.encode(), usedforsecurity=False).hexdigest()

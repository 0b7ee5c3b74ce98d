"""Steps that the server takes as one: Lua, and what every script begins with."""

from __future__ import annotations

from hashlib import sha1
from typing import Final

DONE, OFF, STRANGE = 0, 1, 2
"""How an answer begins: the step was taken; not, because the sender's time is off; not, because the data set is
another."""

# Times are whole microseconds. Lua would write such a number as 1.7e+15 wherever it becomes text: hence `text`.
_PRELUDE: Final = """
local p, sent, late, early, token = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local function number(text)
  return text and #text < 18 and string.match(text, '^%-?%d+$') and tonumber(text) or nil
end
local clock, offset = redis.call('TIME'), number(redis.call('GET', p .. 'clock')) or 0
local now = clock[1] * 1000000 + clock[2] + offset
if sent ~= 0 and (now - sent > late or now - sent < early) then return {1, now} end
if token ~= '' and redis.call('HGET', p .. 'store', 'token') ~= token then return {2, now} end
local a = {}
for i = 6, #ARGV do a[i - 5] = ARGV[i] end
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

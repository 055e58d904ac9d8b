"""The verbs of the set, as scripts that the server runs each in one piece.

All keys of a script carry the same hash tag, so that Redis Cluster keeps them on one node. Three keys belong to a
shard of a lane:

    due     sorted set: the sids of schedules, scored by when they wake
    flight  sorted set: sids that an engine has popped, scored by when its lease ends
    state   hash: `until` what the set is whole up to, `built` when it was rebuilt, `repaired` when the database
            was last searched for what the set has lost; `feeder` and `feeder_until` who fills it, and until when

Time is the caller's, in microseconds; it is passed as text, because Lua writes large numbers with 14 digits only.
Scores are doubles, which are exact up to 2^53: in microseconds that is the year 2255.

`LT` everywhere: of two times for a sid the earlier stays. A wake-up that comes too early costs one question to the
database; one that comes too late would cost an occurrence its punctuality.
"""

from __future__ import annotations

import hashlib
from typing import Final


class Script:
    """A script and the name that the server knows it by once it has seen it."""

    __slots__ = ("sha", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


# due | channel ('' for no hint), then sid and time, over and over -> the smallest score
PUT: Final = Script("""
local before = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
for i = 2, #ARGV, 2 do
    redis.call('ZADD', KEYS[1], 'LT', ARGV[i + 1], ARGV[i])
end
local after = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if ARGV[1] ~= '' and after and (not before or tonumber(after) < tonumber(before)) then
    redis.call('PUBLISH', ARGV[1], after)
end
return after or ''
""")

# due, flight, state | now, when the lease ends, how many at most, '1' to ask for the repair, how long one is good for
# -> members, the smallest score that is left, until, built, whether the repair is the caller's, when the last one was
POP: Final = Script("""
local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, 10000)
for _, member in ipairs(expired) do
    redis.call('ZREM', KEYS[2], member)
    redis.call('ZADD', KEYS[1], 'LT', 0, member)
end
local popped = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
for _, member in ipairs(popped) do
    redis.call('ZREM', KEYS[1], member)
    redis.call('ZADD', KEYS[2], ARGV[2], member)
end
local left = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
local state = redis.call('HMGET', KEYS[3], 'until', 'built', 'repaired')
local mine = 0
if ARGV[4] == '1' and state[1] then
    local last = tonumber(state[3] or '')
    local since = last and tonumber(ARGV[1]) - last
    -- one that lies far ahead was written by a clock that has been set back since
    if not since or since >= tonumber(ARGV[5]) or since < -tonumber(ARGV[5]) then
        redis.call('HSET', KEYS[3], 'repaired', ARGV[1])
        state[3] = ARGV[1]
        mine = 1
    end
end
return {popped, left or '', state[1] or '', state[2] or '', mine, state[3] or ''}
""")

# due, flight | sid and time ('' where it wakes for nothing), over and over -> the smallest score
ACK: Final = Script("""
for i = 1, #ARGV, 2 do
    redis.call('ZREM', KEYS[2], ARGV[i])
    if ARGV[i + 1] ~= '' then
        redis.call('ZADD', KEYS[1], 'LT', ARGV[i + 1], ARGV[i])
    end
end
return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or ''
""")

# due, flight | members
DROP: Final = Script("""
for i = 1, #ARGV do
    redis.call('ZREM', KEYS[1], ARGV[i])
    redis.call('ZREM', KEYS[2], ARGV[i])
end
return 0
""")

# state | token, now, until when it may be held -> whether the caller may fill the set
# A token is WHO:NUMBER. A fill that an engine has left unfinished does not block its next one.
BEGIN_FEED: Final = Script("""
local held = redis.call('HMGET', KEYS[1], 'feeder', 'feeder_until')
local ends, now, lasts = tonumber(held[2] or '') or 0, tonumber(ARGV[2]), tonumber(ARGV[3])
local who = string.match(ARGV[1], '^[^:]*')
if held[1] and string.match(held[1], '^[^:]*') ~= who and ends > now and ends <= 2 * lasts - now then
    return 0
end
redis.call('HSET', KEYS[1], 'feeder', ARGV[1], 'feeder_until', ARGV[3])
return 1
""")

# due, state | token, until when it may be held, then sid and time, over and over -> whether the token still counts
FEED: Final = Script("""
if redis.call('HGET', KEYS[2], 'feeder') ~= ARGV[1] then
    return 0
end
redis.call('HSET', KEYS[2], 'feeder_until', ARGV[2])
for i = 3, #ARGV, 2 do
    redis.call('ZADD', KEYS[1], 'LT', ARGV[i + 1], ARGV[i])
end
return 1
""")

# state | token, until ('' to give up), built ('' where it was only filled further) -> whether the token still counted
END_FEED: Final = Script("""
if redis.call('HGET', KEYS[1], 'feeder') ~= ARGV[1] then
    return 0
end
redis.call('HDEL', KEYS[1], 'feeder', 'feeder_until')
if ARGV[2] ~= '' then
    redis.call('HSET', KEYS[1], 'until', ARGV[2])
end
if ARGV[3] ~= '' then
    redis.call('HSET', KEYS[1], 'built', ARGV[3])
end
return 1
""")

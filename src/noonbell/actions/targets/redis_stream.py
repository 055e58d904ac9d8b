"""A stream of a Redis server as a target, many messages in one round trip.

All that is sent together is put in by one script, which the server runs without a break: entries in the given order,
the group where it is missing, the trimming. With `remember_seconds` the script also keeps the ids that it has put in,
in a sorted set beside the stream, and passes over those that come again: when an answer was lost, or the process died
before it had written down that a message arrived, the repeat does not double the entry. This holds on one server and
for that time; a fail-over to a replica that lags, or a repeat after the time, can bring an entry again. So consumers
compare the field `id`, the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noonbell.actions.targets.target import cleaned, masked, require_address, require_seconds, require_text
from noonbell.errors import DeliveryError, ScheduleInvalidError, TargetAwayError

if TYPE_CHECKING:
    import redis.asyncio
    from redis.commands.core import AsyncScript

MOST_TOGETHER: Final = 1_000
REMEMBER_SECONDS: Final = 3_600

# KEYS: the stream, the ids. ARGV: for how long ids are kept (ms), the length to trim to, the group, a field for each
# that is unused empty; then for every message its id, how many fields and values it has, and these. An id is kept after
# its entry is in: a script is not undone where a command of it fails.
_PUT: Final = """
local stream, seen = KEYS[1], KEYS[2]
local window, maxlen, group = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if group ~= '' then
    local there = false
    if redis.call('EXISTS', stream) == 1 then
        for _, one in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
            there = there or one[2] == group
        end
    end
    if not there then
        redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
    end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local written = string.format('%.0f', now)
local put, at = 0, 4
while at < #ARGV do
    local id, last = ARGV[at], at + 1 + tonumber(ARGV[at + 1])
    if window == 0 or not redis.call('ZSCORE', seen, id) then
        if maxlen == '' then
            redis.call('XADD', stream, '*', unpack(ARGV, at + 2, last))
        else
            redis.call('XADD', stream, 'MAXLEN', '~', maxlen, '*', unpack(ARGV, at + 2, last))
        end
        if window > 0 then
            redis.call('ZADD', seen, written, id)
        end
        put = put + 1
    end
    at = last + 1
end
if window > 0 then
    redis.call('ZREMRANGEBYSCORE', seen, '-inf', string.format('(%.0f', now - window))
    redis.call('PEXPIRE', seen, window)
end
return put
"""


class RedisStream:
    """A stream of a Redis server: each message is an entry with the attributes of the CloudEvent as fields.

    `data` is JSON. With `maxlen` the stream is kept at about that many entries, read or not. `group` is made where it
    is missing, from the beginning of the stream, and the stream with it. For `remember_seconds` an id that comes again
    is passed over; 0 keeps none. Needs the extra noonbell[redis]. The address is the operator's own and does not go
    through egress.
    """

    most_together = MOST_TOGETHER

    def __init__(
        self,
        url: str,
        key: str,
        *,
        group: str | None = None,
        maxlen: int | None = None,
        remember_seconds: float = REMEMBER_SECONDS,
        timeout: float = 10.0,
    ) -> None:
        require_address(url, ("redis", "rediss", "unix"), "redis://cache:6379/0")
        require_text("key", key)
        if group is not None:
            require_text("group", group)
        require_seconds("remember_seconds", remember_seconds, least=0)
        if maxlen is not None and (type(maxlen) is not int or maxlen < 1):
            raise ScheduleInvalidError("maxlen", maxlen, "must be a whole number above 0, or None")
        require_seconds("timeout", timeout)
        self._url = url
        self._key = key
        self._timeout = timeout
        self._seen = _key_of_ids(key) if remember_seconds else key
        self._how = (str(round(remember_seconds * 1000)), "" if maxlen is None else str(maxlen), group or "")
        self._client: redis.asyncio.Redis | None = None
        self._put: AsyncScript | None = None

    def __repr__(self) -> str:
        return f"RedisStream({masked(self._url)!r}, {self._key!r})"

    async def deliver(self, body: str) -> None:
        await self.deliver_many((body,))

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        arguments: list[Any] = [*self._how]
        for body in bodies:
            event = _decode(body)
            fields = [part for name, value in event.items() for part in (name, _field(name, value))]
            arguments += (_field("id", event["id"]), len(fields), *fields)
        self._connected()
        try:
            assert self._put is not None  # noqa: S101 - made with the client
            await self._put((self._key, self._seen), arguments)
        except Exception as error:  # noqa: BLE001 - what kinds there are is the client's affair, and an extra's
            # Whatever Redis refuses here (no memory, a wrong password, another type under the key) it would refuse of
            # every message: an entry has nothing of its own that could be wrong.
            raise self._away(error) from None

    async def probe(self) -> str:
        client = self._connected()
        try:
            kind = await client.type(self._key)
            length = await client.xlen(self._key) if kind == b"stream" else 0
        except Exception as error:  # noqa: BLE001 - as above
            raise self._away(error) from None
        if kind not in (b"stream", b"none"):
            raise DeliveryError(repr(self), f"the key holds {kind!r}, and must hold a stream or nothing")
        return f"answers; {self._key} has {length} entries"

    def _away(self, error: Exception) -> TargetAwayError:
        # what the client says may hold the address, password included
        return TargetAwayError(repr(self), f"{type(error).__name__}: {cleaned(str(error), self._url)}")

    def _connected(self) -> redis.asyncio.Redis:
        if self._client is None:
            try:
                import redis.asyncio  # noqa: PLC0415 - an extra, and heavy
                from redis.asyncio.retry import Retry  # noqa: PLC0415 - as above
                from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
            except ImportError:
                raise TargetAwayError(repr(self), "redis is not installed; pip install noonbell[redis]") from None
            try:
                self._client = redis.asyncio.Redis.from_url(
                    self._url,
                    socket_timeout=self._timeout,
                    socket_connect_timeout=self._timeout,
                    # once, for a connection that the server closed while it was idle; patience is the outbox's
                    retry=Retry(NoBackoff(), 1),
                )
            except ValueError as error:
                text = f"its address cannot be used: {cleaned(str(error), self._url)}"
                raise TargetAwayError(repr(self), text) from None
            self._put = self._client.register_script(_PUT)
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _key_of_ids(key: str) -> str:
    """Return a second key next to the stream's, on the same server of a cluster.

    There the hash tag decides: the text between the first brace that opens and the first after it that closes. Where
    that is nothing, the whole key decides; it becomes the tag then, which holds no closing brace.
    """
    opened = key.find("{")
    if opened >= 0 and key.find("}", opened) > opened + 1:
        return f"{key}:noonbell-ids"
    if "}" in key:
        right = 'must have no "}" but where it closes a hash tag, as in "{events}:bells"; or remember_seconds must be 0'
        raise ScheduleInvalidError("key", key, right)
    return f"{{{key}}}:noonbell-ids"


_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def _field(name: str, value: msgspec.Raw) -> str | bytes:
    """Texts as they are; everything else, and all of the data, as JSON."""
    raw = bytes(value)
    return _decode_text(raw) if name != "data" and raw.startswith(b'"') else raw

"""The outbox in plain dicts: messages on their way, stream by stream, and those that could not be delivered.

A stream is what one schedule has in the outbox; its row is there for as long as there is a message. `append` and `free`
are parts of other transactions: `append` belongs to a claim or a settle that puts messages into the outbox, `free` to
the rescue of what dead engines left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import islice

from noonbell.core.presence import lane_key
from noonbell.core.records import DeadLetter, Delivery, OutboxMessage, Sending, Stream
from noonbell.ports import BOUNDS, MakeAudit, StreamBounds, StreamClaim
from noonbell.store.memory.handle import MemoryPart
from noonbell.store.memory.tables import MemoryData, Row, Transaction
from noonbell.store.stream_selection import DueStream, choose, looked_at

Numbered = tuple[int, OutboxMessage]


def append(tx: Transaction, data: MemoryData, messages: Sequence[OutboxMessage], now: int) -> None:
    """Put messages at the ends of their streams; one that is under way or waits keeps its owner and its wake-up."""
    for message in messages:
        number = data.counters.get("outbox", 0) + 1
        tx.put(data.counters, "outbox", number)
        tx.insert(data.outbox[message.sid], number, copy(message))
        if message.sid not in data.streams:
            stream = {"lane": message.lane, "wake_at": now, "owner": None, "attempt": 0, "error": None}
            _put(tx, data, message.sid, stream)


def free(tx: Transaction, data: MemoryData, lane: str, left: Callable[[str | None], bool]) -> None:
    """Free the streams that owners which are gone were delivering, and count one more attempt of each."""
    for sid, stream in list(data.streams.items()):
        if stream["lane"] == lane and stream["owner"] is not None and left(stream["owner"]):
            _put(tx, data, sid, stream | {"owner": None, "attempt": stream["attempt"] + 1})


def _put(tx: Transaction, data: MemoryData, sid: int, stream: Row) -> None:
    tx.put(data.streams, sid, stream)
    tx.touch([sid])


def _fitting(oldest: Mapping[int, Sequence[Numbered]], most_bytes: int) -> dict[int, int]:
    """Return how many messages of each stream fit, counted in turns; streams of which none does are left out."""
    fit: dict[int, int] = {}
    total = 0
    for nth in range(max(map(len, oldest.values()), default=0)):
        for sid, messages in oldest.items():
            if nth < len(messages):
                total += len(messages[nth][1].body.encode("utf-8", "surrogatepass"))
                if total > most_bytes and fit:
                    return fit
                fit[sid] = nth + 1
    return fit


class MemoryOutbox(MemoryPart):
    """The messages and dead letters of a memory store."""

    async def post(self, messages: Sequence[OutboxMessage], at: int) -> None:
        with self._transaction() as tx:
            append(tx, self.data, messages, at)

    async def claim(self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS) -> StreamClaim:
        waiting, most = self._tables().sending[lane_key(lane)], looked_at(limit, bounds)
        with self._transaction() as tx:
            tx.touch(due := waiting.take(now, most))
            chosen = choose([self._due(sid) for sid in due], limit, bounds)
            oldest = {sid: self._oldest(sid, together) for sid, together in chosen.brought.items()}
            fit = _fitting(oldest, bounds.most_bytes)
            claimed = [self._claim(tx, sid, owner, oldest[sid][:count]) for sid, count in fit.items()]
            for sid, until, error in chosen.put_off:
                _put(tx, self.data, sid, self.data.streams[sid] | {"wake_at": until, "error": error})
        full = len(due) >= most or chosen.crowded or len(fit) < len(chosen.brought)
        return StreamClaim(claimed, full, waiting.following(now))

    def _due(self, sid: int) -> DueStream:
        messages = self.data.outbox[sid]
        return DueStream(sid, self.data.streams[sid]["attempt"], messages[min(messages)].target)

    def _oldest(self, sid: int, most: int) -> list[Numbered]:
        return list(islice(sorted(self.data.outbox[sid].items()), most))

    def _claim(self, tx: Transaction, sid: int, owner: str, messages: Sequence[Numbered]) -> Stream:
        stream = self.data.streams[sid]
        _put(tx, self.data, sid, stream | {"owner": owner})
        return Stream(sid, stream["attempt"], [(number, copy(message)) for number, message in messages])

    async def settle(self, deliveries: Sequence[Delivery]) -> None:
        with self._transaction() as tx:
            for delivery in deliveries:
                stream = self.data.streams.get(delivery.sid)
                if stream is not None and stream["owner"] == delivery.owner:
                    self._settle_stream(tx, delivery, stream)

    def _settle_stream(self, tx: Transaction, delivery: Delivery, stream: Row) -> None:
        sid, dead = delivery.sid, delivery.dead
        tried = stream["attempt"] if delivery.delivered is None else 0
        messages = self.data.outbox[sid]
        if dead is not None and dead in messages:
            letter = DeadLetter(dead, messages[dead], delivery.at, tried + 1, delivery.error or "")
            tx.insert(self.data.dead_letters, dead, letter)
            tx.add_audits([] if delivery.audit is None else [delivery.audit])
        done = max(delivery.delivered or 0, dead or 0)
        for number in [number for number in messages if number <= done]:
            tx.delete(messages, number)
        tx.touch([sid])
        if not messages:
            tx.delete(self.data.streams, sid)
            return
        if dead is not None:
            tried = 0
        elif delivery.wake_at is not None:
            tried += 1
        wake_at = delivery.at if delivery.wake_at is None else delivery.wake_at
        error = delivery.error or None if dead is None and delivery.wake_at is not None else None
        _put(tx, self.data, sid, stream | {"owner": None, "wake_at": wake_at, "attempt": tried, "error": error})

    async def sending(self, sid: int, message_id: str) -> Sending | None:
        tables = self._tables()
        for ahead, (_, message) in enumerate(sorted(tables.outbox[sid].items())):
            if message.message_id == message_id and (stream := tables.streams.get(sid)) is not None:
                return Sending(
                    copy(message), ahead, stream["attempt"], stream["wake_at"], stream["owner"], stream["error"]
                )
        return None

    async def owned(self, owner: str) -> list[int]:
        return sorted(sid for sid, stream in self._tables().streams.items() if stream["owner"] == owner)

    # --- dead letters ---------------------------------------------------------------------------------------------

    async def dead_letters(self, sid: int | None, after: int, limit: int, team: str | None = None) -> list[DeadLetter]:
        letters = sorted(self._tables().dead_letters.items())
        found = (
            copy(letter)
            for number, letter in letters
            if number > after and sid in (None, letter.message.sid) and team in (None, letter.message.team)
        )
        return list(islice(found, limit))

    async def resolve(
        self, numbers: Sequence[int], audit: MakeAudit | None = None, *, redeliver_at: int | None = None
    ) -> int:
        with self._transaction() as tx:
            found = [number for number in sorted(set(numbers)) if number in self.data.dead_letters]
            for number in found:
                if redeliver_at is not None:
                    message = self.data.dead_letters[number].message
                    append(tx, self.data, [message], redeliver_at)
                    stream = self.data.streams[message.sid]
                    _put(tx, self.data, message.sid, stream | {"wake_at": min(stream["wake_at"], redeliver_at)})
                tx.delete(self.data.dead_letters, number)
            tx.add_audits([audit(found)] if found and audit is not None else [])
        return len(found)

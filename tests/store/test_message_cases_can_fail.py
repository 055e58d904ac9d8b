"""The cases for messages, against stores that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from noonbell.core.records import Delivery, Stream
from noonbell.ports import BOUNDS, MakeAudit, MakeNotices, Rescue, StreamBounds, StreamClaim
from noonbell.store.memory import MemoryStore
from noonbell.store.memory.handle import MemoryHandle
from noonbell.store.memory.outbox import MemoryOutbox, Numbered
from noonbell.store.memory.tables import Row, Transaction
from tests.store.overriding import Overriding
from tests.store.test_suite_can_fail import failures


class ForgetsWhoseStreamItIs(Overriding, MemoryStore):
    async def outbox_settle(self, deliveries: Sequence[Delivery]) -> None:
        owners = {sid: stream["owner"] for sid, stream in self.data.streams.items()}
        await self.plain.outbox.settle([replace(one, owner=owners.get(one.sid) or "") for one in deliveries])


class _GivesAStreamToTwo(MemoryOutbox):
    def _claim(self, tx: Transaction, sid: int, owner: str, messages: Sequence[Numbered]) -> Stream:
        claimed = super()._claim(tx, sid, owner, messages)
        tx.put(self.data.streams, sid, self.data.streams[sid] | {"owner": None})
        return claimed


class GivesAStreamToTwo(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.outbox = _GivesAStreamToTwo(handle)


class _LosesTheWakeUp(MemoryOutbox):
    """A stream goes with the last message that was claimed, whatever has come behind it."""

    def _settle_stream(self, tx: Transaction, delivery: Delivery, stream: Row) -> None:
        super()._settle_stream(tx, delivery, stream)
        if delivery.delivered is not None and delivery.wake_at is None and delivery.sid in self.data.streams:
            tx.delete(self.data.streams, delivery.sid)


class LosesTheWakeUp(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.outbox = _LosesTheWakeUp(handle)


class _ForgetsTheAttempts(MemoryOutbox):
    def _settle_stream(self, tx: Transaction, delivery: Delivery, stream: Row) -> None:
        super()._settle_stream(tx, delivery, stream | {"attempt": 0})


class ForgetsTheAttempts(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.outbox = _ForgetsTheAttempts(handle)


class DropsTheDead(Overriding, MemoryStore):
    async def outbox_settle(self, deliveries: Sequence[Delivery]) -> None:
        await self.plain.outbox.settle(
            [one if one.dead is None else replace(one, delivered=one.dead, dead=None) for one in deliveries]
        )


class _TurnsStreamsRound(MemoryOutbox):
    def _claim(self, tx: Transaction, sid: int, owner: str, messages: Sequence[Numbered]) -> Stream:
        claimed = super()._claim(tx, sid, owner, messages)
        return replace(claimed, messages=claimed.messages[::-1])


class TurnsStreamsRound(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.outbox = _TurnsStreamsRound(handle)


class ClaimsWithoutEnd(Overriding, MemoryStore):
    async def outbox_claim(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        return await self.plain.outbox.claim(lane, owner, now, limit + 1, bounds)


class SleepsTooLong(Overriding, MemoryStore):
    async def outbox_claim(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        return (await self.plain.outbox.claim(lane, owner, now, limit, bounds))._replace(next_wake_at=None)


class BringsWhateverThereIs(Overriding, MemoryStore):
    async def outbox_claim(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        return await self.plain.outbox.claim(lane, owner, now, limit, bounds._replace(most_bytes=1 << 40))


class AsksThoseWhoAreAway(Overriding, MemoryStore):
    async def outbox_claim(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        return await self.plain.outbox.claim(lane, owner, now, limit, bounds._replace(away={}))


class _TriesWithEverything(MemoryOutbox):
    def _oldest(self, sid: int, most: int) -> list[Numbered]:
        return super()._oldest(sid, 100)


class TriesWithEverything(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.outbox = _TriesWithEverything(handle)


class GivesNumbersTwice(Overriding, MemoryStore):
    async def outbox_resolve(
        self, numbers: Sequence[int], audit: MakeAudit | None = None, *, redeliver_at: int | None = None
    ) -> int:
        if redeliver_at is not None:
            self.data.counters["outbox"] = min(numbers) - 1
        return await self.plain.outbox.resolve(numbers, audit, redeliver_at=redeliver_at)


class LeavesTheStreamsOfTheDead(Overriding, MemoryStore):
    async def engines_rescue(
        self, lane: str, owner: str, at: int, make_notices: MakeNotices | None = None, *, stopped: bool = False
    ) -> Rescue:
        owners = {sid: stream["owner"] for sid, stream in self.data.streams.items()}
        taken = await self.plain.engines.rescue(lane, owner, at, make_notices, stopped=stopped)
        for sid, before in owners.items():
            self.data.streams[sid]["owner"] = before
        return taken


class RevivesWithoutWaking(Overriding, MemoryStore):
    async def outbox_resolve(
        self, numbers: Sequence[int], audit: MakeAudit | None = None, *, redeliver_at: int | None = None
    ) -> int:
        late = None if redeliver_at is None else redeliver_at + 3_600_000_000
        return await self.plain.outbox.resolve(numbers, audit, redeliver_at=late)


class BuriesInSilence(Overriding, MemoryStore):
    async def outbox_settle(self, deliveries: Sequence[Delivery]) -> None:
        await self.plain.outbox.settle([replace(one, audit=None) for one in deliveries])


class TellsOfThoseThatWereNotThere(Overriding, MemoryStore):
    async def outbox_resolve(
        self, numbers: Sequence[int], audit: MakeAudit | None = None, *, redeliver_at: int | None = None
    ) -> int:
        of_all = None if audit is None else lambda _: audit(list(numbers))
        return await self.plain.outbox.resolve(numbers, of_all, redeliver_at=redeliver_at)


WRONG = [
    ForgetsWhoseStreamItIs, GivesAStreamToTwo, LosesTheWakeUp, ForgetsTheAttempts, DropsTheDead, TurnsStreamsRound,
    ClaimsWithoutEnd, SleepsTooLong, BringsWhateverThereIs, AsksThoseWhoAreAway, TriesWithEverything,
    GivesNumbersTwice, LeavesTheStreamsOfTheDead, RevivesWithoutWaking, BuriesInSilence, TellsOfThoseThatWereNotThere,
]  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_store_is_found_out(kind: type[MemoryStore]) -> None:
    assert await failures(kind) != []

"""The cases for messages, against stores that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from noonbell.core.records import Delivery, Stream
from noonbell.ports import BOUNDS, Rescue, StreamBounds, StreamClaim, TellCut, TellNumbers
from noonbell.store.memory import MemoryStore
from noonbell.store.memory_outbox import Numbered
from noonbell.store.memory_tables import Row, Transaction
from tests.store.test_suite_can_fail import failures


class ForgetsWhoseStreamItIs(MemoryStore):
    async def settle_streams(self, deliveries: Sequence[Delivery]) -> None:
        owners = {sid: stream["owner"] for sid, stream in self.data.streams.items()}
        await super().settle_streams([replace(one, owner=owners.get(one.sid) or "") for one in deliveries])


class GivesAStreamToTwo(MemoryStore):
    def _claim(self, tx: Transaction, sid: int, owner: str, messages: Sequence[Numbered]) -> Stream:
        claimed = super()._claim(tx, sid, owner, messages)
        tx.put(self.data.streams, sid, self.data.streams[sid] | {"owner": None})
        return claimed


class LosesTheWakeUp(MemoryStore):
    """A stream goes with the last message that was claimed, whatever has come behind it."""

    def _settle_stream(self, tx: Transaction, delivery: Delivery, stream: Row) -> None:
        super()._settle_stream(tx, delivery, stream)
        if delivery.delivered is not None and delivery.wake_at is None and delivery.sid in self.data.streams:
            tx.delete(self.data.streams, delivery.sid)


class ForgetsTheAttempts(MemoryStore):
    def _settle_stream(self, tx: Transaction, delivery: Delivery, stream: Row) -> None:
        super()._settle_stream(tx, delivery, stream | {"attempt": 0})


class DropsTheDead(MemoryStore):
    async def settle_streams(self, deliveries: Sequence[Delivery]) -> None:
        await super().settle_streams(
            [one if one.dead is None else replace(one, delivered=one.dead, dead=None) for one in deliveries]
        )


class TurnsStreamsRound(MemoryStore):
    def _claim(self, tx: Transaction, sid: int, owner: str, messages: Sequence[Numbered]) -> Stream:
        claimed = super()._claim(tx, sid, owner, messages)
        return replace(claimed, messages=claimed.messages[::-1])


class ClaimsWithoutEnd(MemoryStore):
    async def claim_streams(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        return await super().claim_streams(lane, owner, now, limit + 1, bounds)


class SleepsTooLong(MemoryStore):
    async def claim_streams(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        return (await super().claim_streams(lane, owner, now, limit, bounds))._replace(next_wake_at=None)


class BringsWhateverThereIs(MemoryStore):
    async def claim_streams(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        return await super().claim_streams(lane, owner, now, limit, bounds._replace(most_bytes=1 << 40))


class AsksThoseWhoAreAway(MemoryStore):
    async def claim_streams(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        return await super().claim_streams(lane, owner, now, limit, bounds._replace(away={}))


class TriesWithEverything(MemoryStore):
    def _oldest(self, sid: int, most: int) -> list[Numbered]:
        return super()._oldest(sid, 100)


class GivesNumbersTwice(MemoryStore):
    async def revive_dead_letters(self, numbers: Sequence[int], at: int, tell: TellNumbers | None = None) -> int:
        self.data.counters["outbox"] = min(numbers) - 1
        return await super().revive_dead_letters(numbers, at, tell)


class LeavesTheStreamsOfTheDead(MemoryStore):
    async def take_over(
        self, lane: str, owner: str, at: int, tell: TellCut | None = None, *, stopped: bool = False
    ) -> Rescue:
        owners = {sid: stream["owner"] for sid, stream in self.data.streams.items()}
        taken = await super().take_over(lane, owner, at, tell, stopped=stopped)
        for sid, before in owners.items():
            self.data.streams[sid]["owner"] = before
        return taken


class RevivesWithoutWaking(MemoryStore):
    async def revive_dead_letters(self, numbers: Sequence[int], at: int, tell: TellNumbers | None = None) -> int:
        return await super().revive_dead_letters(numbers, at + 3_600_000_000, tell)


class BuriesInSilence(MemoryStore):
    async def settle_streams(self, deliveries: Sequence[Delivery]) -> None:
        await super().settle_streams([replace(one, audit=None) for one in deliveries])


class TellsOfThoseThatWereNotThere(MemoryStore):
    async def drop_dead_letters(self, numbers: Sequence[int], tell: TellNumbers | None = None) -> int:
        return await super().drop_dead_letters(numbers, None if tell is None else lambda _: tell(list(numbers)))


WRONG = [
    ForgetsWhoseStreamItIs, GivesAStreamToTwo, LosesTheWakeUp, ForgetsTheAttempts, DropsTheDead, TurnsStreamsRound,
    ClaimsWithoutEnd, SleepsTooLong, BringsWhateverThereIs, AsksThoseWhoAreAway, TriesWithEverything,
    GivesNumbersTwice, LeavesTheStreamsOfTheDead, RevivesWithoutWaking, BuriesInSilence, TellsOfThoseThatWereNotThere,
]  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_store_is_found_out(kind: type[MemoryStore]) -> None:
    assert await failures(kind) != []

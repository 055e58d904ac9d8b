from __future__ import annotations

import random

import pytest

from noonbell.core.records import StoredSchedule, Turn
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryData, MemoryStore
from noonbell.store.memory.wake_index import WakeIndex
from noonbell.testing.storage_cases.base import ME, MINUTE, OWNER, SECOND, T0, claim, deciding, declaration, ledger, new
from noonbell.testing.storage_suite import StorageSuite


class TestMemoryStore(StorageSuite):
    async def make_store(self) -> Ledger:
        return MemoryStore()

    async def reopen(self, store: Ledger) -> Ledger:
        assert isinstance(store, MemoryStore)
        return MemoryStore(store.data)


async def test_the_data_is_an_object_of_its_own() -> None:
    data = MemoryData()
    store = MemoryStore(data)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    store.kill()
    again = MemoryStore(data)
    await again.open()
    assert repr(again) == "MemoryStore(1 schedules)"
    assert MemoryStore().data.schedules == {}


async def test_rows_edited_by_hand_count_from_the_next_opening() -> None:
    store = MemoryStore()
    await store.open()
    await store.schedules.declare(declaration(created=[new("a", next_run_at=None)]))
    await store.close()
    store.data.schedules[1]["next_run_at"] = T0 + MINUTE
    await store.open()
    assert len((await claim(store, T0 + MINUTE)).starts) == 1


async def test_a_claim_touches_only_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await store.open()
    later = [new(f"later {i}", next_run_at=T0 + 9 * MINUTE + i) for i in range(2000)]
    await store.schedules.declare(declaration(created=[new("due"), *later]))
    indexed: list[int] = []
    index = MemoryData.index

    def note(data: MemoryData, sid: int) -> None:
        indexed.append(sid)
        index(data, sid)

    monkeypatch.setattr(MemoryData, "index", note)
    looked: list[int] = []

    def decide(stored: StoredSchedule) -> Turn:
        looked.append(stored.sid)
        return deciding(T0 + MINUTE)(stored)

    claimed, _ = await store.runs.claim(OWNER, ME, T0 + MINUTE, 100, decide)
    assert (looked, indexed, claimed.next_wake_at) == ([1], [1], T0 + 2 * MINUTE)


async def test_what_decide_does_to_its_argument_stays_there() -> None:
    store = MemoryStore()
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    (start,) = (await claim(store, T0 + MINUTE)).starts
    await store.runs.hand_back([start], ME, T0 + MINUTE)
    before = await ledger(store)

    def vandal(stored: StoredSchedule) -> Turn:
        stored.lives[0].fence = 77
        raise ValueError("and gone")

    await store.runs.claim(OWNER, ME, T0 + MINUTE + SECOND, 10, vandal)
    assert [row[3] for row in (await ledger(store))["live"]] == [row[3] for row in before["live"]] == [1]


# --- the wake index ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_wake_index_agrees_with_a_sorted_list(seed: int) -> None:
    draw = random.Random(seed)
    index = WakeIndex()
    plain: dict[int, int | str | None] = {}
    for _ in range(400):
        now, sid = draw.randrange(60), draw.randrange(12)
        match draw.randrange(4):
            case 0 | 1:
                at = draw.choice((None, draw.randrange(60), draw.randrange(60), "x"))
                index.put(sid, at)
                plain[sid] = at
            case 2:
                limit = draw.randrange(4)
                wakes = sorted((at, sid) for sid, at in plain.items() if isinstance(at, int) and at <= now)
                assert index.take(now, limit) == [sid for _, sid in wakes[:limit]]
                for _, taken in wakes[:limit]:
                    plain[taken] = None
            case _:
                later = [at for at in plain.values() if isinstance(at, int) and at > now]
                assert index.following(now) == min(later, default=None)


def test_the_wake_index_does_not_grow_with_what_was_put_off() -> None:
    index = WakeIndex()
    for at in range(100_000):
        index.put(at % 3, at)
    assert len(index._due) + len(index._later) <= 2 * 3 + 65

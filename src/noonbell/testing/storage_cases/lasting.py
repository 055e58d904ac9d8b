"""Durability: data outlives the handle, and a name is held for as long as its holder lives."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from collections.abc import Awaitable, Callable

from noonbell.core.records import Settlement
from noonbell.errors import SchedulerInUseError, StoreUnavailableError
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.ports import Ledger, RunFilter, ScheduleFilter
from noonbell.testing.storage_cases.base import (
    ME,
    MINUTE,
    OWNER,
    SECOND,
    T0,
    StorageCases,
    claim,
    deciding,
    declaration,
    event,
    fail,
    ledger,
    new,
    only_live,
    raises,
    record_step,
)

_VERBS: dict[str, Callable[[Ledger], Awaitable[object]]] = {
    "read_declared": lambda store: store.schedules.read_declared(OWNER),
    "declare": lambda store: store.schedules.declare(declaration(created=[new("z")])),
    "claim": lambda store: store.runs.claim(OWNER, ME, T0 + MINUTE, 10, deciding(T0 + MINUTE)),
    "settle": lambda store: store.runs.settle([]),
    "hand_back": lambda store: store.runs.hand_back([], ME, T0),
    "trigger": lambda store: store.runs.trigger(1, ME, T0),
    "owned": lambda store: store.runs.live(owner=ME),
    "find": lambda store: store.schedules.find(ScheduleFilter(sids=[1], declared=None, deleted=True)),
    "record": lambda store: record_step(store, event("stop-end")),
    "read_all_declared": lambda store: store.schedules.read_declared(),
    "epochs": lambda store: store.history.epochs(1),
    "spans": lambda store: store.history.spans(1, T0, T0 + MINUTE),
    "runs": lambda store: store.history.runs(RunFilter(1, T0, T0 + MINUTE)),
    "live": lambda store: store.runs.live(1),
    "attempts": lambda store: store.history.attempts(1, T0, T0 + MINUTE),
    "lifecycle": lambda store: lifecycle_of(store, OWNER),
    "read_ledger": lambda store: store.read("runs", None, 1),
}


async def _refused(store: Ledger) -> list[str]:
    refused = []
    for name, verb in _VERBS.items():
        try:
            await verb(store)
        except StoreUnavailableError:
            refused.append(name)
    return refused


class LastingCases(StorageCases):
    async def test_the_ledger_outlives_a_closed_handle(self) -> None:
        async with self.opened("a", "b") as store:
            await _work(store)
            before = await ledger(store)
            await store.close()
            again = await self.reopen(store)
            await again.open()
            assert await ledger(again) == before
            await again.close()

    async def test_the_ledger_outlives_a_killed_handle(self) -> None:
        async with self.opened("a", "b") as store:
            await _work(store)
            before = await ledger(store)
            store.kill()
            again = await self.reopen(store)
            await again.open()
            assert await ledger(again) == before
            (start,) = (await claim(again, T0 + 70 * SECOND, owner="instance-2")).starts
            assert (start.sid, start.cause) == (1, "retry"), "and it goes on"
            assert (await only_live(again, 2)).owner == ME
            await again.close()

    async def test_a_handle_that_is_not_open_refuses_every_verb(self) -> None:
        async with self.opened("a") as store:
            before = await ledger(store)
            await store.close()
            assert await _refused(store) == list(_VERBS)
            await store.open()
            assert await ledger(store) == before
            store.kill()
            store.kill()
            assert await _refused(store) == list(_VERBS)
            await store.close()
            await store.open()
            await store.open()
            assert await ledger(store) == before, "nothing was written by a handle that refused"
        fresh = await self.make_store()
        assert await _refused(fresh) == list(_VERBS), "before it is opened"

    async def test_a_name_is_held_once(self) -> None:
        async with self.opened() as store:
            hold = await store.hold("nightly", "process 7 on host h")
            for handle in (store, await self.reopen(store)):
                with raises(SchedulerInUseError) as refused:
                    await handle.hold("nightly", "process 8")
                assert refused.error.scheduler_name == "nightly"
                assert refused.error.holder == "process 7 on host h"
            (await store.hold("Nightly", "another name")).release()
            hold.release()
            (await store.hold("nightly", "process 8")).release()

    async def test_a_killed_holder_holds_nothing(self) -> None:
        async with self.opened() as store:
            await store.hold("one", ME)
            await store.hold("two", ME)
            store.kill()
            await self.holder_dies()
            again = await self.reopen(store)
            await again.open()
            holds = [await again.hold(name, "instance-2") for name in ("one", "two")]
            store.kill()
            with raises(SchedulerInUseError) as refused:
                await store.hold("one", ME)
            assert refused.error.holder == "instance-2"
            for hold in holds:
                hold.release()
            await again.close()

    async def test_a_name_shows_its_holder_and_stays_free_to_take(self) -> None:
        async with self.opened() as store:
            assert await store.holder("nightly") is None
            hold = await store.hold("nightly", "process 7")
            assert await store.holder("nightly") == "process 7"
            assert await store.holder("Nightly") is None
            hold.release()
            assert await store.holder("nightly") is None
            await store.hold("nightly", "process 8")
            store.kill()
            await self.holder_dies()
            again = await self.reopen(store)
            await again.open()
            assert await again.holder("nightly") is None
            (await again.hold("nightly", "process 9")).release()
            await again.close()

    async def test_a_hold_released_twice_leaves_the_next_holder_alone(self) -> None:
        async with self.opened() as store:
            old = await store.hold("nightly", "first")
            old.release()
            now = await store.hold("nightly", "second")
            old.release()
            with raises(SchedulerInUseError) as refused:
                await store.hold("nightly", "third")
            assert refused.error.holder == "second"
            now.release()

    async def test_names_of_any_kind_can_be_held(self) -> None:
        async with self.opened() as store:
            names = ["a/b", "a_b", "../up", "naïve ☃", "x" * 300, " ", "A", "a"]
            holds = [await store.hold(name, "me") for name in names]
            for hold in holds:
                hold.release()


async def _work(store: Ledger) -> None:
    """Leave one run waiting and one running."""
    a, b = (await claim(store, T0 + MINUTE)).starts
    await fail(store, a, T0 + 61 * SECOND, retry_at=T0 + 65 * SECOND)
    stale = Settlement(b, "unknown", "succeeded", T0 + 61 * SECOND)
    assert (await store.runs.settle([stale])).stale == [stale]

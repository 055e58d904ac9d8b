"""Messages: streams keep their order and have one owner, and nothing is lost on the way from outbox to dead letters."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import msgspec

from noonbell.core.records import (
    AuditEvent,
    Definition,
    Delivery,
    DurableSchedule,
    OutboxMessage,
    Run,
    ScheduleColumns,
    StoredSchedule,
    Turn,
)
from noonbell.ports import AuditFilter, AwayTarget, Ledger, ScheduleChange, StreamBounds, StreamClaim
from noonbell.testing.storage_cases.base import ME, SECOND, T0, StorageCases

LANE = "post"
OTHER_ME = "instance-2"
_runs = count(T0)


def schedule(name: str, lane: str = LANE) -> DurableSchedule:
    """One that is always due, so that a claim can put messages into the outbox whenever a case wants it."""
    definition = msgspec.json.encode(Definition(action={"kind": "message", "to": "inbox"})).decode()
    columns = ScheduleColumns(name, "cron", "* * * * *", "UTC", None, "skip", "{}", definition)
    return DurableSchedule(
        name, columns, enabled=True, managed_by="suite", lane=lane, cursor_at=T0, next_run_at=T0, anchor_at=None,
        zone_hash="z1", policies="{}",
    )  # fmt: skip


async def send(store: Ledger, at: int, /, lane: str = LANE, **texts: str) -> None:
    """Put a message into the outbox for each letter of a schedule's text."""

    def take_turn(stored: StoredSchedule) -> Turn:
        turn = Turn(stored.sid, T0, T0, enabled=True, anchor_at=None, last_run_for=None)
        for letter in texts.get(stored.schedule_id, ""):
            run_for = next(_runs)
            turn.finished.append(Run(stored.sid, run_for, "scheduled", "succeeded", 1, at, at, ME, 1))
            message_id = f"{stored.schedule_id}:scheduled:{letter}"
            body = f'{{"is":"{letter}","to":"{stored.schedule_id}"}}'
            turn.messages.append(OutboxMessage(stored.sid, lane, message_id, "inbox", body, at))
        return turn

    await store.runs.claim(lane, ME, at, 100, take_turn)


def texts(claim: StreamClaim) -> dict[int, str]:
    """The letters of each claimed stream, in order."""
    return {stream.sid: "".join(message.message_id[-1] for _, message in stream.messages) for stream in claim.streams}


def _sized(sid: int, size: int, letter: str = "x", *, target: str = "inbox") -> OutboxMessage:
    return OutboxMessage(sid, LANE, f"{sid}:scheduled:1", target, letter * size, T0)


def _sizes(claim: StreamClaim) -> list[tuple[int, list[int]]]:
    return [(stream.sid, [len(message.body) for _, message in stream.messages]) for stream in claim.streams]


class MessageCases(StorageCases):
    @asynccontextmanager
    async def post(self, *names: str) -> AsyncIterator[Ledger]:
        """A new store with these schedules; their sids count from 1."""
        store = await self.make_store()
        await store.open()
        try:
            await store.schedules.apply(ScheduleChange([schedule(name) for name in names], T0, "suite"))
            yield store
        finally:
            await store.close()

    async def test_a_stream_is_claimed_whole_and_in_order(self) -> None:
        async with self.post("a", "b") as store:
            await send(store, T0, a="123", b="x")
            await send(store, T0 + SECOND, a="45")
            claim = await store.outbox.claim(LANE, ME, T0 + SECOND, 10)
            assert texts(claim) == {1: "12345", 2: "x"}
            assert not claim.full
            (number, first), *rest = claim.streams[0].messages
            assert first == OutboxMessage(1, LANE, "a:scheduled:1", "inbox", '{"is":"1","to":"a"}', T0)
            assert [number, *(n for n, _ in rest)] == sorted({number, *(n for n, _ in rest)})

    async def test_what_is_posted_joins_its_stream_whatever_its_number(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="x")
            posted = [OutboxMessage(sid, LANE, f"n:{sid}:{sid}", "channel:c", "{}", T0) for sid in (1, -5, -(2**62))]
            await store.outbox.post(posted, T0 + SECOND)
            assert {s.sid for s in (await store.outbox.claim(LANE, ME, T0, 10)).streams} == {1}
            claim = await store.outbox.claim(LANE, ME, T0 + SECOND, 10)
            assert {stream.sid: len(stream.messages) for stream in claim.streams} == {-5: 1, -(2**62): 1}

    async def test_a_stream_has_one_owner(self) -> None:
        async with self.post("a", "b") as store:
            await send(store, T0, a="1", b="1")
            assert texts(await store.outbox.claim(LANE, ME, T0, 1)) == {1: "1"}
            await send(store, T0 + SECOND, a="2")
            assert texts(await store.outbox.claim(LANE, OTHER_ME, T0 + SECOND, 10)) == {2: "1"}
            assert await store.outbox.owned(ME) == [1]
            assert await store.outbox.owned(OTHER_ME) == [2]

    async def test_a_claim_takes_no_more_than_it_may(self) -> None:
        async with self.post("a", "b", "c") as store:
            await send(store, T0 + SECOND, c="1")
            await send(store, T0 + 2 * SECOND, a="1", b="1")
            claim = await store.outbox.claim(LANE, ME, T0 + 2 * SECOND, 2)
            assert [stream.sid for stream in claim.streams] == [3, 1]  # those that wait longest first
            assert claim.full

    async def test_lanes_are_apart(self) -> None:
        async with self.post("a") as store:
            await store.schedules.apply(ScheduleChange([schedule("z", "elsewhere")], T0, "suite"))
            await send(store, T0, a="1")
            await send(store, T0, "elsewhere", z="2")
            assert texts(await store.outbox.claim("elsewhere", ME, T0, 10)) == {2: "2"}

    async def test_a_long_stream_comes_in_parts(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="x" * 250)
            sizes = []
            for _ in range(4):
                for stream in (await store.outbox.claim(LANE, ME, T0, 10)).streams:
                    sizes.append(len(stream.messages))
                    await store.outbox.settle([Delivery(1, ME, T0, stream.messages[-1][0])])
            assert sizes == [100, 100, 50]

    async def test_a_claim_brings_no_more_bytes_than_it_may(self) -> None:
        async with self.post() as store:
            for sid, sizes in ((1, (40, 40, 40)), (2, (10, 30)), (3, (60,)), (4, (1,))):
                await store.outbox.post([_sized(sid, size) for size in sizes], T0 + sid)
            # the first of each, in turns: 40, 10, 60; then the last stream does not fit
            claim = await store.outbox.claim(LANE, ME, T0 + SECOND, 10, StreamBounds(110))
            assert _sizes(claim) == [(1, [40]), (2, [10]), (3, [60])]
            assert claim.full
            assert await store.outbox.owned(ME) == [1, 2, 3]
            await store.outbox.settle([Delivery(s.sid, ME, T0 + 9, s.messages[-1][0]) for s in claim.streams])
            again = await store.outbox.claim(LANE, ME, T0 + SECOND, 10, StreamBounds(71))
            assert _sizes(again) == [(4, [1]), (1, [40]), (2, [30])]
            assert not again.full  # what is left belongs to a stream that is in flight

    async def test_a_message_that_is_larger_than_all_bounds_comes_alone(self) -> None:
        async with self.post() as store:
            await store.outbox.post([_sized(1, 50), _sized(1, 1), _sized(2, 1)], T0)
            claim = await store.outbox.claim(LANE, ME, T0, 10, StreamBounds(10))
            assert (_sizes(claim), claim.full) == ([(1, [50])], True)
            assert _sizes(await store.outbox.claim(LANE, ME, T0, 10, StreamBounds(0))) == [(2, [1])]

    async def test_bytes_are_those_of_the_text_as_it_is_sent(self) -> None:
        async with self.post() as store:
            await store.outbox.post([_sized(1, 10, "€"), _sized(1, 10, "€")], T0)
            assert _sizes(await store.outbox.claim(LANE, ME, T0, 10, StreamBounds(59))) == [(1, [10])]

    async def test_what_is_for_a_target_that_is_away_is_put_off_and_not_counted(self) -> None:
        async with self.post() as store:
            await store.outbox.post([_sized(sid, 1, target="off") for sid in (1, 2)], T0)
            await store.outbox.post([_sized(3, 1), _sized(3, 1, target="off"), _sized(1, 1)], T0 + 1)
            bounds = StreamBounds(away={"off": AwayTarget("unreachable ☃", T0 + 9 * SECOND)})
            claim = await store.outbox.claim(LANE, ME, T0 + SECOND, 1, bounds)
            assert (_sizes(claim), claim.full, claim.next_wake_at) == ([(3, [1, 1])], False, T0 + 9 * SECOND)
            assert await store.outbox.owned(ME) == [3]
            waiting = await store.outbox.sending(1, "1:scheduled:1")
            assert waiting is not None
            assert (waiting.attempt, waiting.error, waiting.wake_at) == (0, "unreachable ☃", T0 + 9 * SECOND)
            later = await store.outbox.claim(LANE, ME, T0 + 9 * SECOND, 10)
            assert [(s.sid, s.attempt, len(s.messages)) for s in later.streams] == [(1, 0, 2), (2, 0, 1)]

    async def test_a_target_that_is_away_is_tried_by_one_message(self) -> None:
        async with self.post() as store:
            for sid, target in ((1, "off"), (2, "off"), (3, "inbox"), (4, "inbox")):
                await store.outbox.post([_sized(sid, 1, target=target)] * 3, T0 + sid)
            bounds = StreamBounds(away={"off": AwayTarget("unreachable")})
            claim = await store.outbox.claim(LANE, ME, T0 + SECOND, 2, bounds)
            assert _sizes(claim) == [(1, [1]), (3, [1, 1, 1])]
            assert claim.full  # for want of room; who waits for the end of the try makes none full
            rest = await store.outbox.claim(LANE, OTHER_ME, T0 + SECOND, 10, StreamBounds(away={"off": AwayTarget("")}))
            assert (_sizes(rest), rest.full) == ([(2, [1]), (4, [1, 1, 1])], False)
            await store.outbox.settle([Delivery(s.sid, ME, T0 + SECOND, s.messages[-1][0]) for s in claim.streams])
            assert _sizes(await store.outbox.claim(LANE, ME, T0 + SECOND, 10)) == [(1, [1, 1])]

    async def test_those_that_were_tried_least_try_a_target_that_is_away(self) -> None:
        async with self.post() as store:
            await store.outbox.post([_sized(sid, 1, target="off") for sid in (1, 2, 3)], T0)
            tried = []
            for second in range(4):
                bounds = StreamBounds(away={"off": AwayTarget("unreachable")})
                (stream,) = (await store.outbox.claim(LANE, ME, T0 + second * SECOND, 10, bounds)).streams
                tried.append(stream.sid)
                at = T0 + second * SECOND
                await store.outbox.settle([Delivery(stream.sid, ME, at, None, wake_at=at + SECOND, error="no")])
            assert sorted(tried[:3]) == [1, 2, 3]

    async def test_what_was_delivered_is_gone(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="123")
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            await store.outbox.settle([Delivery(1, ME, T0 + SECOND, stream.messages[1][0])])
            assert await store.outbox.owned(ME) == []
            again = await store.outbox.claim(LANE, ME, T0 + SECOND, 10)
            assert texts(again) == {1: "3"}
            await store.outbox.settle([Delivery(1, ME, T0 + SECOND, stream.messages[2][0])])
            assert (await store.outbox.claim(LANE, ME, T0 + 9 * SECOND, 10)).streams == []

    async def test_a_message_that_comes_while_the_last_is_delivered_is_not_lost(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="1")
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            await send(store, T0 + SECOND, a="2")
            await store.outbox.settle([Delivery(1, ME, T0 + 2 * SECOND, stream.messages[0][0])])
            assert texts(await store.outbox.claim(LANE, ME, T0 + 2 * SECOND, 10)) == {1: "2"}

    async def test_a_failure_waits_and_is_counted(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="12")
            for attempt in range(3):
                at = T0 + attempt * 10 * SECOND
                (stream,) = (await store.outbox.claim(LANE, ME, at, 10)).streams
                assert stream.attempt == attempt
                await store.outbox.settle([Delivery(1, ME, at, None, wake_at=at + 10 * SECOND, error="no")])
                waiting = await store.outbox.claim(LANE, ME, at + 10 * SECOND - 1, 10)
                assert (waiting.streams, waiting.next_wake_at) == ([], at + 10 * SECOND)

    async def test_a_failure_behind_a_success_is_the_first(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="12")
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            await store.outbox.settle([Delivery(1, ME, T0, None, wake_at=T0, error="no")])
            await store.outbox.claim(LANE, ME, T0, 10)
            await store.outbox.settle([Delivery(1, ME, T0, stream.messages[0][0], wake_at=T0, error="no")])
            (again,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            assert (again.attempt, len(again.messages)) == (1, 1)

    async def test_an_untouched_stream_is_given_back_as_it_was(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="1")
            await store.outbox.claim(LANE, ME, T0, 10)
            await store.outbox.settle([Delivery(1, ME, T0, None, wake_at=T0, error="no")])
            await store.outbox.claim(LANE, ME, T0, 10)
            await store.outbox.settle([Delivery(1, ME, T0, None)])
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            assert (stream.attempt, len(stream.messages)) == (1, 1)

    async def test_a_stream_of_another_owner_is_left_alone(self) -> None:
        async with self.post("a", "b") as store:
            await send(store, T0, a="1", b="1")
            (stream, _) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            number = stream.messages[0][0]
            await store.outbox.settle([Delivery(1, OTHER_ME, T0, number, dead=number, error="no")])
            assert await store.outbox.owned(ME) == [1, 2]
            assert await store.outbox.dead_letters(None, 0, 10) == []

    async def test_take_over_frees_the_streams_and_counts_the_try(self) -> None:
        async with self.post("a") as store:
            await store.schedules.apply(ScheduleChange([schedule("z", "elsewhere")], T0, "suite"))
            await send(store, T0, a="1")
            await send(store, T0, "elsewhere", z="2")
            await store.outbox.claim(LANE, ME, T0, 10)
            await store.outbox.claim("elsewhere", ME, T0, 10)
            await store.engines.rescue(LANE, OTHER_ME, T0 + SECOND)
            assert await store.outbox.owned(ME) == [2]
            (stream,) = (await store.outbox.claim(LANE, OTHER_ME, T0 + SECOND, 10)).streams
            assert (stream.sid, stream.attempt) == (1, 1)

    async def test_a_message_can_be_followed_until_it_has_left(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="12")
            first, second = "a:scheduled:1", "a:scheduled:2"
            waiting = await store.outbox.sending(1, second)
            assert waiting is not None
            assert (waiting.message.message_id, waiting.message.created_at) == (second, T0)
            assert (waiting.ahead, waiting.attempt, waiting.owner, waiting.error) == (1, 0, None, None)
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            under_way = await store.outbox.sending(1, first)
            assert under_way is not None
            assert (under_way.ahead, under_way.owner) == (0, ME)
            await store.outbox.settle([Delivery(1, ME, T0, None, wake_at=T0 + SECOND, error="no")])
            failed = await store.outbox.sending(1, first)
            assert failed is not None
            assert (failed.attempt, failed.wake_at, failed.owner, failed.error) == (1, T0 + SECOND, None, "no")
            await store.outbox.claim(LANE, ME, T0 + SECOND, 10)
            await store.outbox.settle([Delivery(1, ME, T0 + SECOND, stream.messages[0][0])])
            assert await store.outbox.sending(1, first) is None
            left = await store.outbox.sending(1, second)
            assert left is not None
            assert (left.ahead, left.attempt, left.error) == (0, 0, None)
            assert await store.outbox.sending(2, second) is None

    async def test_the_dead_are_kept_and_the_stream_goes_on(self) -> None:
        async with self.post("a", "b") as store:
            await send(store, T0, a="123", b="x")
            await store.outbox.claim(LANE, ME, T0, 10)
            await store.outbox.settle([Delivery(sid, ME, T0, None, wake_at=T0, error="no") for sid in (1, 2)])
            (first, second) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            (one, two, _), (x,) = first.messages, second.messages
            await store.outbox.settle(
                [
                    Delivery(1, ME, T0 + SECOND, one[0], dead=two[0], error="never"),
                    Delivery(2, ME, T0 + SECOND, None, dead=x[0], error="gone"),
                ]
            )
            letters = await store.outbox.dead_letters(None, 0, 10)
            assert [(letter.number, letter.attempts, letter.error) for letter in letters] == [
                (two[0], 1, "never"),
                (x[0], 2, "gone"),
            ]
            assert [letter.message for letter in letters] == [two[1], x[1]]
            assert {letter.died_at for letter in letters} == {T0 + SECOND}
            (stream,) = (await store.outbox.claim(LANE, ME, T0 + SECOND, 10)).streams
            assert (stream.sid, stream.attempt, len(stream.messages)) == (1, 0, 1)

    async def test_dead_letters_come_in_pages(self) -> None:
        async with self.post("a", "b") as store:
            await send(store, T0, a="12", b="x")
            for _ in range(2):
                streams = (await store.outbox.claim(LANE, ME, T0, 10)).streams
                dead = [Delivery(s.sid, ME, T0, None, dead=s.messages[0][0], error="no") for s in streams]
                await store.outbox.settle(dead)
            numbers = [letter.number for letter in await store.outbox.dead_letters(None, 0, 10)]
            assert len(numbers) == 3
            assert numbers == sorted(numbers)
            assert [letter.number for letter in await store.outbox.dead_letters(None, numbers[0], 1)] == [numbers[1]]
            assert [letter.message.sid for letter in await store.outbox.dead_letters(1, 0, 10)] == [1, 1]

    async def test_the_revived_go_to_the_end_at_once(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="123")
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            await store.outbox.settle([Delivery(1, ME, T0, None, dead=stream.messages[0][0], error="no")])
            (letter,) = await store.outbox.dead_letters(None, 0, 10)
            await store.outbox.claim(LANE, ME, T0, 10)
            await store.outbox.settle([Delivery(1, ME, T0, None, wake_at=T0 + 60 * SECOND, error="no")])
            assert await store.outbox.resolve([letter.number, letter.number, 10**9], redeliver_at=T0 + SECOND) == 1
            assert await store.outbox.dead_letters(None, 0, 10) == []
            claim = await store.outbox.claim(LANE, ME, T0 + SECOND, 10)
            assert texts(claim) == {1: "231"}
            assert claim.streams[0].messages[-1][0] > claim.streams[0].messages[0][0]

    async def test_what_becomes_of_dead_letters_is_audited_with_it(self) -> None:
        def revived_event(numbers: list[int]) -> AuditEvent:
            return AuditEvent(T0, "message.revived", "dead_letters", "suite", msgspec.json.encode(numbers).decode())

        async with self.post("a") as store:
            await send(store, T0, a="12")
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            first, second = (number for number, _ in stream.messages)
            dead = [AuditEvent(T0, "message.dead", "a", "engine", f"{number}") for number in (first, second)]
            # what is not the owner's is not audited
            await store.outbox.settle([Delivery(1, OTHER_ME, T0, None, dead=first, error="no", audit=dead[1])])
            await store.outbox.settle([Delivery(1, ME, T0, None, dead=first, error="no", audit=dead[0])])
            assert [event for _, event in await store.audit.page(AuditFilter(event="message.dead"), 0, 10)] == dead[:1]
            assert await store.outbox.resolve([10**9], revived_event, redeliver_at=T0) == 0
            assert await store.outbox.resolve([10**9], revived_event) == 0
            assert await store.audit.page(AuditFilter(event="message.revived"), 0, 10) == []
            assert await store.outbox.resolve([10**9, first, first], revived_event, redeliver_at=T0) == 1
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            await store.outbox.settle([Delivery(1, ME, T0, None, dead=second, error="no", audit=dead[1])])
            assert await store.outbox.resolve([second, 10**9], revived_event) == 1
            found = await store.audit.page(AuditFilter(event="message.revived"), 0, 10)
            assert [event for _, event in found] == [revived_event([first]), revived_event([second])]
            assert [event for _, event in await store.audit.page(AuditFilter(event="message.dead"), 0, 10)] == dead

    async def test_the_only_message_is_revived_into_a_new_stream(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="1")
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            dead = stream.messages[0][0]
            await store.outbox.settle([Delivery(1, ME, T0, None, dead=dead, error="no")])
            assert await store.outbox.resolve([dead], redeliver_at=T0 + SECOND) == 1
            (again,) = (await store.outbox.claim(LANE, ME, T0 + SECOND, 10)).streams
            assert again.attempt == 0
            assert again.messages[0][0] > dead  # a number is never given twice
            assert again.messages[0][1] == stream.messages[0][1]

    async def test_the_dropped_are_gone(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="1")
            (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
            dead = stream.messages[0][0]
            await store.outbox.settle([Delivery(1, ME, T0, None, dead=dead, error="no")])
            assert await store.outbox.resolve([dead, dead + 1]) == 1
            assert await store.outbox.dead_letters(None, 0, 10) == []
            assert (await store.outbox.claim(LANE, ME, T0 + SECOND, 10)).streams == []

    async def test_messages_outlive_the_handle(self) -> None:
        async with self.post("a") as store:
            await send(store, T0, a="12")
            store.kill()
            again = await self.reopen(store)
            await again.open()
            try:
                assert texts(await again.outbox.claim(LANE, ME, T0, 10)) == {1: "12"}
            finally:
                await again.close()

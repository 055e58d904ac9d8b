"""The watch: silence is noticed, every flip happens once, and others are told of it."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from noonbell.bootstrap import build
from noonbell.config import Settings
from noonbell.core.records import Document, DocumentWrite
from noonbell.engine.supervisor import Supervisor
from noonbell.errors import StoreUnavailableError
from noonbell.monitors import LoggedAlerts, Monitor, MonitorFlipped, Monitors, Watch
from noonbell.monitors.stored_monitors import MONITOR
from noonbell.ports import AuditFilter, DocumentFilter
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.monitors.conftest import NOON, Handle, Handles, Told, minutes
from tests.patience import PATIENCE_SECONDS
from tests.store.overriding import Overriding


async def hourly(monitors: Monitors, name: str = "backup") -> Monitor:
    """A monitor that was pinged just now, due in an hour, with ten minutes of grace."""
    made = await monitors.create(name=name, type="interval", spec="3600", grace_seconds=600, monitor_id=name)
    return await monitors.ping(made.token)


async def watched(watch: Watch, clock: ManualClock, length: timedelta) -> int | None:
    """Let time pass while the watch looks, without a gap; returns what the last look did."""
    end, next_at = clock.at + length, None
    while clock.at < end:
        await clock.advance(min(minutes(1), end - clock.at))
        next_at = (await watch.run_once()).next_at
    return next_at


async def test_silence_is_late_then_down_and_a_ping_recovers(store: Handle, clock: ManualClock) -> None:
    monitors, told = Monitors(store, clock), Told()
    watch = Watch(store, clock, told)
    made = await hourly(monitors)
    assert (await watch.run_once()).next_at == (NOON + minutes(60)).timestamp() * 1_000_000
    await watched(watch, clock, minutes(61))
    assert (await monitors.get("backup")).status == "late"
    assert await watched(watch, clock, minutes(10)) is None
    await watched(watch, clock, minutes(5))
    await monitors.ping(made.token)
    await watch.run_once()
    assert told.events == ["late", "failed", "recovered"]
    assert [(flip.at, flip.lasted) for flip in told.flips] == [
        (NOON + minutes(60), minutes(60)),
        (NOON + minutes(70), minutes(10)),
        (NOON + minutes(76), minutes(6)),
    ]
    assert len({flip.flip_id for flip in told.flips}) == 3
    assert (told.flips[1].name, told.flips[1].team, told.flips[1].reason) == (
        "backup",
        "default",
        "no ping within the grace",
    )
    rows = await store.audit.page(AuditFilter(subject="backup"), 0, 10)
    assert [event.event for _, event in rows][1:] == ["monitor.up", "monitor.late", "monitor.down", "monitor.up"]
    await watch.run_once()
    assert len(told.flips) == 3


async def test_many_watches_flip_once_and_tell_once(handles: Handles, clock: ManualClock) -> None:
    told = Told()
    stores = [await handles() for _ in range(3)]
    monitors = Monitors(stores[0], clock)
    watches = [Watch(store, clock, told) for store in stores]
    names = [f"job{number}" for number in range(8)]
    for name in names:
        made = await monitors.create(name=name, type="interval", spec="60", grace_seconds=30, monitor_id=name)
        await monitors.ping(made.token)
    for _ in range(3):  # from before it is due to after the grace, without a gap
        await asyncio.gather(*(watch.run_once() for watch in watches))
        await clock.advance(timedelta(seconds=50))
    await asyncio.gather(*(watch.run_once() for watch in watches))
    assert sorted((flip.monitor_id, flip.event) for flip in told.flips) == [(name, "failed") for name in names]
    for name in names:
        assert [flip.status for flip in await monitors.flips(name)] == ["down", "late", "up"]


async def test_while_one_tells_no_other_does(handles: Handles, clock: ManualClock) -> None:
    class Slow(Told):
        def __init__(self) -> None:
            super().__init__()
            self.asked, self.may = asyncio.Event(), asyncio.Event()

        async def monitor_flipped(self, flipped: MonitorFlipped) -> None:
            self.asked.set()
            await self.may.wait()
            await super().monitor_flipped(flipped)

    stores, told = [await handles() for _ in range(2)], Slow()
    monitors = Monitors(stores[0], clock)
    made = await hourly(monitors)
    await monitors.ping(made.token, "fail")
    first = asyncio.ensure_future(Watch(stores[0], clock, told).run_once())
    await told.asked.wait()
    other = Told()
    await Watch(stores[1], clock, other).run_once()
    assert other.events == []
    await monitors.ping(made.token)  # news while the first is being told
    told.may.set()
    await first
    assert told.events == ["failed", "recovered"]
    await Watch(stores[1], clock, other).run_once()
    assert other.events == []


async def test_what_could_not_be_told_is_told_later_and_in_order(
    store: Handle, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    monitors, told = Monitors(store, clock), Told()
    watch = Watch(store, clock, told)
    made = await hourly(monitors)
    told.refusals = 2
    await monitors.ping(made.token, "fail")
    await monitors.ping(made.token)
    await watch.run_once()
    assert told.events == []
    assert "alert not sent monitor=backup name='backup' status=down" in caplog.text
    await clock.advance(timedelta(seconds=59))
    await watch.run_once()
    assert told.refusals == 1, "not again before its time"
    await clock.advance(timedelta(seconds=1))
    await watch.run_once()
    await clock.advance(timedelta(seconds=60))
    await watch.run_once()
    assert told.events == ["failed", "recovered"]


async def test_a_watch_that_died_before_it_told_is_stood_in_for(handles: Handles, clock: ManualClock) -> None:
    class Deadly:
        async def monitor_flipped(self, flipped: object) -> None:
            raise asyncio.CancelledError

    first, second, told = await handles(), await handles(), Told()
    made = await hourly(Monitors(first, clock))
    await Monitors(first, clock).ping(made.token, "fail")
    with pytest.raises(asyncio.CancelledError):
        await Watch(first, clock, Deadly()).run_once()
    other = Watch(second, clock, told)
    await other.run_once()
    assert told.events == [], "the claim of the dead one holds for a while"
    await clock.advance(minutes(1))
    await other.run_once()
    assert told.events == ["failed"]


async def test_after_downtime_of_the_watch_jobs_have_their_grace_again(store: Handle, clock: ManualClock) -> None:
    told = Told()
    made = await hourly(Monitors(store, clock))
    await clock.advance(timedelta(hours=5))
    # a new process: nobody could have pinged while there was none
    monitors, watch = Monitors(store, clock), Watch(store, clock, told)
    await watch.run_once()
    assert told.events == ["late"]
    assert (await monitors.get("backup")).down_at == NOON + timedelta(hours=5, minutes=10)
    await clock.advance(minutes(9))
    await watch.run_once()
    assert (await monitors.ping(made.token)).status == "up"
    await watch.run_once()
    assert told.events == ["late", "recovered"], "it was never down"


class Away(Overriding, MemoryStore):
    """A store that fails while it is told to."""

    away = False

    async def documents_find(self, *given: Any, **named: Any) -> list[Document]:
        self._check()
        return await self.plain.documents.find(*given, **named)

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailableError("The disk is full", path="monitors.db")


async def test_an_outage_of_the_store_is_nobodys_silence(clock: ManualClock) -> None:
    store, told = Away(), Told()
    await store.open()
    watch = Watch(store, clock, told)
    monitors = Monitors(store, clock, on_due=watch.wake)
    services = Supervisor(clock, {"monitors": watch})
    services.start()
    punctual = await hourly(monitors, "punctual")
    await hourly(monitors, "silent")
    await clock.advance(minutes(50))
    store.away = True
    await clock.advance(minutes(40))
    with pytest.raises(StoreUnavailableError):
        await monitors.ping(punctual.token)
    store.away = False
    await monitors.ping(punctual.token)  # before the watch has found out
    await clock.advance(minutes(1))
    assert [(flip.monitor_id, flip.event) for flip in told.flips] == [("silent", "late")]
    await clock.advance(minutes(10))
    assert [(flip.monitor_id, flip.event) for flip in told.flips[1:]] == [("silent", "failed")]
    await asyncio.wait_for(services.stop(), PATIENCE_SECONDS)


async def test_a_short_failure_of_the_store_is_a_gap_as_well(clock: ManualClock) -> None:
    store, told = Away(), Told()
    await store.open()
    watch = Watch(store, clock, told)
    made = await hourly(Monitors(store, clock))
    await watched(watch, clock, minutes(69.5))
    store.away = True
    await clock.advance(timedelta(seconds=30))
    with pytest.raises(StoreUnavailableError):
        await watch.run_once()
    store.away = False
    await clock.advance(timedelta(seconds=10))
    await watch.run_once()
    assert told.events == ["late"]
    assert (await Monitors(store, clock).ping(made.token)).status == "up"


async def test_without_a_watch_a_ping_that_failed_tells_of_the_outage(clock: ManualClock) -> None:
    store = Away()
    await store.open()
    monitors = Monitors(store, clock)
    made = await hourly(monitors)
    await clock.advance(minutes(60))
    store.away = True
    with pytest.raises(StoreUnavailableError):
        await monitors.ping(made.token)
    store.away = False
    await clock.advance(minutes(20))
    await monitors.ping(made.token)
    assert [flip.status for flip in await monitors.flips("backup")] == ["up", "late", "up"]


async def test_a_ping_that_waited_through_an_outage_does_not_hide_it(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Away()
    await store.open()
    monitors, write = Monitors(store, clock), store.documents.write
    patient, other = await hourly(monitors, "patient"), await hourly(monitors, "other")
    await clock.advance(minutes(50))

    async def slow(*args: Any) -> list[Document]:
        monkeypatch.undo()
        store.away = True
        clock.stall(minutes(20))
        with pytest.raises(StoreUnavailableError):
            await monitors.ping(other.token)
        store.away = False
        clock.stall(minutes(10))
        return await write(*args)

    monkeypatch.setattr(store.documents, "write", slow)
    await monitors.ping(patient.token)
    await monitors.ping(other.token)
    assert [flip.status for flip in await monitors.flips("other")] == ["up", "late", "up"]


async def test_a_machine_that_slept_has_missed_pings_and_not_the_jobs(clock: ManualClock) -> None:
    store, told = MemoryStore(), Told()
    await store.open()
    watch = Watch(store, clock, told)
    monitors = Monitors(store, clock)
    services = Supervisor(clock, {"monitors": watch})
    services.start()
    await hourly(monitors)
    await clock.advance(minutes(10))
    await clock.jump(timedelta(hours=8))
    await clock.advance(minutes(9))
    assert told.events == ["late"]
    await clock.advance(minutes(2))
    assert told.events == ["late", "failed"]
    await asyncio.wait_for(services.stop(), PATIENCE_SECONDS)


async def test_a_ping_that_comes_before_the_watch_has_woken_is_no_recovery(store: Handle, clock: ManualClock) -> None:
    monitors, told = Monitors(store, clock), Told()
    watch = Watch(store, clock, told)
    made = await hourly(monitors)
    await watch.run_once()
    await clock.jump(minutes(80))
    await monitors.ping(made.token)
    await watch.run_once()
    assert told.events == []


async def test_in_a_service_pings_and_the_watch_know_of_the_same_gaps() -> None:
    service = build(Settings(store="memory://"), environ={})
    desk = service.schedules._lane.desk
    assert desk is not None
    assert Watch(desk.store, service.clock)._reception is service.monitors.acting("ann")._reception


async def test_a_clock_that_was_ahead_spares_nobody_when_it_is_right_again(store: Handle, clock: ManualClock) -> None:
    monitors, told = Monitors(store, clock), Told()
    watch = Watch(store, clock, told)
    clock.step(timedelta(days=1))
    await watch.run_once()
    clock.step(-timedelta(days=1))
    await watch.run_once()
    await hourly(monitors)
    await watched(watch, clock, minutes(71))
    assert told.events == ["late", "failed"]


async def test_a_ping_finds_what_time_has_done_where_no_watch_ran(store: Handle, clock: ManualClock) -> None:
    monitors = Monitors(store, clock)
    made = await hourly(monitors)
    await clock.advance(timedelta(hours=2))
    await monitors.ping(made.token)
    flips = await monitors.flips("backup")
    assert [(flip.at, flip.status) for flip in reversed(flips)] == [
        (NOON, "up"),
        (NOON + minutes(60), "late"),
        (NOON + minutes(70), "down"),
        (NOON + minutes(120), "up"),
    ]
    told = Told()
    await Watch(store, clock, told).run_once()
    assert told.events == ["failed", "recovered"], "a lateness that is over is not told"


async def test_a_monitor_that_cannot_be_read_holds_up_nobody(
    store: Handle, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    monitors, told = Monitors(store, clock), Told()
    watch = Watch(store, clock, told)
    await hourly(monitors)
    await store.documents.write([DocumentWrite(MONITOR, "broken", "default", '{"name": 5}', wake_at=1)], 1)
    await watch.run_once()
    assert 'The monitor "broken" cannot be read' in caplog.text
    await clock.advance(minutes(59))
    caplog.clear()
    await watch.run_once()
    assert caplog.text == ""
    await clock.advance(minutes(2))
    await watch.run_once()
    assert told.events == ["late"]


async def test_a_monitor_that_cannot_be_judged_holds_up_nobody(
    store: Handle, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    monitors, told = Monitors(store, clock), Told()
    made = await hourly(monitors, "a-stranger")
    await hourly(monitors)
    (document,) = await store.documents.find(DocumentFilter(MONITOR, [made.monitor_id]))
    moved = document.body.replace('"interval"', '"cron"')  # as by somebody else's hand: 3600 is no expression
    await store.documents.write([DocumentWrite(MONITOR, made.monitor_id, "default", moved, wake_at=1)], 1)
    await clock.advance(minutes(61))
    await Watch(store, clock, told).run_once()
    assert "monitor failed monitor=a-stranger" in caplog.text
    assert [flip.monitor_id for flip in told.flips] == ["backup"]


async def test_a_monitor_that_was_put_off_finds_back(store: Handle, clock: ManualClock) -> None:
    monitors, watch = Monitors(store, clock), Watch(store, clock, Told())
    await hourly(monitors)
    (document,) = await store.documents.find(DocumentFilter(MONITOR, ["backup"]))
    await store.documents.write([DocumentWrite(MONITOR, "backup", "default", document.body, wake_at=1)], 1)
    await watch.run_once()
    (document,) = await store.documents.find(DocumentFilter(MONITOR, ["backup"]))
    assert document.wake_at == (NOON + minutes(60)).timestamp() * 1_000_000


async def test_as_a_duty_it_looks_when_something_is_due_and_ends_when_told(clock: ManualClock) -> None:
    store, told = MemoryStore(), Told()
    await store.open()
    watch = Watch(store, clock, told)
    monitors = Monitors(store, clock, on_due=watch.wake)
    made = await hourly(monitors)
    services = Supervisor(clock, {"monitors": watch})
    services.start()
    await clock.advance(minutes(60))
    assert told.events == ["late"]
    assert told.flips[0].at == NOON + minutes(60)
    await clock.advance(minutes(30))
    assert told.events == ["late", "failed"]
    await monitors.ping(made.token)
    await clock.settle()
    assert told.events[2:] == ["recovered"], "told at once, not at the next look"
    await asyncio.wait_for(services.stop(), PATIENCE_SECONDS)


async def test_a_deadline_that_is_nearer_than_the_next_look_is_met(clock: ManualClock) -> None:
    store, told = MemoryStore(), Told()
    await store.open()
    watch = Watch(store, clock, told)
    monitors = Monitors(store, clock, on_due=watch.wake)
    services = Supervisor(clock, {"monitors": watch})
    services.start()
    made = await monitors.create(name="heart", type="interval", spec="1", grace_seconds=1)
    await clock.settle()
    await monitors.ping(made.token)
    await clock.advance(timedelta(seconds=1))
    assert told.events == ["late"]
    await clock.advance(timedelta(seconds=1))
    assert told.events == ["late", "failed"]
    await asyncio.wait_for(services.stop(), PATIENCE_SECONDS)


async def test_without_rules_a_flip_is_a_line_in_the_log(
    store: Handle, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "noonbell.monitors")
    monitors, watch = Monitors(store, clock), Watch(store, clock, LoggedAlerts())
    made = await hourly(monitors)
    await monitors.ping(made.token, exit_code=2)
    await monitors.ping(made.token)
    await watch.run_once()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "monitor down monitor=backup name='backup' since=2026-03-04T12:00:00+00:00 reason=exit code 2" in caplog.text
    assert made.token not in caplog.text


def test_what_others_are_told_can_be_stored(clock: ManualClock) -> None:
    """Whoever passes flips on through an outbox writes them as JSON and reads them again."""
    flipped = MonitorFlipped(
        "k:1", "failed", "backup", "Backup", "default", ("db",), "up", "down", NOON, "failed", minutes(3)
    )
    assert msgspec.json.decode(msgspec.json.encode(flipped), type=MonitorFlipped) == flipped

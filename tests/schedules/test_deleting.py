"""A schedule that is deleted while its action runs, and a stop that waits: what happens, and what is said."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from noonbell.actions.secrets.keys import new_ring
from noonbell.ledger import verify_store
from noonbell.ports import DocumentFilter
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS
from tests.schedules.conftest import NOON, World


def told(caplog: pytest.LogCaptureFixture, part: str) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if part in record.getMessage()]


async def test_what_runs_is_cancelled(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "noonbell")
    cancelled = asyncio.Event()

    async def endless(_: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    world.schedules.register("endless", endless)
    key = await world.create(name="report", action={"kind": "callback", "name": "endless"})
    await world.schedules.start()
    await world.minutes(1)
    await world.schedules.delete(key)
    await asyncio.wait_for(cancelled.wait(), PATIENCE_SECONDS)
    await world.clock.settle()
    assert told(caplog, "deleted") == [(logging.INFO, 'The schedule "report" was deleted; its run is cancelled')]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    (run,) = (await world.schedules.runs(key)).items
    assert run.state == "abandoned"
    assert (await verify_store(world.store)).problems == []


async def test_what_somebody_else_deletes_is_cancelled_soon(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "noonbell")
    cancelled = asyncio.Event()

    async def endless(_: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    world.schedules.register("endless", endless)
    key = await world.create(name="report", action={"kind": "callback", "name": "endless"})
    await world.create(name="other", action={"kind": "callback", "name": "endless"})
    await world.schedules.start()
    await world.minutes(1)
    await Schedules(world.store, clock=world.clock).delete(key)
    await world.clock.advance(timedelta(seconds=20))
    await asyncio.wait_for(cancelled.wait(), PATIENCE_SECONDS)
    await world.clock.settle()
    assert told(caplog, "deleted") == [(logging.INFO, 'The schedule "report" was deleted; its run is cancelled')]
    for one in (await world.schedules.list()).items:  # so that the world can stop
        await world.schedules.delete(one.schedule_id)


async def test_an_end_after_the_schedule_was_deleted_elsewhere_is_no_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "noonbell")
    key = await world.create(name="report")
    await world.schedules.start()
    world.duration = timedelta(seconds=1)
    await world.clock.advance(timedelta(seconds=30))
    await Schedules(world.store, clock=world.clock).delete(key)
    await world.clock.advance(timedelta(seconds=2))
    await world.clock.settle()
    told_ = told(caplog, "deleted")
    assert told_ == [(logging.INFO, 'The schedule "report" was deleted; how its run ended is not recorded')]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_plain_function_is_left_to_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "noonbell")
    clock, begun, go_on, ended = ManualClock(NOON), threading.Event(), threading.Event(), threading.Event()

    def plain(_: Call) -> None:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)
        ended.set()

    async with Schedules(MemoryStore(), clock=clock, callbacks={"plain": plain}) as schedules:
        made = await schedules.create(
            name="plain", type="cron", spec="* * * * *", action={"kind": "callback", "name": "plain"}
        )
        await schedules.start()
        await clock.advance(timedelta(minutes=1))
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        await schedules.delete(made.schedule_id)
        assert not ended.is_set()
        go_on.set()
        assert await asyncio.to_thread(ended.wait, PATIENCE_SECONDS)
    assert len(told(caplog, "is left to end")) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_program_is_ended_with_its_schedule(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    noted = tmp_path / "pid"
    os.mkfifo(noted)
    store = SqliteStore(tmp_path / "schedules.db", threaded=False)
    async with Schedules(store, clock=clock, commands=True) as schedules:
        command = {"kind": "command", "shell": True, "command": f"echo $$ > {noted}; exec sleep 600"}
        made = await schedules.create(name="long", type="cron", spec="* * * * *", action=command)
        await schedules.start()
        await clock.advance(timedelta(minutes=1))
        pid = int(await asyncio.to_thread(noted.read_text))
        await schedules.delete(made.schedule_id)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await store.close()


async def test_a_stop_that_waits_says_for_what(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("b", "a"):
        await world.create(name=name)
    await world.schedules.start()
    world.duration = timedelta(minutes=3)
    await world.minutes(0.5)
    task = asyncio.get_running_loop().create_task(world.schedules.stop())
    await world.clock.settle()
    assert told(caplog, "waiting") == []
    await world.clock.advance(timedelta(seconds=5))
    said = (logging.WARNING, "Stopping: waiting for 2 runs: a, b")
    assert told(caplog, "waiting") == [said]
    await world.clock.advance(timedelta(seconds=60))
    assert told(caplog, "waiting") == [said, said]
    while not task.done():
        await world.minutes(1)
    await task


async def test_the_signing_keys_of_a_schedule_go_with_it(world: World) -> None:
    documents = world.store
    signing = Schedules(world.store, clock=world.clock, secrets=new_ring())
    kept, gone = await world.create(name="kept"), await world.create(name="gone", team="red")
    for key, team in ((kept, "default"), (gone, "red")):
        assert len(await signing.secrets.signing_keys(key, team)) == 1
    await world.schedules.delete(gone)  # also by whoever has no master key
    assert [one.id for one in await documents.documents.find(DocumentFilter("signing_key", [kept, gone]))] == [kept]

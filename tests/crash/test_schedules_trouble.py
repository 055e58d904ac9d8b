"""Durable schedules on databases in trouble: the engine goes on trying, says so, and catches up; nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from noonbell.core.presence import EngineRecord, engine_name
from noonbell.errors import StoreUnavailableError
from noonbell.store.postgres import PostgresStore
from tests.crash.schedules_campaign import Campaign, happens
from tests.crash.schedules_trouble import (
    CuttingProxy,
    LimitedFiles,
    RefusedWrites,
    Trouble,
    database_on,
    kill_a_backend,
    small_disk,
)
from tests.crash.schedules_victim import LEASE_SECONDS
from tests.patience import PATIENCE_SECONDS, patiently
from tests.store.postgres_server import PostgresServer

UNAVAILABLE = "cannot be used now"


async def caught_up(campaign: Campaign, runs: int = 60) -> bool:
    """Whether so many more runs end, counted from when the store can be read."""
    before: int | None = None

    async def more() -> bool:
        nonlocal before
        try:
            found = await campaign.runs()
        except StoreUnavailableError:  # a server that lost a backend takes a moment to notice, and recovers
            return False
        before = found if before is None else before
        return found >= before + runs

    return await happens(more)


async def complains(campaign: Campaign, *words: str) -> bool:
    async def told() -> bool:
        said = campaign.log()
        return all(word in said for word in words)

    return await happens(told)


async def complains_on(campaign: Campaign) -> bool:
    """Whether it tries again and again."""
    before = campaign.log().count(UNAVAILABLE)

    async def more() -> bool:
        return campaign.log().count(UNAVAILABLE) >= before + 5

    return await happens(more)


async def live_through(campaign: Campaign, trouble: Callable[[int], Trouble], *words: str) -> None:
    """One life with a disk that is full for a while; `trouble` is given the process."""
    async with campaign.life() as victim:
        await campaign.hear(victim, "up")
        await asyncio.sleep(1.5)  # a minute has come and begun runs that are still under way
        disk = trouble(victim.pid)
        await disk.fill()
        assert await complains(campaign, UNAVAILABLE, *words)
        assert await complains_on(campaign)
        await disk.free()
        assert await caught_up(campaign)
        await campaign.finish(victim)
    assert campaign.outcome.wrong == [], campaign.log()[-4000:]
    assert campaign.outcome.repeated == campaign.outcome.brought_again == 0, "one life repeats nothing"
    assert campaign.outcome.crashes_recorded == 0


async def test_sqlite_on_a_full_disk(tmp_path: Path) -> None:
    told = "ended runs could not be recorded"
    with small_disk(tmp_path / "disk", 16) as disk:
        if disk is not None:
            campaign = Campaign(str(disk.folder / "schedules.db"), tmp_path, seed=31)
            await live_through(campaign, lambda _: disk, told)
        else:
            database = tmp_path / "schedules.db"
            await live_through(
                Campaign(str(database), tmp_path, seed=31), lambda pid: LimitedFiles(pid, database), told
            )


@pytest.mark.exhaustive
async def test_postgres_on_a_full_disk(postgres: PostgresServer, tmp_path: Path) -> None:
    told = "No space left on device"
    with small_disk(postgres.folder / "disk", 32) as disk:
        if disk is not None:
            async with database_on(postgres, disk) as address:
                await live_through(Campaign(address, tmp_path, seed=32), lambda _: disk, told)
        else:
            address = await postgres.new_database()
            refusal = RefusedWrites(postgres, address.rpartition("/")[2])
            await live_through(Campaign(address, tmp_path, seed=32), lambda _: refusal, told)


@pytest.mark.exhaustive
async def test_postgres_that_loses_connections_backends_and_itself(postgres: PostgresServer, tmp_path: Path) -> None:
    address = await postgres.new_database()
    campaign = Campaign(address, tmp_path, seed=33)
    async with CuttingProxy(postgres.port, seed=33) as proxy:
        through = postgres.dsn(address.rpartition("/")[2], proxy.port)
        async with campaign.life(address=through) as victim:
            await campaign.hear(victim, "up")
            proxy.lost_share = 0.15
            async with asyncio.timeout(PATIENCE_SECONDS):
                for times in itertools.count(1):
                    await asyncio.sleep(0.25)
                    proxy.cut()
                    if times >= 8 and proxy.lost:
                        break
            proxy.lost_share = 0.0
            assert await caught_up(campaign)
            await kill_a_backend(address)
            assert await caught_up(campaign)
            await postgres.in_thread("halt")
            await asyncio.sleep(1.5 * LEASE_SECONDS)  # it is not alive by its lease any more
            await postgres.in_thread("start")
            assert await complains(campaign, UNAVAILABLE, "no other process took it: held again")
            assert await caught_up(campaign)
            await campaign.finish(victim)

    assert campaign.outcome.wrong == [], campaign.log()[-4000:]
    assert proxy.lost > 0
    assert proxy.cuts > 0
    assert campaign.outcome.repeated == campaign.outcome.brought_again == 0, "one life repeats nothing"
    assert campaign.outcome.crashes_recorded == 0


async def stands_still(pid: int) -> bool:
    """Whether the process is stopped by a signal; it comes to that when no transaction is open."""
    state = await asyncio.to_thread(Path(f"/proc/{pid}/stat").read_text)
    return state.rpartition(")")[2].split()[0] == "T"


@pytest.mark.exhaustive
async def test_an_engine_that_was_taken_for_dead_writes_nothing_more(postgres: PostgresServer, tmp_path: Path) -> None:
    campaign = Campaign(await postgres.new_database(), tmp_path, seed=34)
    async with campaign.life() as first:
        await campaign.hear(first, "up")
        await asyncio.sleep(1)
        assert first.stdin is not None
        first.stdin.write(b"freeze\n")  # for longer than its lease
        assert await happens(lambda: stands_still(first.pid))
        async with campaign.life() as second:
            await campaign.hear(second, "up")
            assert await complains(campaign, "dead engines found")
            await asyncio.sleep(0.5)
            first.send_signal(signal.SIGCONT)
            assert await complains(campaign, "lease lost, another engine has taken over")
            await campaign.stop(first)
            assert await caught_up(campaign)
            campaign.outcome.kills += 1  # the second takes the first for dead
            await campaign.finish(second)

    assert campaign.outcome.wrong == [], campaign.log()[-4000:]
    assert campaign.outcome.crashes_recorded == 1


async def test_a_process_that_stands_still_in_a_transaction_is_rescued_all_the_same(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    frozen = PostgresStore(dsn, lease_ttl=60.0, statement_timeout=0.3)
    other = PostgresStore(dsn, lease_ttl=5.0)
    for name, store in (("other", other), ("frozen", frozen)):
        await patiently(store.open, StoreUnavailableError)
        await store.hold(engine_name(name), name)
        record = EngineRecord(name, "default", "h", 7, "1", "-", 0, 0, "up")
        await patiently(partial(store.engines.join, record), StoreUnavailableError)
    assert frozen._held.keeper is not None
    frozen._held.keeper.end()

    async def rescued() -> bool:
        try:
            return (await other.engines.rescue("default", "other", 0)).dead == ["frozen"]
        except StoreUnavailableError:
            return False

    async def stand_still() -> None:
        async with frozen._connections.writing() as db:
            await frozen._session.still_held(db, engine_name("frozen"))
            ends = "UPDATE instances SET expires_at = clock_timestamp() WHERE name = 'engine:frozen'"
            await postgres.execute(dsn.rpartition("/")[2], ends)
            assert await happens(rescued), "the server ends the transaction, and with it all that kept it alive"

    with pytest.raises(StoreUnavailableError):
        await stand_still()
    frozen.kill()
    other.kill()

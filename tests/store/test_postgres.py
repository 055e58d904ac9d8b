"""The storage suite on PostgreSQL, and what its statements do and cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from noonbell.core.records import Settlement
from noonbell.errors import StoreError, StoreUnavailableError, StoreUrlError
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import Ledger
from noonbell.store.opening import open_store, require_ledger, sqlite_path
from noonbell.store.postgres import PostgresStore, leases
from noonbell.store.postgres.connection import shown
from noonbell.store.postgres.leases import Lease
from noonbell.testing.storage_cases.base import (
    HOUR,
    ME,
    MINUTE,
    OWNER,
    SECOND,
    T0,
    claim,
    deciding,
    declaration,
    event,
    fail,
    ledger,
    new,
    start_one,
)
from noonbell.testing.storage_suite import StorageSuite
from tests.store.postgres_server import PostgresServer
from tests.store.test_postgres_leases import renewed_twice, somebody_waits
from tests.store.transaction_pooler import TransactionPooler

TTL = 60.0


class MortalStore(PostgresStore):
    """Keeps the tokens of its leases, for the case that it is killed."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, pool_size=2, lease_ttl=TTL)
        self._tokens: list[str] = []
        self.left: list[str] = []

    async def hold(self, name: str, holder: str) -> Lease:
        lease = await super().hold(name, holder)
        self._tokens.append(lease.token)
        return lease

    def kill(self) -> None:
        self.left.extend(self._tokens)  # one whose release was under way, too
        super().kill()


class TestPostgresStore(StorageSuite):
    store_class = MortalStore

    @pytest.fixture(autouse=True)
    def _server(self, postgres: PostgresServer) -> None:
        self.server = postgres
        self.places: dict[int, str] = {}
        self.stores: list[MortalStore] = []

    async def make_store(self) -> Ledger:
        return self._on(await self.server.new_ledger())

    async def reopen(self, store: Ledger) -> Ledger:
        return self._on(self.places[id(store)])

    async def holder_dies(self) -> None:
        """Remove the leases of the killed; how long a lease lasts is a matter of test_postgres_leases."""
        for store in self.stores:
            db = await asyncpg.connect(self.places[id(store)])
            await db.execute("DELETE FROM instances WHERE token = ANY($1::text[])", store.left)
            await db.close()

    def _on(self, dsn: str) -> PostgresStore:
        store = self.store_class(dsn)
        self.places[id(store)] = dsn
        self.stores.append(store)
        return store


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(dsn, pool_size=1)
    await made.open()
    yield made
    await made.close()


def listening(store: PostgresStore) -> list[str]:
    """Every statement that the single connection of a store runs from now on."""
    pool: Any = store._connections._pool
    (holder,) = pool._holders
    said: list[str] = []
    holder._con.add_query_logger(lambda record: said.append(record.query))
    return said


# --- many at once -----------------------------------------------------------------------------------------------------


async def test_two_stores_never_claim_the_same_schedule(dsn: str) -> None:
    stores = [PostgresStore(dsn, pool_size=2) for _ in range(2)]
    for store in stores:
        await store.open()
    await stores[0].schedules.declare(declaration(created=[new(f"task {i}") for i in range(200)]))
    claimed: list[list[int]] = [[], []]

    async def work(number: int) -> None:
        for _ in range(40):
            got = await claim(stores[number], T0 + MINUTE, limit=7, owner=f"instance-{number}")
            claimed[number] += [start.sid for start in got.starts]

    await asyncio.gather(work(0), work(1))
    assert sorted(claimed[0] + claimed[1]) == list(range(1, 201)), "each once, and all"
    assert all(claimed), "both took part"
    for number, store in enumerate(stores):
        assert sorted(live.sid for live in await store.runs.live(owner=f"instance-{number}")) == sorted(claimed[number])
        await store.close()


async def test_what_another_has_locked_is_passed_over_and_looked_for_again(dsn: str, store: PostgresStore) -> None:
    await store.schedules.declare(declaration(created=[new("a"), new("b")]))
    other = await asyncpg.connect(dsn)
    async with other.transaction():
        await other.execute("SELECT 1 FROM schedule_state WHERE sid = 1 FOR UPDATE")
        now = T0 + MINUTE
        claimed = await claim(store, now)
        assert [start.sid for start in claimed.starts] == [2], "without waiting for the lock"
        assert claimed.next_wake_at is not None
        assert now < claimed.next_wake_at <= now + SECOND
    assert [start.sid for start in (await claim(store, T0 + MINUTE)).starts] == [1]
    await other.close()


async def test_retries_that_are_claimed_at_the_same_time_start_once(dsn: str) -> None:
    stores = [PostgresStore(dsn, pool_size=1) for _ in range(3)]
    for store in stores:
        await store.open()
    await stores[0].schedules.declare(declaration(created=[new(f"task {i}") for i in range(30)]))
    for start in (await claim(stores[0], T0 + MINUTE)).starts:
        await fail(stores[0], start, T0 + 61 * SECOND, retry_at=T0 + 70 * SECOND)
    now = T0 + 71 * SECOND

    async def work(store: PostgresStore) -> list[tuple[int, int]]:
        got = [await claim(store, now, limit=4) for _ in range(12)]
        return [(start.sid, start.fence) for part in got for start in part.starts]

    parts = await asyncio.gather(*(work(store) for store in stores))
    assert sorted(pair for part in parts for pair in part) == [(sid, 2) for sid in range(1, 31)]
    for store in stores:
        await store.close()


async def test_declarations_at_the_same_time_give_every_schedule_its_own_number(dsn: str) -> None:
    stores = [PostgresStore(dsn, pool_size=1) for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    made = await asyncio.gather(
        *(
            store.schedules.declare(
                declaration(f"owner {i}", created=[new(f"{i}-{n}") for n in range(5)], events=[event("crash")])
            )
            for i, store in enumerate(stores)
        )
    )
    assert sorted(sid for sids in made for sid in sids) == list(range(1, 16))
    assert [row[0] for row in (await ledger(stores[0]))["lifecycle"]] == [1, 2, 3]
    for store in stores:
        await store.close()


# --- statements -------------------------------------------------------------------------------------------------------


async def test_the_number_of_statements_does_not_depend_on_the_batch(postgres: PostgresServer) -> None:
    counts = []
    for size in (2, 300):
        store = PostgresStore(await postgres.new_ledger(), pool_size=1)
        await store.open()
        await store._session.owners.know(ME)  # as its first claim does
        said = listening(store)
        steps: list[int] = []
        heard: list[str] = []

        def step(said: list[str] = said, steps: list[int] = steps, heard: list[str] = heard) -> None:
            steps.append(len(said))
            heard.extend(said)
            said.clear()

        await store.schedules.declare(declaration(created=[new(f"task {i}") for i in range(size)]))
        step()
        starts = (await claim(store, T0 + 5 * MINUTE, limit=1000)).starts
        step()
        at = T0 + 5 * MINUTE + SECOND
        await store.runs.settle([Settlement(starts[0], ME, "succeeded", at)])
        said.clear()  # the first one has made the partitions of its days
        await store.runs.settle([Settlement(start, ME, "failed", at, at + SECOND, "no") for start in starts[1:]])
        step()
        again = (await claim(store, at + SECOND, limit=1000)).starts
        step()
        await store.runs.hand_back(again, ME, at + SECOND)
        step()
        assert not any("typeinfo" in sql for sql in heard), "the driver knows every type that is used"
        assert (len(starts), len(again)) == (size, size - 1)
        counts.append(steps)
        await store.close()
    assert counts[0] == counts[1]
    assert max(counts[0]) <= 12, (counts, said)


async def test_claims_use_the_partial_index_also_without_statistics(dsn: str, store: PostgresStore) -> None:
    await store.schedules.declare(declaration(created=[new("waiting")]))
    await fail(store, await start_one(store, T0 + MINUTE), T0 + MINUTE, retry_at=T0 + 5)  # one run waits
    await store.schedules.declare(declaration(created=[new(f"task {i}", next_run_at=T0 + i) for i in range(3000)]))
    said = listening(store)
    await claim(store, T0 + 10, limit=5)
    (due,) = [sql for sql in said if "SKIP LOCKED" in sql and "FROM runs_live" not in sql]
    (woken,) = [sql for sql in said if "SKIP LOCKED" in sql and "FROM runs_live" in sql]
    db = await asyncpg.connect(dsn)
    definition = await db.fetchval("SELECT indexdef FROM pg_indexes WHERE indexname = 'idx_schedules_next_run'")
    assert definition.endswith("USING btree (lane_no, next_run_at) WHERE (enabled = 1)")
    async with db.transaction():
        for setting in store._connections._begin_write.split("; ")[1:]:
            await db.execute(setting)
        plan = "\n".join(row[0] for row in await db.fetch(f"EXPLAIN {due}", T0 + 10, OWNER, 5))
        assert "Index Scan using idx_schedules_next_run on schedule_state" in plan
        assert "Sort" not in plan, "the index gives the order, so the limit ends the scan"
        plan = "\n".join(row[0] for row in await db.fetch(f"EXPLAIN {woken}", T0 + 10, OWNER, 5))
        assert "Index Scan using idx_runs_live_wake" in plan
        assert "Seq Scan" not in plan
    await db.close()


async def test_an_error_text_that_postgres_cannot_hold_does_not_stop_its_batch(store: PostgresStore) -> None:
    await store.schedules.declare(declaration(created=[new("a"), new("b")]))
    a, b = (await claim(store, T0 + MINUTE)).starts
    at = T0 + 61 * SECOND
    batch = [
        Settlement(a, ME, "failed", at, None, "nul \0 and half \ud800"),
        Settlement(b, ME, "failed", at, None, "b"),
    ]
    assert (await store.runs.settle(batch)).stale == []
    kept = [(await store.history.attempts(sid, T0, T0 + HOUR))[0].error for sid in (1, 2)]
    assert kept == ["nul \\x00 and half \\ud800", "b"]


@pytest.mark.parametrize("name", ["nul \0", "half \ud800"])
async def test_a_name_that_postgres_cannot_hold_is_refused_whole(store: PostgresStore, name: str) -> None:
    with pytest.raises(StoreError) as caught:
        await store.schedules.declare(declaration(created=[new("a"), new(name)]))
    assert not isinstance(caught.value, StoreUnavailableError), "trying again will not help"
    assert await schedule_rows(store) == []


async def test_two_ends_of_one_schedule_in_one_batch(store: PostgresStore) -> None:
    await store.schedules.declare(declaration(created=[new("a")]))
    manual = await store.runs.trigger(1, ME, T0 + SECOND)
    assert manual is not None
    at = T0 + 2 * SECOND
    twice = [Settlement(manual, ME, "failed", at, None, "first"), Settlement(manual, ME, "succeeded", at + 1)]
    assert (await store.runs.settle(twice)).stale == [twice[1]], "the second finds the run ended"
    (row,) = await schedule_rows(store)
    assert (row["last_failure_at"], row["last_success_at"]) == (at, None)


async def test_what_can_be_damaged_here_is_read_as_it_stands_and_decided_alone(dsn: str, store: PostgresStore) -> None:
    """Columns have types, so damage is what a type lets through: values that are not there."""
    await store.schedules.declare(declaration(created=[new("a"), new("b"), new("c")]))
    db = await asyncpg.connect(dsn)
    await db.execute("UPDATE schedule_definitions SET name = NULL, spec = NULL, timezone = NULL WHERE sid = 1")
    await db.execute("UPDATE schedule_state SET cursor_at = NULL WHERE sid = 2")
    await db.close()
    first, second, _ = (await store.schedules.read_declared(OWNER)).rows
    assert (first["name"], first["spec"], first["timezone"], second["cursor_at"]) == (None,) * 4
    claimed = await claim(store, T0 + MINUTE)
    assert [start.sid for start in claimed.starts] == [1, 3]
    assert [sid for sid, _ in claimed.quarantined] == [2]
    assert (await claim(store, T0 + MINUTE)).looked == 0, "it is put off"


# --- behind a transaction pooler --------------------------------------------------------------------------------------


async def test_it_works_behind_a_transaction_pooler(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWALS", 200)  # so that leases are renewed in between
    direct = PostgresStore(await postgres.new_database(), lease_ttl=TTL)
    await direct.open()
    database = str(direct).rpartition("/")[2].rstrip("')")
    async with TransactionPooler(postgres.port, size=2) as pooler:
        store = PostgresStore(postgres.dsn(database, pooler.port), pool_size=3, lease_ttl=TTL)
        await store.open()
        hold = await store.hold(OWNER, "me")
        await store.schedules.declare(declaration(created=[new(f"task {i}") for i in range(50)]))

        async def work() -> None:
            for minute in range(1, 6):
                starts = (await claim(store, T0 + minute * MINUTE, limit=20)).starts
                at = T0 + minute * MINUTE + SECOND
                assert (
                    await store.runs.settle([Settlement(start, ME, "succeeded", at) for start in starts])
                ).stale == []

        await asyncio.gather(work(), work(), renewed_twice(postgres.dsn(database)))
        hold.release()
        assert len(await schedule_rows(store)) == 50
        assert await ledger(store) == await ledger(direct)
        assert pooler.handovers > 10, "transactions of one client went over different connections"
        await store.close()
    assert len((await ledger(direct))["runs"]) >= 50
    await direct.close()


async def test_the_pooler_would_show_what_clings_to_its_session(postgres: PostgresServer) -> None:
    """The counterpart of the test above: the driver's own default does not work there."""
    async with TransactionPooler(postgres.port, size=2) as pooler:
        db = await asyncpg.connect(postgres.dsn("postgres", pooler.port))
        await db.fetch("SELECT $1::int8", 1)
        with pytest.raises(asyncpg.InvalidSQLStatementNameError):
            await db.fetch("SELECT $1::int8", 1)
        await db.close()


# --- addresses --------------------------------------------------------------------------------------------------------

SECRET = "s3cr/et?@#"  # noqa: S105 - what must not be shown


def test_an_address_of_postgres_makes_its_store() -> None:
    for url in ("postgresql://user:pw@host:5433/app?sslmode=require", "postgres://host/app"):
        assert isinstance(open_store(url), PostgresStore)
    assert (
        repr(open_store("postgresql://user:pw@h1:1,h2:2/app?password=pw"))
        == "PostgresStore('postgresql://h1:1,h2:2/app')"
    )
    with pytest.raises(ValueError, match="must be positive"):
        PostgresStore("postgresql://host/app", pool_size=0)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+asyncpg://user:{SECRET}@host/app",
        f"POSTGRESQL://user:{SECRET}@host/app",
        f" postgresql://user:{SECRET}@host/app",
        f"postgresql:/user:{SECRET}@host/app",
    ],
)
def test_a_misspelt_address_is_refused_without_its_password(url: str) -> None:
    for use in (open_store, sqlite_path, require_ledger):
        with pytest.raises(StoreUrlError) as caught:
            use(url)
        assert "s3cr" not in f"{caught.value!r} {caught.value} {caught.value.details}"


@pytest.mark.parametrize("password", ["s3cret", "s3cr/et", "s3cr@et", "s3cr#et", "s3cr?et", "s3cr:et"])
async def test_no_error_shows_the_password(password: str) -> None:
    for dsn in (
        f"postgresql://user:{password}@127.0.0.1:1/app",
        f"postgresql://user:{password}@127.0.0.1:port/app",
        f"postgresql://user@127.0.0.1:1/app?password={password}",
    ):
        assert "s3cr" not in shown(dsn)
        store = PostgresStore(dsn)
        with pytest.raises(StoreError) as caught:
            await store.open()
        with pytest.raises(StoreError) as second:
            await store.hold("name", "me")
        for error in (caught.value, second.value):
            chain: BaseException | None = error
            while chain is not None:
                assert "s3cr" not in f"{store!r} {chain!r} {chain}"
                chain = None if chain.__suppress_context__ and chain.__cause__ is None else chain.__cause__


async def test_looking_at_an_empty_database_creates_nothing(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    with pytest.raises(StoreError, match="holds no Noonbell ledger; nothing was created"):
        require_ledger(dsn)
    db = await asyncpg.connect(dsn)
    assert await db.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    await db.close()
    store = PostgresStore(dsn)
    await store.open()
    await store.close()
    assert require_ledger(dsn) is None
    with pytest.raises(StoreUnavailableError, match="cannot be used now"):
        require_ledger("postgresql://127.0.0.1:1/app")


async def test_a_claim_whose_commit_is_still_on_its_way_is_waited_for(dsn: str) -> None:
    """After a lost connection `owned` must not answer before the lost claim has gone one way or the other."""
    store = PostgresStore(dsn, pool_size=2)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    async with store._session.claiming(ME) as db:
        await store._session.still_held(db, OWNER)
        now = T0 + MINUTE
        claimed, _ = await store.runs.claim(OWNER, "somebody else", now - 1, 1, deciding(now - 1))
        assert claimed.starts == [], "other owners are not held up"
        await db.execute("UPDATE schedule_state SET next_run_at = NULL")
        await db.execute(
            "INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, epoch, cause) "
            "VALUES (1, 'scheduled', 5, 1, $1, 'running', 1, 1, 'cron')",
            ME,
        )
        asking = asyncio.create_task(store.runs.live(owner=ME))
        await somebody_waits(dsn)
        assert not asking.done()
    assert [live.run_for for live in await asking] == [5]
    await store.close()

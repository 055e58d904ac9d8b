"""The table of a user's PostgreSQL as a target, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import pytest

from noonbell.actions.message import message_of
from noonbell.actions.targets import BatchTarget, PostgresOutbox
from noonbell.actions.targets.postgres_outbox import outbox_table
from noonbell.errors import DeliveryError, ScheduleInvalidError, TargetAwayError
from tests.actions.conftest import MIDNIGHT, start_at, stored_with
from tests.patience import PATIENCE_SECONDS, patiently
from tests.store.postgres_server import PostgresServer

Database = Any  # a connection; its type takes a parameter that says nothing here


def bodies(count: int, start: int = 0, **payload: Any) -> list[str]:
    stored = stored_with({"kind": "message", "to": "x"}, payload or {"text": "Grüße"}, schedule_id="a:b")
    return [
        message_of(stored, start_at(MIDNIGHT + number * 1_000_000), 5).body for number in range(start, start + count)
    ]


def id_of(number: int) -> str:
    return f"a:b:scheduled:{MIDNIGHT + number * 1_000_000}"


@pytest.fixture
async def dsn(postgres: PostgresServer) -> str:
    return await postgres.new_schema()


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    made = await asyncpg.connect(dsn)
    await made.execute(outbox_table())
    yield made
    await made.close()


async def ids(db: Database) -> list[str]:
    return [row[0] for row in await db.fetch("SELECT message_id FROM noonbell_messages ORDER BY number")]


async def test_an_event_becomes_a_row(dsn: str, db: Database) -> None:
    target = PostgresOutbox(dsn)
    (body,) = bodies(1)
    await target.deliver(body)
    await target.close()
    (row,) = await db.fetch("SELECT *, event::text AS written FROM noonbell_messages")
    assert (row["message_id"], row["schedule_id"], row["type"]) == (id_of(0), "a:b", "noonbell.message")
    assert row["scheduled_for"].isoformat() == "2024-01-01T00:00:00+00:00"
    assert msgspec.json.decode(row["written"]) == msgspec.json.decode(body)
    assert row["done_at"] is None


async def test_many_are_one_statement_in_their_order(dsn: str, db: Database) -> None:
    target = PostgresOutbox(dsn)
    given = bodies(1_000)[::-1]
    await target.deliver_many(given)
    await target.close()
    assert await ids(db) == [id_of(number) for number in range(999, -1, -1)]
    assert await db.fetchval("SELECT count(DISTINCT xmin::text) FROM noonbell_messages") == 1


async def test_repeats_change_nothing(dsn: str, db: Database) -> None:
    target = PostgresOutbox(dsn)
    await target.deliver_many(bodies(3))
    await db.execute("UPDATE noonbell_messages SET done_at = now()")
    await target.deliver_many(bodies(4))
    await target.deliver_many([*bodies(1, 4), *bodies(1, 4)])
    await target.close()
    assert await ids(db) == [id_of(number) for number in range(5)]
    assert await db.fetchval("SELECT count(*) FROM noonbell_messages WHERE done_at IS NOT NULL") == 3


@pytest.mark.parametrize("channel", ["noonbell_messages", "Other Channel"])
async def test_whoever_listens_is_told_once_for_a_batch_with_something_new(
    dsn: str, db: Database, channel: str
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    await db.add_listener(channel, lambda *heard: told.put_nowait(heard[3]))
    target = PostgresOutbox(dsn, notify=channel)
    await target.deliver_many(bodies(3))
    await target.deliver_many(bodies(3))
    await target.deliver_many(bodies(4))
    await target.close()
    assert [
        await asyncio.wait_for(told.get(), PATIENCE_SECONDS),
        await asyncio.wait_for(told.get(), PATIENCE_SECONDS),
    ] == ["3", "1"]
    assert told.empty()


async def test_nobody_need_be_told(dsn: str, db: Database) -> None:
    target = PostgresOutbox(dsn, notify=None)
    await target.deliver_many(bodies(2))
    await target.close()
    assert await ids(db) == [id_of(0), id_of(1)]


async def test_a_table_in_a_schema(postgres: PostgresServer, dsn: str) -> None:
    schema = dsn.rpartition("=")[2]
    await postgres.execute("postgres", outbox_table(f"{schema}.letters"))
    target = PostgresOutbox(postgres.dsn("postgres"), f"{schema}.letters")
    await target.deliver_many(bodies(2))
    assert await target.probe() == f"answers, and has the table {schema}.letters"
    await target.close()


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_value_that_the_table_cannot_hold_is_refused_and_nothing_of_the_batch_is_kept(
    dsn: str, db: Database
) -> None:
    target = PostgresOutbox(dsn)
    with pytest.raises(DeliveryError) as failed:
        await target.deliver_many([*bodies(2), *bodies(1, 2, text="nul \0")])
    assert not isinstance(failed.value, TargetAwayError)
    assert await ids(db) == []
    await target.deliver_many(bodies(2))  # on the same connection
    await target.close()
    assert len(await ids(db)) == 2


async def test_an_id_that_no_index_holds_is_refused(dsn: str, db: Database) -> None:
    target = PostgresOutbox(dsn)
    noise = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(6_000))  # nothing to compress
    body = msgspec.json.encode({"id": f"{noise}:scheduled:1", "type": "t"}).decode()
    with pytest.raises(DeliveryError, match="ProgramLimitExceeded") as failed:
        await target.deliver(body)
    await target.close()
    assert not isinstance(failed.value, TargetAwayError)


_TRIGGER = """
    CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.event -> 'data' ->> 'text' = 'bad' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER judged BEFORE INSERT ON noonbell_messages FOR EACH ROW EXECUTE FUNCTION judge()
"""
_VIEW = """
    ALTER TABLE noonbell_messages RENAME TO letters;
    CREATE VIEW noonbell_messages AS SELECT * FROM letters WHERE event -> 'data' ->> 'text' <> 'bad'
    WITH CHECK OPTION
"""
_POLICY = """
    ALTER TABLE noonbell_messages ENABLE ROW LEVEL SECURITY;
    CREATE POLICY reading ON noonbell_messages FOR SELECT USING (true);
    CREATE POLICY writing ON noonbell_messages FOR INSERT WITH CHECK (event -> 'data' ->> 'text' <> 'bad');
    GRANT INSERT ON noonbell_messages TO {role}
"""


@pytest.fixture
async def role(dsn: str, db: Database) -> AsyncIterator[str]:
    """A user who may read the table, and no more."""
    schema = dsn.rpartition("=")[2]
    name = f"writer_{schema}"
    await db.execute(f"CREATE ROLE {name}; GRANT USAGE ON SCHEMA {schema} TO {name}")
    await db.execute(f"GRANT SELECT ON noonbell_messages TO {name}")
    yield name
    await db.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.parametrize(
    ("judge", "told"),
    [(_TRIGGER, "not this one"), (_VIEW, "check option"), (_POLICY, "row-level security policy")],
    ids=["trigger", "view", "policy"],
)
async def test_a_row_that_the_database_is_against_is_refused(
    dsn: str, db: Database, role: str, judge: str, told: str
) -> None:
    await db.execute(judge.format(role=role))
    target = PostgresOutbox(f"{dsn}&role={role}" if judge is _POLICY else dsn)
    with pytest.raises(DeliveryError, match=told) as failed:
        await target.deliver_many([*bodies(2), *bodies(1, 2, text="bad")])
    assert not isinstance(failed.value, TargetAwayError)
    await target.deliver_many(bodies(2))
    await target.close()
    assert await ids(db) == [id_of(0), id_of(1)]


async def test_a_grant_that_is_missing_is_waited_for(dsn: str, db: Database, role: str) -> None:
    target = PostgresOutbox(f"{dsn}&role={role}")
    with pytest.raises(TargetAwayError, match="permission denied for table"):
        await target.deliver_many(bodies(1))
    await db.execute(f"GRANT INSERT ON noonbell_messages TO {role}")
    await target.deliver_many(bodies(1))
    await target.close()
    assert await ids(db) == [id_of(0)]


async def test_without_its_table_it_is_away_until_somebody_makes_it(dsn: str, postgres: PostgresServer) -> None:
    target = PostgresOutbox(dsn)
    with pytest.raises(TargetAwayError, match='"noonbell_messages" does not exist'):
        await target.deliver_many(bodies(1))
    with pytest.raises(TargetAwayError, match="does not exist"):
        await target.probe()
    db = await asyncpg.connect(dsn)
    await db.execute(outbox_table())
    await target.deliver_many(bodies(1))
    assert await ids(db) == [id_of(0)]
    await target.close()
    await db.close()


async def test_a_connection_that_was_cut_is_made_again(dsn: str, db: Database) -> None:
    target = PostgresOutbox(dsn)
    await target.deliver_many(bodies(1))
    assert target._db is not None
    await db.execute("SELECT pg_terminate_backend($1)", target._db.get_server_pid())
    with contextlib.suppress(TargetAwayError):  # unless it was noticed before
        await target.deliver_many(bodies(1, 1))
    await target.deliver_many(bodies(2, 1))
    await target.close()
    assert await ids(db) == [id_of(0), id_of(1), id_of(2)]


async def test_a_table_that_is_locked_is_not_waited_for_longer_than_told(dsn: str, db: Database) -> None:
    target = PostgresOutbox(dsn, timeout=0.3)
    async with db.transaction():
        await db.execute("LOCK TABLE noonbell_messages")
        with pytest.raises(TargetAwayError):
            await target.deliver_many(bodies(1))
    await patiently(lambda: target.deliver_many(bodies(1)), TargetAwayError)
    await target.close()
    assert await ids(db) == [id_of(0)]


async def test_a_cancelled_delivery_leaves_the_target_usable(dsn: str, db: Database) -> None:
    target = PostgresOutbox(dsn)
    await target.deliver_many(bodies(1))
    async with db.transaction():
        await db.execute("LOCK TABLE noonbell_messages")
        task = asyncio.ensure_future(target.deliver_many(bodies(1, 1)))
        waiting = False
        while not waiting:  # each look is a round trip
            waiting = await db.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await target.deliver_many(bodies(2, 1))
    await target.close()
    assert await ids(db) == [id_of(0), id_of(1), id_of(2)]


async def test_nobody_there_is_told_without_the_password() -> None:
    target = PostgresOutbox("postgresql://me:s3cret@127.0.0.1:1/app", timeout=5)
    with pytest.raises(TargetAwayError, match=r"PostgresOutbox\('postgresql://\*\*\*@127.0.0.1:1/app'") as failed:
        await target.deliver_many(bodies(1))
    await target.close()
    assert "s3cret" not in str(failed.value) + repr(target)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("url", {"url": "mysql://me:s3cret@db/app"}),
        ("table", {"table": "messages; DROP TABLE users"}),
        ("table", {"table": "a.b.c"}),
        ("table", {"table": "Messages"}),
        ("table", {"table": 5}),
        ("notify", {"notify": ""}),
        ("notify", {"notify": "ü" * 32}),
        ("timeout", {"timeout": -1}),
    ],
)
def test_options_are_checked(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        PostgresOutbox(**{"url": "postgresql://db/app", **options})
    assert refused.value.field == field
    assert "s3cret" not in str(refused.value)


def test_it_takes_many_at_once() -> None:
    assert isinstance(PostgresOutbox("postgresql://db/app"), BatchTarget)

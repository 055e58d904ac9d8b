"""A consumer of a PostgreSQL table that Noonbell fills; several of them may run.

    python examples/outbox_consumer.py postgresql://db/app

Each takes the oldest open message of some schedules, locked, and passes over what others have locked: no message is
done twice at once, and those of one schedule stay in order. What a message does and that it is done are one
transaction: a crash undoes both. Rows stay for a day after they are done, because a repeat by Noonbell is known by the
row that is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

TAKE = """
    SELECT number, message_id, event FROM noonbell_messages m
    WHERE done_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM noonbell_messages e
        WHERE e.schedule_id = m.schedule_id AND e.number < m.number AND e.done_at IS NULL
    )
    ORDER BY number LIMIT 100 FOR UPDATE OF m SKIP LOCKED
"""


async def work(db: Connection) -> int:
    """Do what is open and free; returns how many that were."""
    async with db.transaction():
        taken = await db.fetch(TAKE)
        for row in taken:
            event = json.loads(row["event"])
            print(f"{event['subject']} says {event['data']['text']}")
        numbers = [row["number"] for row in taken]
        await db.execute("UPDATE noonbell_messages SET done_at = now() WHERE number = ANY($1::bigint[])", numbers)
        await db.execute("DELETE FROM noonbell_messages WHERE done_at < now() - interval '1 day'")
    return len(taken)


async def main(url: str, patience: float, *, until_empty: bool) -> None:
    db = await asyncpg.connect(url)
    hint = asyncio.Event()
    await db.add_listener("noonbell_messages", lambda *_: hint.set())
    while True:
        hint.clear()
        if await work(db):
            continue
        if until_empty:
            break
        try:  # a hint may be lost, so the table is looked at anyway after a while
            await asyncio.wait_for(hint.wait(), patience)
        except TimeoutError:
            continue
    await db.close()


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("url")
    ask.add_argument("--patience", type=float, default=5.0, help="how many seconds to wait for a hint")
    ask.add_argument("--until-empty", action="store_true", help="end when there is nothing to do")
    given = ask.parse_args()
    asyncio.run(main(given.url, given.patience, until_empty=given.until_empty))

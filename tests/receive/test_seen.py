"""The memories of messages keep the same promises."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from noonbell.errors import WebhookUnavailableError
from noonbell.receive import MemorySeen, Seen, SqliteSeen
from tests.patience import PATIENCE_SECONDS

TTL = timedelta(hours=1)
BUSY = timedelta(minutes=1)


@pytest.fixture(params=["memory", "file"])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Seen]:
    if request.param == "memory":
        yield MemorySeen(ttl=TTL, busy_for=BUSY)
    else:
        file = SqliteSeen(tmp_path / "seen.db", ttl=TTL, busy_for=BUSY)
        yield file
        file.close()


async def test_new_busy_done_and_new_again_when_the_memory_ends(seen: Seen) -> None:
    assert (await seen.begin("a", 100)).state == "new"
    assert (await seen.begin("a", 101)).state == "busy"
    assert (await seen.begin("b", 101)).state == "new"
    await seen.finish("a", 110)
    assert (await seen.begin("a", 111)).state == "done"
    assert (await seen.begin("a", 110 + 3599)).state == "done"
    assert (await seen.begin("a", 110 + 3600)).state == "new"


async def test_what_was_forgotten_is_new(seen: Seen) -> None:
    claim = await seen.begin("a", 100)
    await seen.forget("a", claim.token)
    assert (await seen.begin("a", 100)).state == "new"


async def test_a_claim_that_nobody_ended_ends(seen: Seen) -> None:
    old = await seen.begin("a", 100)
    assert (await seen.begin("a", 159)).state == "busy"
    new = await seen.begin("a", 160)
    assert new.state == "new"
    # the first comes back late: it must not open the door for a third
    await seen.forget("a", old.token)
    assert (await seen.begin("a", 161)).state == "busy"
    await seen.finish("a", 162)
    await seen.forget("a", new.token)
    assert (await seen.begin("a", 163)).state == "done"


async def test_memory_is_bounded() -> None:
    seen = MemorySeen(limit=3)
    for number in range(10):
        await seen.begin(str(number), number)
        await seen.finish(str(number), number)
    assert len(seen) == 3
    assert (await seen.begin("9", 10)).state == "done"
    assert (await seen.begin("0", 10)).state == "new"
    for number in range(20, 22):
        await seen.begin(str(number), 20)
    with pytest.raises(WebhookUnavailableError, match="3 messages are being handled") as caught:
        await seen.begin("30", 20)
    assert caught.value.status == 503


async def test_old_memories_go() -> None:
    seen = MemorySeen(ttl=TTL, busy_for=BUSY)
    for number in range(10):
        await seen.begin(str(number), 100)
        await seen.finish(str(number), 100)
        await seen.begin(f"busy {number}", 100)
    await seen.begin("last", 10_000)
    assert len(seen) == 1


async def claimed_and_finished(path: Path) -> None:
    first, second = SqliteSeen(path), SqliteSeen(path)
    await first.begin("a", 100)
    assert (await second.begin("a", 100)).state == "busy"
    await first.finish("a", 100)
    assert (await second.begin("a", 100)).state == "done"
    first.close()
    second.close()


def test_a_file_remembers_over_a_restart_and_for_others(tmp_path: Path) -> None:
    path = tmp_path / "seen.db"
    asyncio.run(claimed_and_finished(path))
    program = (
        "import asyncio, sys; from noonbell.receive import SqliteSeen\n"
        "seen = SqliteSeen(sys.argv[1]); print(asyncio.run(seen.begin('a', 101)).state); seen.close()"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert told.stdout == "done\n"


async def test_a_file_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "seen.db"
    seen = SqliteSeen(path, ttl=TTL, busy_for=BUSY)
    for number in range(60):
        await seen.finish(str(number), 100)
    await seen.begin("x", 10_000)
    await seen.begin("y", 10_000)
    seen.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM noonbell_seen").fetchall() == [(2,)]
    db.close()


async def test_a_file_that_cannot_be_written_lets_nothing_through(tmp_path: Path) -> None:
    seen = SqliteSeen(tmp_path / "seen.db")
    seen._db.execute("PRAGMA query_only = 1")
    with pytest.raises(WebhookUnavailableError, match="cannot be remembered now"):
        await seen.begin("a", 100)
    seen._db.execute("PRAGMA query_only = 0")
    assert (await seen.begin("a", 100)).state == "new"
    seen.close()
    with pytest.raises(WebhookUnavailableError):
        await seen.begin("a", 100)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "seen.db"
    path.write_text("not a database, but long enough to be looked at" * 10)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteSeen(path)


@pytest.mark.parametrize("wrong", [{"ttl": timedelta(0)}, {"busy_for": timedelta(0)}])
def test_times_that_make_no_sense(wrong: dict[str, timedelta], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be above zero"):
        MemorySeen(ttl=wrong.get("ttl", TTL), busy_for=wrong.get("busy_for", BUSY))
    with pytest.raises(ValueError, match="must be above zero"):
        SqliteSeen(tmp_path / "seen.db", **wrong)
    with pytest.raises(ValueError, match="at least 1"):
        MemorySeen(limit=0)


def test_processes_that_ask_at_once_get_each_message_once(tmp_path: Path) -> None:
    path = tmp_path / "seen.db"
    SqliteSeen(path).close()
    program = (
        "import asyncio, sys; from noonbell.receive import SqliteSeen\n"
        "async def main():\n"
        "    seen = SqliteSeen(sys.argv[1])\n"
        "    sys.stdin.readline()\n"
        "    won = [str(n) for n in range(40) if (await seen.begin(str(n), 100)).state == 'new']\n"
        "    print(' '.join(won)); seen.close()\n"
        "asyncio.run(main())"
    )
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for process in asking:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [process.communicate(timeout=PATIENCE_SECONDS)[0].split() for process in asking]
    assert all(process.returncode == 0 for process in asking)
    assert sorted(int(number) for numbers in won for number in numbers) == list(range(40))


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "seen.db"
    SqliteSeen(path).close()
    assert path.stat().st_mode & 0o777 == 0o600

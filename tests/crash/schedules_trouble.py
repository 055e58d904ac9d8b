"""What can happen to a database: its disk is full, its connections are cut, its answers are lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import random
import resource
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import asyncpg

from tests.faults.cluster.proxy import Proxy
from tests.store.postgres_server import PostgresServer

_FILLER: Final = "filler"


# --- a disk -----------------------------------------------------------------------------------------------------------


class Trouble(Protocol):
    """Something that is full, until it is not."""

    async def fill(self) -> None: ...

    async def free(self) -> None: ...


class SmallDisk:
    """A file system of its own, in memory. Only root may make one."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir()
        options = f"size={megabytes}m,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "noonbell-test", folder], check=True)  # noqa: S607 - as the system has it

    async def fill(self) -> None:
        with contextlib.suppress(OSError), (self.folder / _FILLER).open("wb", buffering=0) as filler:
            block = bytes(1 << 16)
            while filler.write(block) == len(block):
                pass
            while filler.write(b"\0"):  # to the last byte
                pass

    async def free(self) -> None:
        (self.folder / _FILLER).unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.folder], check=True)  # noqa: S607 - as above


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk | None]:
    """A small disk, or None where this user may not mount one."""
    try:
        disk = SmallDisk(folder, megabytes)
    except (subprocess.CalledProcessError, FileNotFoundError):
        yield None
        return
    try:
        yield disk
    finally:
        disk.unmount()


class LimitedFiles:
    """The next best thing to a full disk for a process: no file of it may grow beyond the largest it has."""

    def __init__(self, pid: int, files: Path) -> None:
        self._pid = pid
        self._files = files

    async def fill(self) -> None:
        largest = max(found.stat().st_size for found in self._files.parent.glob(f"{self._files.name}*"))
        self._limit(largest)

    async def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class RefusedWrites:
    """The next best thing to a full disk for a server: it says that its disk is full, to whoever wants to write."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self._server = server
        self._database = database

    async def fill(self) -> None:
        await self._let("RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'")
        # one by one: the engine holds locks on all of them
        for table in ("schedule_definitions", "schedule_state", "runs_live", "runs", "outbox"):
            trigger = f"CREATE TRIGGER disk_is_full BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION disk_is_full()"
            await self._server.execute(self._database, trigger)

    async def free(self) -> None:
        await self._let("RETURN NULL")

    async def _let(self, what: str) -> None:
        head = "CREATE OR REPLACE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql"
        await self._server.execute(self._database, f"{head} AS $$ BEGIN {what}; END $$")


@asynccontextmanager
async def database_on(server: PostgresServer, disk: SmallDisk) -> AsyncIterator[str]:
    """The address of a new database whose files are on that disk."""
    place = disk.folder / "tables"
    place.mkdir()
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")  # as whom the server runs then
        os.chown(place, nobody.pw_uid, nobody.pw_gid)
    await server.execute("postgres", f"CREATE TABLESPACE small LOCATION '{place}'")
    try:
        await server.execute("postgres", "CREATE DATABASE cramped TABLESPACE small")
        yield server.dsn("cramped")
    finally:
        await server.execute("postgres", "DROP DATABASE IF EXISTS cramped WITH (FORCE)")
        await server.execute("postgres", "DROP TABLESPACE small")


# --- a server and its connections -------------------------------------------------------------------------------------


async def kill_a_backend(address: str) -> None:
    """By SIGKILL: the server ends all others, and recovers."""
    db = await asyncpg.connect(address)
    try:
        other = await db.fetchval("SELECT pid FROM pg_stat_activity WHERE application_name = 'noonbell' LIMIT 1")
        os.kill(other or await db.fetchval("SELECT pg_backend_pid()"), signal.SIGKILL)
    finally:
        db.terminate()


async def answers(address: str) -> bool:
    try:
        db = await asyncpg.connect(address)
    except (OSError, asyncpg.PostgresError):
        return False
    await db.close()
    return True


class CuttingProxy(Proxy):
    """Stands between a client and its server, and cuts connections: at once, or where the answer to a COMMIT is due."""

    def __init__(self, server_port: int, seed: int) -> None:
        super().__init__(server_port)
        self._chosen = random.Random(seed)
        self._pairs: set[_Pair] = set()
        self.lost_share = 0.0  # of the commits whose answer is lost
        self.cuts = 0
        self.lost = 0

    def cut(self) -> None:
        """All connections, now."""
        for pair in list(self._pairs):
            self.cuts += 1
            pair.cut()

    def loses(self) -> bool:
        if self._chosen.random() >= self.lost_share:
            return False
        self.lost += 1
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:  # the server is not there: neither are we
            writer.transport.abort()
            self._tasks.discard(task)
            return
        pair = _Pair(self, (reader, writer), upstream)
        self._pairs.add(pair)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(pair.ask(), pair.answer())
        finally:
            pair.cut()
            self._pairs.discard(pair)
            self._tasks.discard(task)


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Pair:
    """A client's connection and the one that belongs to it."""

    def __init__(self, proxy: CuttingProxy, client: _Ends, server: _Ends) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._doomed = False  # what the server answers next is not passed on

    async def ask(self) -> None:
        while data := await self._client[0].read(1 << 16):
            if data.endswith(b"COMMIT\0") and self._proxy.loses():
                self._doomed = True
            self._server[1].write(data)
        self.cut()

    async def answer(self) -> None:
        while (data := await self._server[0].read(1 << 16)) and not self._doomed:
            self._client[1].write(data)
        self.cut()

    def cut(self) -> None:
        for _, writer in (self._client, self._server):
            writer.transport.abort()

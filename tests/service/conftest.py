"""`noonbell serve` as a process of its own: started, asked over HTTP, stopped by a signal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from tests.patience import PATIENCE_SECONDS

# A test may pause for longer than the service keeps an idle connection, which it closes as the next request comes.
NO_KEEP_ALIVE = httpx2.Limits(max_keepalive_connections=0)


class StreamInFlight:
    """A running service."""

    def __init__(self, process: subprocess.Popen[str], told: dict[str, Any]) -> None:
        self.process = process
        self.told = told
        self.address: str = told["address"]
        self.lines: list[str] = []
        self.log = threading.Thread(target=self._read, daemon=True)
        self.log.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def client(self, key: str | None = None) -> httpx2.Client:
        key = self.told["key"] if key is None else key
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx2.Client(base_url=self.address, headers=headers, timeout=PATIENCE_SECONDS, limits=NO_KEEP_ALIVE)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; returns its exit status."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        status = self.process.wait(PATIENCE_SECONDS)
        self.log.join(PATIENCE_SECONDS)
        return status


def command(*arguments: str, module: str = "noonbell") -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
    return {**kept, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "error", **more}


@contextlib.contextmanager
def served(folder: Path, *arguments: str, **more: str) -> Iterator[StreamInFlight]:
    """A service in this folder, on a free port; it is killed at the end if nobody has stopped it."""
    started = command("serve", "--json", "--port", "0", *arguments)
    with announced(started, folder, environment(folder, **more)) as (process, line):
        yield StreamInFlight(process, json.loads(line))


@contextlib.contextmanager
def announced(
    arguments: list[str], folder: Path, environ: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has said one line, which is given beside it; it is killed at the end if nobody has stopped it."""
    process = subprocess.Popen(
        arguments, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr is not None else ""
        yield process, line
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_SECONDS)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

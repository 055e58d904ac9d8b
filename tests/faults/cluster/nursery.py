"""Starts workers by the hundred: a process that has imported everything, and forks for each.

    python -m tests.faults.cluster.nursery

It reads the options of workers from standard input, a line each, and tells on standard output what becomes of them:
`{"number": 7, "pid": 4711}`, `{"number": 7, "said": "up"}`, `{"number": 7, "status": -9}`. When its input ends, so do
its workers. `Nursery` is the other end; it may be told to take the package from another folder, where another version
is.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import selectors
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import msgspec

import noonbell.timeline as _timeline  # noqa: F401 - once, before the forks: a worker would import it for itself
from tests.faults.cluster import worker

ROOT: Final = Path(__file__).resolve().parent.parent.parent.parent


class WorkerProcess:
    """A worker as whoever started it sees it."""

    def __init__(self, options: worker.Options) -> None:
        self.number = options.number
        self.options = options
        self.pid = 0
        self.status: int | None = None
        self.begun = asyncio.Event()  # it has a process
        self.up = asyncio.Event()  # its engine runs
        self.ended = asyncio.Event()

    def signal(self, number: signal.Signals) -> None:
        if self.status is None:
            os.kill(self.pid, number)


class Nursery:
    """The process that forks, from outside."""

    def __init__(self, package_in: Path | None = None, *, numbers_from: int = 1) -> None:
        self._package_in = package_in
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._children: dict[int, WorkerProcess] = {}
        self._last = numbers_from - 1

    async def __aenter__(self) -> Self:
        more = {} if self._package_in is None else {"PYTHONPATH": str(self._package_in)}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.cluster.nursery",
            cwd=ROOT, env=os.environ | more, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._listening is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._listening

    def next_number(self) -> int:
        self._last += 1
        return self._last

    async def start(self, options: worker.Options) -> WorkerProcess:
        """A new worker; it has a process when this returns, and is not up yet."""
        assert self._process is not None
        assert self._process.stdin is not None
        child = self._children[options.number] = WorkerProcess(options)
        self._process.stdin.write(msgspec.json.encode(options) + b"\n")
        await child.begun.wait()
        return child

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            child = self._children[told["number"]]
            if "pid" in told:
                child.pid = told["pid"]
                child.begun.set()
            elif "status" in told:
                child.status = told["status"]
                child.ended.set()
                del self._children[told["number"]]
            else:
                child.up.set()


# --- inside -----------------------------------------------------------------------------------------------------------


def tell(**facts: Any) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


class Forks:
    """The children, and the loop that waits for orders and deaths."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # pid to number
        self._unread = b""

    def serve(self) -> None:
        waking, woken = os.pipe()
        os.set_blocking(waking, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(waking, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if waking in ready:
                    os.read(waking, 4096)
                    self._reap()
                if 0 in ready and not self._read_orders():
                    break
        for pid in self._numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _read_orders(self) -> bool:
        data = os.read(0, 1 << 16)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            options = msgspec.json.decode(line, type=worker.Options)
            pid = os.fork()
            if pid == 0:
                _be_a_worker(options)
            self._numbers[pid] = options.number
            tell(number=options.number, pid=pid)
        return bool(data)

    def _reap(self) -> None:
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            tell(number=self._numbers.pop(pid), status=os.waitstatus_to_exitcode(status))


def _be_a_worker(options: worker.Options) -> NoReturn:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        errors = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(errors, 2)
        worker.run(options, lambda word: tell(number=options.number, said=word))
        status = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here and nowhere else
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    Forks().serve()

"""The dependencies of periodic tasks: a clock, a logger, a way to run programs, a store.

Each has a default that fits a plain program; a test or an embedding application passes its own. `Capabilities` is a
value: the scheduler that `make` returns carries a copy that also names itself, and the façade finds it there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from noonbell.engine import SystemClock
from noonbell.ports import Clock, Ledger
from noonbell.store.memory import MemoryStore

if TYPE_CHECKING:
    from noonbell.periodic.scheduler import PeriodicScheduler


class ProgramOutput(NamedTuple):
    """The exit status of a program and its output."""

    exit_code: int
    stdout: str
    stderr: str


# The program and its arguments in, its output out; FileNotFoundError where the program does not exist.
RunProgram = Callable[..., Awaitable[ProgramOutput]]


async def run_program(program: str, *arguments: str) -> ProgramOutput:
    """Run a program to its end, without a shell and without input. If the caller gives up, so does the program."""
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        stdout, stderr = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    assert process.returncode is not None  # noqa: S101 - communicate returns when the process has ended
    return ProgramOutput(process.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Capabilities:
    """The dependencies of the scheduler and the façade.

    `store` is a Ledger or the address of one ("sqlite:///app.db"). A Ledger is opened when the first task is scheduled
    and is left open for its owner to close; one that came as an address is closed with the last task.
    """

    clock: Clock = field(default_factory=SystemClock)
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("noonbell.periodic"))
    subprocess: RunProgram = run_program
    store: str | Ledger = field(default_factory=MemoryStore)
    scheduler: PeriodicScheduler | None = field(default=None, repr=False)

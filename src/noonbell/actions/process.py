"""A program from its start to its end: its group, its time limit, what it wrote.

The program leads a session and process group of its own. When its time is over, or the waiting task is cancelled,
the whole group is asked to end (SIGTERM) and, after a grace, made to (SIGKILL). When the program itself has ended, what
is left of its group is killed: a run leaves nothing behind, unless it moved to a session of its own on purpose.

Of each output the first and the last bytes are kept, together up to a limit, while it is read: a program may write as
much as it likes. Time here is the event loop's. If this process dies, the group is killed too (`guard`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from noonbell.actions.guard import GUARD
from noonbell.actions.secrets.masking import NOTHING, Masker
from noonbell.core.attempt_detail import pack
from noonbell.errors import CommandFailedError

GRACE_SECONDS: Final = 10.0
# How long outputs may stay open after the end: another process holds them then.
_DRAIN_SECONDS: Final = 1.0
# How long a killed program may take to be gone: one that waits for a disk cannot die.
_REAP_SECONDS: Final = 10.0
_ASK_SECONDS: Final = 0.05


class Program(msgspec.Struct, frozen=True):
    """A program to start: its arguments, its input and environment, and its limits."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    stdin: str | None = None
    timeout_seconds: float = 3_600
    max_output: int = 65_536
    grace_seconds: float = GRACE_SECONDS


class Output:
    """The first and the last bytes of what was written, without secrets.

    So much more is kept at the cut as a secret may take: it is masked first, and cut then.
    """

    def __init__(self, limit: int, masker: Masker = NOTHING) -> None:
        self._first = bytearray()
        self._last = bytearray()
        self._limit = limit
        self._masker = masker
        self._reach = masker.reach
        self._most_first = limit - limit // 2 + self._reach
        self._most_last = limit // 2 + self._reach
        self._lost = 0

    def add(self, data: bytes) -> None:
        room = self._most_first - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        over = len(self._last) - self._most_last
        if over > 0:
            del self._last[:over]
            self._lost += over

    def shown(self) -> tuple[str, int]:
        """Return the kept output as text, and how many bytes were cut."""
        first, last = self._limit - self._limit // 2, self._limit // 2
        if self._lost:
            head = self._masker.stream().feed(bytes(self._first)) if self._masker else bytes(self._first)
            tail = self._masker.after(bytes(self._last), self._reach)
            cut = self._lost + 2 * self._reach
        else:
            head = tail = self._masker.data(bytes(self._first + self._last))
            cut = max(len(head) - self._limit, 0)
            if not cut:
                return _decoded(head), 0
        tail = tail[len(tail) - min(last, len(tail)) :]
        return f"{_decoded(head[:first])}\n[... {cut} bytes cut ...]\n{_decoded(tail)}", cut


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


class _Watch(asyncio.SubprocessProtocol):
    """Notes when the program has ended, and when its outputs have."""

    def __init__(self, limit: int, masker: Masker) -> None:
        loop = asyncio.get_running_loop()
        self.outputs = {1: Output(limit, masker), 2: Output(limit, masker)}
        self.ended: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()
        self._open = set(self.outputs)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.outputs[fd].add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        self._open.discard(fd)
        if not self._open and not self.drained.done():
            self.drained.set_result(None)

    def process_exited(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def run(program: Program, masker: Masker = NOTHING) -> bytes:
    """Run it to its end; returns its detail, packed, without the secrets that `masker` knows.

    Raises:
        CommandFailedError: it could not be started, took too long, or ended with anything but exit code 0.
    """
    loop = asyncio.get_running_loop()
    GUARD.prepare()
    starting = loop.create_task(_started(program, masker))
    try:
        transport, watch = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # It may be under way already, and only its start returns the means to end it.
        with contextlib.suppress(CommandFailedError):
            await _finish(*await starting)
        raise
    group = transport.get_pid()
    GUARD.watch(group)
    try:
        if program.stdin is not None:
            _feed(transport, program.stdin)
        timed_out = not await _within(watch.ended, program.timeout_seconds)
        if timed_out:
            await _end(group, watch, program.grace_seconds)
    except asyncio.CancelledError:
        await _end(group, watch, program.grace_seconds)
        raise
    finally:
        try:
            await _finish(transport, watch)
        finally:
            GUARD.forget(group)
    return _result_of(program, transport.get_returncode(), watch, timed_out=timed_out)


async def _started(program: Program, masker: Masker) -> tuple[asyncio.SubprocessTransport, _Watch]:
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            lambda: _Watch(program.max_output, masker),
            *program.argv,
            stdin=subprocess.DEVNULL if program.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=program.cwd,
            env=program.env,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = f"could not be started: {error}"
        raise CommandFailedError(program.argv[0], reason, pack({"error": reason})) from error


def _feed(transport: asyncio.SubprocessTransport, stdin: str) -> None:
    pipe = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
    pipe.write(stdin.encode())
    pipe.close()  # what is written is sent first


async def _end(group: int, watch: _Watch, grace_seconds: float) -> None:
    """Ask the group to end and wait until it has, for as long as the grace; the caller kills it then."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_seconds
    _signal(group, signal.SIGTERM)
    await _within(watch.ended, grace_seconds)
    while loop.time() < deadline and _is_there(group):  # noqa: ASYNC110 - the end of a group is not signalled
        await asyncio.sleep(_ASK_SECONDS)


async def _finish(transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
    """Kill what is left of the group, wait until the program is reaped, and let go of its outputs."""
    _signal(transport.get_pid(), signal.SIGKILL)
    try:
        await _within(watch.ended, _REAP_SECONDS)
        await _within(watch.drained, _DRAIN_SECONDS)
    finally:
        transport.close()


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _within(event: asyncio.Future[None], seconds: float) -> bool:
    done, _ = await asyncio.wait((event,), timeout=seconds)
    return bool(done)


def _signal(group: int, number: signal.Signals) -> None:
    # the group may be gone; one that has only dead members left cannot be signalled on every system
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _result_of(program: Program, code: int | None, watch: _Watch, *, timed_out: bool) -> bytes:
    killed_by = None if code is None or code >= 0 else _name(-code)
    (stdout, stdout_cut), (stderr, stderr_cut) = (watch.outputs[fd].shown() for fd in (1, 2))
    detail = {
        "exit_code": code if code is not None and code >= 0 else None,
        "signal": killed_by,
        "timed_out": timed_out,
        "stdout": stdout,
        "stderr": stderr,
        "stdout_cut": stdout_cut,
        "stderr_cut": stderr_cut,
    }
    packed = pack(detail)
    if timed_out:
        raise CommandFailedError(
            program.argv[0], f"took longer than {program.timeout_seconds:g} s and was ended", packed
        )
    if killed_by is not None:
        raise CommandFailedError(program.argv[0], f"was ended by {killed_by}", packed)
    if code != 0:
        raise CommandFailedError(program.argv[0], f"ended with exit code {code}", packed)
    return packed


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""Programs end with the process that started them, however it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noonbell.actions.guard import Guard
from tests.actions.test_command import gone, is_alive
from tests.patience import PATIENCE_SECONDS

_ENGINE = """
import asyncio, os
from noonbell.actions.guard import GUARD
from noonbell.actions.process import Program, run

script = "echo $$ > $1; sleep 3600 & echo $! >> $1; sleep 3600"

async def main():
    running = asyncio.ensure_future(run(Program(("/bin/sh", "-c", script, "sh", "{path}"), os.environ)))
    while not GUARD.watched:
        await asyncio.sleep(0.01)
    print("watched", flush=True)
    await running

asyncio.run(main())
"""


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    made.close()


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(["/bin/sleep", "3600"], start_new_session=True) for _ in range(2)]
    yield started
    for program in started:
        program.kill()
        program.wait()


async def test_an_engine_that_is_killed_takes_its_programs_along(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    path.touch()
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _ENGINE.replace("{path}", str(path)), stdout=asyncio.subprocess.PIPE
    )
    assert engine.stdout is not None
    pids: list[int] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await engine.stdout.readline() == b"watched\n"
        while len(pids) < 2:
            await asyncio.sleep(0.01)
            pids = [int(line) for line in path.read_text().split()]
    assert all(is_alive(pid) for pid in pids)
    engine.send_signal(signal.SIGKILL)
    await engine.wait()
    assert [await gone(pid) for pid in pids] == [True, True], "the leader, and what it had started"


async def test_what_has_ended_is_forgotten(guard: Guard, programs: list[subprocess.Popen[bytes]]) -> None:
    kept, forgotten = programs
    guard.watch(kept.pid)
    guard.watch(forgotten.pid)
    guard.forget(forgotten.pid)
    guard.close()
    assert kept.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert forgotten.poll() is None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_guard_that_fails_is_replaced_by_one_that_knows_all(
    guard: Guard, programs: list[subprocess.Popen[bytes]], how: signal.Signals
) -> None:
    first, second = programs
    guard.watch(first.pid)
    before = guard.pid
    assert before is not None
    os.kill(before, how)
    if how == signal.SIGKILL:
        assert await gone(before)
    while guard.pid == before:  # a pipe to one that stands still takes a while to fill
        guard.watch(second.pid)
    assert not is_alive(before)
    assert first.poll() is None, "its end was not taken for ours"
    guard.close()
    assert [first.wait(PATIENCE_SECONDS), second.wait(PATIENCE_SECONDS)] == [-signal.SIGKILL] * 2


async def test_a_forked_child_is_not_waited_for(guard: Guard, programs: list[subprocess.Popen[bytes]]) -> None:
    guard.watch(programs[0].pid)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:  # as register_at_fork does it; then it lives on
        guard.leave_to_parent()
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    guard.close()
    assert programs[0].wait(PATIENCE_SECONDS) == -signal.SIGKILL
    os.close(writing)
    os.close(reading)
    assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - it ends at once


async def test_without_a_guard_programs_run_all_the_same(
    guard: Guard,
    programs: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with caplog.at_level(logging.WARNING):
        guard.watch(programs[0].pid)
        guard.watch(programs[1].pid)
        guard.forget(programs[0].pid)
    (told,) = caplog.messages
    assert "no guard process" in told
    assert guard.pid is None

"""The hourly and the daily task, everything at once, and the external program."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from noonbell.errors import ScheduleDuplicateTaskError
from noonbell.periodic import (
    DAILY,
    HOURLY,
    Capabilities,
    ProgramOutput,
    daily_program,
    make,
    run_all_tasks,
    run_program,
    schedule_all,
)

from .conftest import FIVE, HOUR, MINUTE, Bench


async def test_the_hourly_and_the_daily_task(bench: Bench) -> None:
    cron = bench.make()
    await schedule_all(cron.capabilities, hourly=bench.task("hourly", ValueError("no")), daily=bench.task("daily"))
    assert [(task.name, task.cron) for task in await cron.get_tasks()] == [
        (HOURLY, "0 * * * *"),
        (DAILY, "0 2 * * *"),
    ]
    await bench.clock.advance(17 * HOUR)
    assert bench.times("daily") == ["02:00:00"]
    assert bench.times("hourly")[:3] == ["10:00:00", "10:05:00", "11:00:00"], "five minutes' retry"
    assert len(bench.times("hourly")) == 18


async def test_scheduling_all_twice_is_a_duplicate(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule(DAILY, "0 3 * * *", bench.task("mine"), FIVE)
    with pytest.raises(ScheduleDuplicateTaskError):
        await schedule_all(cron.capabilities, hourly=bench.task("hourly"), daily=bench.task("daily"))
    assert cron.task_names == [DAILY], "not half of it"


async def test_all_tasks_run_now_and_none_twice_at_a_time(bench: Bench) -> None:
    cron = bench.make()
    await schedule_all(cron.capabilities, hourly=bench.task("hourly", 1800.0), daily=bench.task("daily", 60.0))
    await cron.schedule("idle", "0 0 1 1 *", bench.task("idle"), FIVE)
    await bench.clock.advance(10 * MINUTE)  # the hourly task is at work
    running = asyncio.ensure_future(run_all_tasks(cron.capabilities))
    await bench.clock.advance(2 * MINUTE)
    assert await running == {"hourly": "already running", "daily": "succeeded", "idle": "succeeded"}
    assert bench.calls == [("hourly", "10:00:00"), ("daily", "10:00:30"), ("idle", "10:00:30")]


async def test_two_callers_do_not_run_a_task_side_by_side(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 2 * * *", bench.task("a", 60.0), FIVE)
    both = asyncio.gather(*(run_all_tasks(cron.capabilities) for _ in range(2)))
    await bench.clock.advance(2 * MINUTE)
    assert list(await both) == [{"a": "succeeded"}, {"a": "already running"}]


async def test_errors_are_raised_together_when_all_have_ended(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 2 * * *", bench.task("a", ValueError("first")), FIVE)
    await cron.schedule("b", "0 2 * * *", bench.task("b"), FIVE)
    await cron.schedule("c", "0 2 * * *", bench.task("c", KeyError("third")), FIVE)
    with pytest.raises(ExceptionGroup, match="2 of 3 tasks failed") as raised:
        await run_all_tasks(cron.capabilities)
    assert [type(error) for error in raised.value.exceptions] == [ValueError, KeyError]
    assert raised.value.exceptions[0].__notes__ == ['raised by the task "a"']
    assert [name for name, _ in bench.calls] == ["a", "b", "c"]


async def test_running_everything_of_nothing(bench: Bench) -> None:
    assert await run_all_tasks(bench.make().capabilities) == {}
    with pytest.raises(TypeError, match="carry no scheduler"):
        await run_all_tasks(Capabilities())


def test_capabilities_are_complete_by_themselves() -> None:
    cron = make()
    assert cron.capabilities.scheduler is cron
    assert cron.capabilities.logger.name == "noonbell.periodic"
    with pytest.raises(AttributeError):
        cron.capabilities.clock = None  # type: ignore[misc, assignment]  # that it cannot be set is the point


# --- the external program ---------------------------------------------------------------------------------------------


def script(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)  # sends nothing, and fails where there is no such process
    except ProcessLookupError:
        return False
    return True


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__["noonbell"] for record in caplog.records if "noonbell" in record.__dict__]


async def test_what_the_program_writes_is_logged_with_line_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = script(tmp_path / "daily", '#!/bin/sh\necho "one $1"\necho two\necho careful >&2\n')
    await daily_program(Capabilities(), program, "arg")()
    assert logged(caplog) == [
        {"program": program, "stream": "stdout", "lines": 2},
        {"program": program, "stream": "stderr", "lines": 1},
    ]
    assert f"{program} wrote 2 lines to stdout:\none arg\ntwo" in caplog.text
    assert f"{program} wrote 1 lines to stderr:\ncareful" in caplog.text


async def test_long_output_is_logged_by_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def talkative(program: str, *arguments: str) -> ProgramOutput:
        return ProgramOutput(0, "".join(f"line {number}\n" for number in range(10_000)), "")

    await daily_program(Capabilities(subprocess=talkative), "talkative")()
    message = caplog.records[0].getMessage()
    assert "wrote 10000 lines" in message
    assert "characters left out" in message
    assert message.endswith("line 9999")
    assert len(message) < 21_000


async def test_a_missing_program_is_a_warning_and_a_skipped_run(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cron = bench.make()
    missing = str(tmp_path / "nowhere")
    await cron.schedule("daily", "0 2 * * *", daily_program(cron.capabilities, missing), FIVE)
    assert await run_all_tasks(cron.capabilities) == {"daily": "succeeded"}
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.getMessage() == (
        f"DailyTasksUnavailable: Executable {missing!r} was not found; the daily tasks were skipped"
    )
    (task,) = await cron.get_tasks()
    assert task.pending_retry_until is None


async def test_a_script_without_its_interpreter_is_no_missing_program(tmp_path: Path) -> None:
    program = script(tmp_path / "broken", "#!/nowhere/to/be/found\n")
    with pytest.raises(FileNotFoundError):
        await daily_program(Capabilities(), program)()


async def test_a_program_that_fails_is_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = script(tmp_path / "daily", "#!/bin/sh\necho begun\necho cannot go on >&2\nexit 3\n")
    with pytest.raises(CalledProcessError, match="exit status 3") as raised:
        await daily_program(Capabilities(), program)()
    assert raised.value.stderr == "cannot go on\n"
    assert raised.value.__notes__ == ["Last output on stderr: cannot go on"]
    assert [facts["lines"] for facts in logged(caplog)] == [1, 1], "its words are logged all the same"


async def test_other_errors_rise(tmp_path: Path) -> None:
    plain = tmp_path / "daily"
    plain.write_text("#!/bin/sh\n", encoding="utf-8")  # not executable
    with pytest.raises(PermissionError):
        await daily_program(Capabilities(), str(plain))()


async def test_a_failing_program_is_retried_by_the_scheduler(bench: Bench) -> None:
    codes = [3, 0]

    async def flaky(program: str, *arguments: str) -> ProgramOutput:
        bench.calls.append((program, f"{bench.clock.at:%H:%M}"))
        return ProgramOutput(codes.pop(0), "", "")

    cron = make(Capabilities(clock=bench.clock, store=bench.store, subprocess=flaky), time_zone="UTC")
    await schedule_all(cron.capabilities, hourly=bench.task("hourly"), daily=daily_program(cron.capabilities, "backup"))
    await bench.clock.advance(17 * HOUR)
    assert bench.times("backup") == ["02:00", "02:05"]
    await cron.close()


async def test_a_program_ends_with_the_one_who_waits_for_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = script(tmp_path / "slow", f"#!/bin/sh\necho $$ > {pipe}\nexec sleep 60\n")
    waiting = asyncio.ensure_future(run_program(program))
    # opening the pipe waits until the program has begun and writes its number
    number = await asyncio.to_thread(pipe.read_text, encoding="utf-8")
    assert alive(int(number))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not alive(int(number))

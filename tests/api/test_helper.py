"""The helper process of the API: values and errors come back, and nothing that happens to it reaches the service."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest

from noonbell.api.helper import MEMORY_BYTES, HelperProcess
from noonbell.api.problems import ProblemError
from noonbell.errors import ScheduleFileInvalidError
from noonbell.planning import loads
from tests.patience import PATIENCE_SECONDS


async def test_results_come_back_one_after_the_other() -> None:
    async with HelperProcess() as helper:
        assert await helper.call(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
        assert await helper.call(os.getpid) == helper._process.pid
        assert await helper.call(os.getpid) != os.getpid()


async def test_an_error_comes_back_as_it_is_and_the_next_call_works() -> None:
    async with HelperProcess() as helper:
        with pytest.raises(ScheduleFileInvalidError) as found:
            await helper.call(loads, "name = 'a'\n[schedules.x]\n", format="toml")
        assert next((one.line, one.field) for one in found.value.problems) == (2, "schedules.x")
        assert await helper.call(len, "abc") == 3


async def test_what_it_prints_is_not_taken_for_an_answer() -> None:
    async with HelperProcess() as helper:
        await helper.call(print, "x" * 100, flush=True)
        await helper.call(os.write, 1, b"y" * 100)
        assert await helper.call(abs, -1) == 1


async def test_the_settings_of_the_service_stay_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOONBELL_STORE", "postgresql://user:password@host/db")
    async with HelperProcess() as helper:
        assert await helper.call(os.getenv, "NOONBELL_STORE") is None
        assert await helper.call(os.getenv, "PATH") == os.environ["PATH"]


async def test_its_priority_is_lower() -> None:
    async with HelperProcess() as helper:
        assert await helper.call(os.nice, 0) == min(os.nice(0) + 10, 19)


@pytest.mark.parametrize(
    "end", [(bytearray, 2 * MEMORY_BYTES), (signal.raise_signal, signal.SIGXCPU), (signal.raise_signal, signal.SIGKILL)]
)
async def test_a_helper_that_exceeds_its_limits_is_a_422(end: tuple[object, ...]) -> None:
    async with HelperProcess() as helper:
        with pytest.raises(ProblemError) as found:
            await helper.call(*end)  # type: ignore[arg-type]  # a function and its argument
    assert found.value.status == 422
    assert "split it" in str(found.value)


async def test_any_other_end_is_an_error_of_the_service() -> None:
    async with HelperProcess() as helper:
        with pytest.raises(RuntimeError, match="ended with status 5"):
            await helper.call(os._exit, 5)


async def test_it_ends_with_the_block_even_in_the_middle_of_a_call() -> None:
    async with HelperProcess() as helper:
        calling = asyncio.create_task(helper.call(time.sleep, 3600))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    assert helper._process.returncode == -9


async def test_it_ends_when_its_service_is_gone() -> None:
    async with HelperProcess() as helper:
        assert await helper.call(abs, -1) == 1
        assert helper._process.stdin is not None
        helper._process.stdin.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await helper._process.wait() == 0


async def test_it_does_without_the_web_framework() -> None:
    async with HelperProcess() as helper:
        loaded = await helper.call(eval, "sorted(__import__('sys').modules)")
    assert "noonbell" in loaded
    assert not {"fastapi", "pydantic", "aiohttp"} & {*loaded}
    assert "fastapi" in sys.modules

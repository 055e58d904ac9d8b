"""Attempts of a run on its page, over the API and in the CLI: tracebacks, and how many attempts were omitted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from noonbell.schedules import Call, Schedules
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.cli.conftest import At
from tests.web.conftest import Browser, Parsed

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
RUN_FOR = int(datetime(2026, 3, 4, 12, 1, tzinfo=UTC).timestamp()) * 1_000_000
RUN = f"sync:scheduled:{RUN_FOR}"


async def work(call: Call) -> None:
    raise ValueError(f"<script>alert({call.attempt})</script>")


@pytest.fixture
async def failing(tmp_path: Path) -> str:
    """The database of a service, with a run that has failed 40 times and waits for its next attempt."""
    clock, path = ManualClock(START), tmp_path / "service.db"
    store = SqliteStore(path, threaded=False)
    schedules = Schedules(store, clock=clock, callbacks={"work": work}, lane="elsewhere")
    await schedules.open()
    await schedules.create(
        schedule_id="sync", type="one_shot", spec="2026-03-04T12:01", action={"kind": "callback", "name": "work"},
        retry={"attempts": None, "delay_seconds": 1, "strategy": "fixed"},
    )  # fmt: skip
    await schedules.start()
    await clock.advance(timedelta(seconds=69.5))
    await schedules.stop()
    await store.close()
    return f"sqlite:///{path}"


async def test_in_the_program(failing: str, browser: Browser) -> None:
    at = At(NOONBELL_STORE=failing)
    shown = await asyncio.to_thread(at.run, "runs", "show", RUN)
    assert shown.exit_code == 0, shown.output
    before, after = shown.stdout.split("  … 15 attempts omitted\n")
    assert "  5. ✗ failed" in before
    assert "  6. ✗ failed" not in shown.stdout
    assert after.startswith("  21. ✗ failed")
    assert "in work" in shown.stdout
    assert "Traceback (most recent call last)" in shown.stdout
    data = await asyncio.to_thread(at.data, "runs", "show", RUN)
    assert (data["attempts"], data["attempts_omitted"], len(data["tried"])) == (40, 15, 25)


async def test_over_the_api(failing: str, browser: Browser) -> None:
    _, key = await browser.service.access.create_key("default", ["read"], name="reader")
    answer = await browser.client.get(f"/api/v1/runs/{RUN}", headers={"Authorization": f"Bearer {key}"})
    run = answer.json()
    assert (run["attempts"], run["attempts_omitted"]) == (40, 15)
    assert [one["attempt"] for one in run["tried"]] == [*range(1, 6), *range(21, 41)]
    last = run["tried"][-1]["detail"]["traceback"]
    assert last.startswith("Traceback (most recent call last):\n")
    assert last.endswith("ValueError: <script>alert(40)</script>")


async def test_on_the_page(failing: str, browser: Browser) -> None:
    page = await browser.read(f"/runs/{RUN}")
    parsed = Parsed(page)
    assert "15 attempts omitted" in parsed.text
    assert page.index('id="attempt-21"') < page.index("15 attempts omitted") < page.index('id="attempt-5"')
    assert len([one for one in parsed.all("pre") if one.get("class") == "traceback"]) == 25
    assert "raise ValueError(f" in parsed.text
    assert "<script>alert(" not in page
    assert "No details were recorded for this attempt" not in parsed.text

"""What can be clicked beside the main ways: many schedules changed at once, filters, slots of the audit, tasks."""

from __future__ import annotations

import asyncio
import html
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import argon2
import httpx2
import msgspec
import pytest

from noonbell.access.passwords import Passwords
from noonbell.api.app import create_app
from noonbell.bootstrap import build
from noonbell.core.records import AuditEvent
from noonbell.errors import HttpJobFailedError, describe_error
from tests.api.conftest import settings_for
from tests.patience import PATIENCE_SECONDS
from tests.web.conftest import PASSWORD, Browser, Parsed
from tests.web.test_pages import make, ran

# --- many at once -----------------------------------------------------------------------------------------------------


async def test_the_same_fields_of_many_are_changed_together(browser: Browser) -> None:
    schedules = browser.service.schedules
    for name in ("a", "b", "c"):
        await make(browser, name)
    typed = {"edit_timezone": "Europe/Kyiv", "edit_overlap": "skip", "edit_attempts": "3", "edit_delay_seconds": "1.5",
             "edit_jitter_seconds": "20"}  # fmt: skip
    page = await browser.done("/schedules/bulk", ids=["a", "b"], do="edit", **typed)
    assert "2 changed: timezone, overlap, jitter_seconds, retry" in page
    for name in ("a", "b"):
        found = await schedules.get(name)
        assert (found.timezone, found.overlap, found.jitter_seconds) == ("Europe/Kyiv", "skip", 20)
        assert (found.retry.attempts, found.retry.delay_seconds, found.catch_up_policy) == (3, 1.5, "skip")
    assert (await schedules.get("c")).timezone == "UTC"


async def test_a_change_of_many_that_cannot_be_changes_none(browser: Browser) -> None:
    for name in ("a", "b"):
        await make(browser, name)
    before = [(await browser.service.schedules.get(name)).epoch for name in ("a", "b")]
    wrong: list[tuple[dict[str, str], str]] = [
        ({}, "Fill in the fields to change"), ({"edit_timezone": "Mars/Base"}, "None of 2 was changed"),
        ({"edit_attempts": "3"}, "must have both"), ({"edit_jitter_seconds": "soon"}, "None of 2 was changed"),
    ]  # fmt: skip
    for typed, told in wrong:
        assert told in await browser.done("/schedules/bulk", ids=["a", "b"], do="edit", **typed)
    await browser.done("/schedules/bulk", ids=["a", "gone"], do="edit", edit_overlap="skip")
    assert [(await browser.service.schedules.get(name)).epoch for name in ("a", "b")] == before


# --- filters ----------------------------------------------------------------------------------------------------------


async def test_schedules_by_who_keeps_them_and_by_lane(browser: Browser) -> None:
    await make(browser, "mine")
    lane = browser.service.settings.lane
    assert 'value="mine"' in await browser.read(f"/schedules?owner=api&lane={lane}")
    assert "No matching schedules" in await browser.read("/schedules?owner=file:other")
    assert "No matching schedules" in await browser.read("/schedules?lane=elsewhere")


async def test_the_runs_of_one_schedule(browser: Browser) -> None:
    for name in ("one", "two"):
        await make(browser, name)
        await ran(browser, name)
    assert "/runs?schedule=one" in await browser.read("/schedules/one")
    page = await browser.read("/runs?schedule=one")
    assert "one%3Amanual%3A" in page
    assert "two%3Amanual%3A" not in page
    assert (await browser.get("/runs?schedule=nothing")).status_code == 404
    assert "Everything was delivered" in await browser.read("/dead-letters?schedule=one")
    assert (await browser.get("/dead-letters?schedule=nothing")).status_code == 404


# --- the audit --------------------------------------------------------------------------------------------------------


async def test_a_stretch_of_missed_slots_is_told_slot_by_slot(browser: Browser) -> None:
    await make(browser, "one", spec="* * * * *")
    minute = 60_000_000
    begin = browser.service.clock.now() // minute * minute - 500 * minute
    detail = {
        "from": begin, "to": begin + 249 * minute, "count": 250, "reason": "downtime",
        "slots_of": {"type": "cron", "spec": "* * * * *", "timezone": "UTC", "dst": "literal"},
    }  # fmt: skip
    event = AuditEvent(begin, "schedule.missed", "one", "engine", msgspec.json.encode(detail).decode(), "default")
    await browser.service.store.documents.write(audits=[event])
    page = await browser.read("/audit?event=schedule.missed")
    assert "each of the 250" in page
    (path,) = re.findall(r'href="(/audit/\d+)"', page)
    first = await browser.read(path)
    assert first.count("Why?") == 200
    assert "downtime" in first
    (on,) = re.findall(rf'href="({path}\?cursor=[^"]+)"', first)
    rest = await browser.read(html.unescape(on))
    assert rest.count("Why?") == 50
    assert 'rel="next"' not in rest


async def test_one_event_of_the_audit_and_none_of_another_team(browser: Browser) -> None:
    await make(browser, "one")
    await browser.service.access.create_team("blue")
    event = AuditEvent(browser.service.clock.now(), "secret.created", "VEILED", "somebody", '{"a": 1}', "blue")
    await browser.service.store.documents.write(audits=[event])
    whole = await browser.service.schedules.audit()
    ids = {one.subject: one.audit_id for one in whole.items}
    assert "schedule.created" in await browser.read(f"/audit/{ids['one']}")
    assert (await browser.get(f"/audit/{ids['VEILED']}")).status_code == 404
    assert (await browser.get("/audit/999999")).status_code == 404
    assert (await browser.get("/audit/nonsense")).status_code == 422


# --- masking ----------------------------------------------------------------------------------------------------------


async def test_pages_mask_the_secrets_of_ones_own_team_alone(browser: Browser) -> None:
    """A guess at a secret of another team is not confirmed by its being masked."""
    service = browser.service
    await service.access.create_team("blue")
    await service.secrets.put("default", "OURS", "ours-hidden-value")
    await service.secrets.put("blue", "THEIRS", "theirs-hidden-value")
    await service.secrets.know_all()
    assert service.secrets.mask("theirs-hidden-value") == "***", "it is known here"
    guess = "ours-hidden-value theirs-hidden-value"
    event = AuditEvent(
        service.clock.now(), "odd.event", "x", "y", msgspec.json.encode({"said": guess}).decode(), "default"
    )
    await service.store.documents.write(audits=[event])
    told = Parsed(await browser.read("/audit?event=odd.event")).text
    assert "said *** theirs-hidden-value" in told
    refused = await browser.post("/schedules/new", when="every hour", kind="http", url=f"ftp://{guess}", method="GET")
    shown = refused.text[: refused.text.index('<form class="editor"')]
    assert "ours-hidden-value" not in shown.replace("theirs-hidden-value", "")
    missing = await browser.get("/runs?schedule=" + guess.replace(" ", "%20"))
    assert "theirs-hidden-value" in Parsed(missing.text[missing.text.index('id="main"') :]).text
    assert "ours-hidden-value" not in missing.text[missing.text.index('id="main"') :]
    window: dict[str, Any] = {
        "count": "1",
        "w0_weekdays": ["1"],
        "w0_from": "22:00",
        "w0_to": "06:00",
        "w0_timezone": guess,
    }
    quiet = await browser.post("/quiet-hours/new", name="x", **window)
    (reason,) = re.findall(r'id="w0_timezone-error">([^<]*)<', quiet.text)
    assert "ours-hidden-value" not in reason.replace("theirs-hidden-value", "")


def test_an_error_that_its_own_team_has_masked_is_not_searched_for_secrets_of_others() -> None:
    def hide(text: str) -> str:
        return text.replace("guess", "***")

    assert (
        describe_error(HttpJobFailedError("dns", "guess.example", b""), hide)
        == "HttpJobFailedError: dns: guess.example"
    )
    assert describe_error(RuntimeError("guess"), hide) == "RuntimeError: ***"


# --- tasks of an application ------------------------------------------------------------------------------------------

TASKS = """
import asyncio
from datetime import timedelta
ran = []
go_on = asyncio.Event()
async def hourly():
    ran.append("hourly")
    if len(ran) > 1:
        raise RuntimeError("no disk left")
async def daily():
    ran.append("daily")
    await go_on.wait()
registrations = [
    ("hourly", "0 0 29 2 *", hourly, timedelta(minutes=5)),
    ("daily", "0 0 29 2 *", daily, timedelta(minutes=5)),
]
"""


@pytest.fixture
async def with_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Browser]:
    """A service that runs the tasks of an application, and an admin who is logged in."""
    (tmp_path / "their_tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    quick = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(Passwords, "_hasher", lambda self: quick)
    service = build(settings_for(tmp_path, tasks="their_tasks"))
    await service.start()
    transport = httpx2.ASGITransport(app=create_app(service))
    async with httpx2.AsyncClient(base_url="http://service", transport=transport, timeout=PATIENCE_SECONDS) as client:
        made = Browser(service, client)
        await service.access.create_admin("ann", PASSWORD)
        await made.log_in("ann")
        yield made
    sys.modules.pop("their_tasks").go_on.set()
    await service.stop(10)


async def test_a_task_of_the_application_is_run_by_a_click(
    with_tasks: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    from noonbell.web.pages import schedule

    page = await with_tasks.read("/schedules")
    paths = re.findall(r'href="(/schedules/[^"/]+)">(hourly|daily)<', page)
    (hourly,) = [path for path, name in paths if name == "hourly"]
    (daily,) = [path for path, name in paths if name == "daily"]
    assert f'action="{hourly}/run"' in await with_tasks.read(hourly)
    assert "The task has run and succeeded" in await with_tasks.done(f"{hourly}/run")
    failed = await with_tasks.done(f"{hourly}/run")
    assert "The task failed with RuntimeError" in failed
    assert "no disk left" not in failed, "what it says may be meant for other eyes"
    monkeypatch.setattr(schedule, "TASK_PATIENCE_SECONDS", 0.05)
    assert "The task is running" in await with_tasks.done(f"{daily}/run")
    monkeypatch.setattr(schedule, "TASK_PATIENCE_SECONDS", 20.0)
    assert "A run of the task is in progress" in await with_tasks.done(f"{daily}/run")
    sys.modules["their_tasks"].go_on.set()
    await asyncio.gather(*schedule.under_way)
    assert (await with_tasks.post(f"{daily}/pause")).status_code == 409

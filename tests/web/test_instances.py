"""The page of engines: those that share a lane are shown with what they have in hand."""

from __future__ import annotations

import pytest

from noonbell.bootstrap import Service
from noonbell.core.presence import EngineRecord, engine_name
from tests.web.conftest import Browser


async def test_engines_that_share_a_lane_are_listed_with_their_load(browser: Browser) -> None:
    store, now = browser.service.store, browser.service.clock.now()
    hold = await store.hold(engine_name("far-1"), "far away")
    load = {"running": 1234, "started_per_minute": 56, "late_p99_seconds": 0.25}
    await store.engines.join(
        EngineRecord("far-1", "default", "far-host", 7, "0.0", "2020a", now, now, "stopping", load)
    )
    page = await browser.read("/instances")
    assert "this process" in page
    assert "far-host, process 7" in page
    assert "1,234" in page
    assert "stopping" in page
    assert "Engines of different versions share the work: 0.0, " in page
    assert "different time zone data" in page
    hold.release()
    page = await browser.read("/instances")
    assert "far-host" not in page, "one that is dead is not listed"
    assert "different versions" not in page


async def test_the_overview_shows_that_no_engine_polls(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No engine polls" not in await browser.read("/")
    monkeypatch.setattr(Service, "poll_age", property(lambda _: 75.0))
    page = await browser.read("/")
    assert "No engine polls in the lane default." in page
    assert "The last poll completed 1 min 15 s ago" in page

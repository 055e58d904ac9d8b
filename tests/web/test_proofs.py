"""Verify and signing keys: what the pages show, where they stop, and what they keep to themselves."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

from noonbell.web.pages import verify
from tests.web.conftest import ACTION, Browser, Parsed
from tests.web.test_pages import make, ran

# --- verify -----------------------------------------------------------------------------------------------------------


async def test_nothing_is_looked_at_until_one_asks(browser: Browser) -> None:
    await make(browser, "one")
    assert "Nothing has been looked at yet" in await browser.read("/verify")
    page = Parsed(await browser.read("/verify?go=yes")).text
    assert "Everything is accounted for" in page
    assert "Schedules 1" in page


async def test_what_is_wrong_is_told(browser: Browser, tmp_path: Path) -> None:
    await make(browser, "one", type="interval", spec="3600")
    await ran(browser, "one")
    page = Parsed(await browser.read("/schedules/one/verify")).text
    assert "Everything is accounted for" in page
    damage(tmp_path / "service.db")
    page = Parsed(await browser.read("/schedules/one/verify")).text
    assert "What is wrong" in page
    assert 'href="/schedules/one"' in await browser.read("/verify?go=yes")
    assert "What is wrong" in await browser.read("/verify?go=yes")


def damage(file: Path) -> None:
    """Account for occurrences that never were, as nothing of ours would."""
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "INSERT INTO spans SELECT sid, created_at - 10, created_at - 5, 2, 'missed', 'downtime', epoch "
            "FROM schedule_definitions JOIN schedule_state USING (sid)"
        )


async def test_a_click_has_a_bound_and_goes_on_from_there(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "SCHEDULES", 50)
    many = [
        {"schedule_id": f"n{number:03}", "name": f"n{number:03}", "type": "interval", "spec": "3600", "action": ACTION}
        for number in range(60)
    ]
    await browser.service.schedules.create_many(many)  # type: ignore[arg-type]  # checked there
    page = await browser.read("/verify?go=yes")
    assert "There are more schedules" in page
    (on,) = re.findall(r'href="(/verify\?[^"]*cursor=\d+)"', page)
    rest = Parsed(await browser.read(on.replace("&amp;", "&"))).text
    assert "Schedules 10" in rest
    assert "These were the last of the team" in rest


async def test_days_that_cannot_be_looked_at(browser: Browser) -> None:
    wrong = {
        "from=yesterday": "must be a day", "from=2026-01-01&to=2026-06-01": "31 days",
        "from=2026-05-02&to=2026-05-01": "must not lie after", "from=2999-01-01": "must not lie after",
    }  # fmt: skip
    for asked, reason in wrong.items():
        answer = await browser.get(f"/verify?go=yes&{asked}")
        assert answer.status_code == 422, asked
        assert reason in answer.text
        assert 'id="from-error"' in answer.text


async def test_only_ones_own_team_is_looked_at(browser: Browser) -> None:
    await browser.service.access.create_team("blue")
    theirs = browser.service.schedules.acting("x", "blue")
    await theirs.create(schedule_id="veiled", name="veiled", type="interval", spec="60", action=ACTION)
    assert (await browser.get("/schedules/veiled/verify")).status_code == 404
    assert (await browser.get("/schedules/veiled/signing-keys")).status_code == 404
    for verb in ("show", "rotate", "retire"):
        assert (await browser.post(f"/schedules/veiled/signing-keys/{verb}")).status_code == 404
    assert "Nothing to check" in await browser.read("/verify?go=yes")


# --- signing keys -----------------------------------------------------------------------------------------------------


def keys_in(page: str) -> list[str]:
    return re.findall(r"whsec_[A-Za-z0-9+/=]+", page)


async def test_a_key_is_in_the_answer_that_was_asked_for_and_nowhere_else(browser: Browser) -> None:
    await make(browser, "one")
    path = "/schedules/one/signing-keys"
    assert f'href="{path}"' in await browser.read("/schedules/one")
    assert "No key yet" in await browser.read(path)
    assert "No key yet" in await browser.read(path), "looking makes none"
    shown = await browser.post(f"{path}/show")
    (first,) = keys_in(shown.text)
    assert shown.headers["cache-control"] == "no-store"
    assert [one.key for one in await browser.service.secrets.signing_keys("one", "default")] == [first]
    page = await browser.read(path)
    assert keys_in(page) == []
    assert "it is replaced" in page


async def test_a_key_is_replaced_and_the_old_one_signs_on_for_a_while(browser: Browser) -> None:
    await make(browser, "one")
    path = "/schedules/one/signing-keys"
    (first,) = keys_in((await browser.post(f"{path}/show")).text)
    answer = await browser.post(f"{path}/rotate", overlap="72")
    (second,) = keys_in(answer.text)
    assert second != first
    assert [one.key for one in await browser.service.secrets.signing_keys("one", "default")] == [second, first]
    assert Parsed(answer.text).text.count("it is replaced") == 1
    (third,) = keys_in((await browser.post(f"{path}/rotate", overlap="0")).text)
    assert [one.key for one in await browser.service.secrets.signing_keys("one", "default")] == [third]
    assert (await browser.post(f"{path}/rotate", overlap="5000")).status_code == 422
    assert "are retired" in await browser.done(f"{path}/retire")
    assert "No key yet" in await browser.read(path)
    assert "no keys to retire" in await browser.done(f"{path}/retire")

"""Credentials that are written into an action: no page shows them, forms keep them, and they can become secrets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noonbell.actions.http import credentials
from noonbell.actions.http.credentials import KEPT
from noonbell.errors import ScheduleInvalidError
from tests.patience import PATIENCE_SECONDS
from tests.web.conftest import Browser, Parsed
from tests.web.test_form import inputs

URL = "https://example.org/hook"
PLAIN: list[dict[str, Any]] = [
    {"headers": {"Authorization": "Bearer tok-en-in-plain"}},
    {"headers": {"x-api-key": "tok-en-in-plain", "Accept": "text/plain"}},
    {"headers": {"Cookie": "session=tok-en-in-plain"}},
    {"auth": {"bearer": "tok-en-in-plain"}},
    {"auth": {"basic": {"user": "ann", "password": "tok-en-in-plain"}}},
    {"headers": {"X-Auth-Token": "tok-en-in-plain"}},
    {"url": "https://tok-en-in-plain@example.org/hook"},
    {"url": "https://ann:tok-en-in-plain@example.org/hook?a=1"},
    {"url": f"{URL}?page=1&api_key=tok-en-in-plain"},
    {"query": {"access_token": "tok-en-in-plain", "page": 1}},
]


async def make(browser: Browser, more: dict[str, Any], schedule_id: str = "one") -> dict[str, Any]:
    action = {"kind": "http", "method": "GET", "url": URL, **more}
    made = await browser.service.schedules.create(
        schedule_id=schedule_id, name=schedule_id, type="cron", spec="0 9 * * *", action=action
    )
    return dict(made.action)


async def form_of(browser: Browser, path: str) -> dict[str, Any]:
    typed = inputs(await browser.read(path))
    del typed["csrf"]
    return typed


async def page_of_ended(browser: Browser, run_id: str) -> str:
    """The page of a run, once egress has refused its request."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            page = await browser.read(f"/runs/{run_id}")
            if "refused-by-egress" in page:
                return page
            await asyncio.sleep(0.02)


async def test_no_page_shows_it_and_a_save_keeps_it(browser: Browser) -> None:
    for number, more in enumerate(PLAIN):
        name = f"s{number}"
        action = await make(browser, more, name)
        for path in ("/schedules", f"/schedules/{name}", f"/schedules/{name}/edit", f"/schedules/new?like={name}"):
            assert "tok-en-in-plain" not in await browser.read(path), (path, more)
        typed = await form_of(browser, f"/schedules/{name}/edit")
        assert KEPT in "".join(typed.values())
        await browser.done(f"/schedules/{name}/edit", **(typed | {"name": f"renamed {number}"}))
        after = await browser.service.schedules.get(name)
        assert (after.name, after.action) == (f"renamed {number}", action)


async def test_the_page_of_a_run_does_not_show_it(browser: Browser) -> None:
    for number, more in enumerate(PLAIN):
        name = f"s{number}"
        url = more.get("url", URL).replace("example.org", "127.0.0.1")  # which egress refuses
        await make(browser, {**more, "url": url}, name)
        run_id = await browser.service.schedules.trigger(name, retry=False)
        page = await page_of_ended(browser, run_id)
        assert "127.0.0.1/hook" in page
        assert "tok-en-in-plain" not in page, more


async def test_a_parameter_of_the_url_becomes_a_secret(browser: Browser) -> None:
    await make(browser, {"url": f"{URL}?api_key=tok%2Den-in-plain&page=1"})
    await browser.done("/schedules/one/move-credential", place="url:?api_key", named="API_KEY")
    after = await browser.service.schedules.get("one")
    assert after.action["url"] == f"{URL}?api_key=${{secrets.API_KEY}}&page=1"
    assert await browser.service.secrets.resolve("default", ["API_KEY"]) == {"API_KEY": "tok-en-in-plain"}


async def test_a_copy_takes_it_along(browser: Browser) -> None:
    for number, more in enumerate(PLAIN):
        action = await make(browser, more, f"s{number}")
        typed = await form_of(browser, f"/schedules/new?like=s{number}")
        answer = await browser.post("/schedules/new", **(typed | {"schedule_id": f"copy{number}"}))
        assert answer.status_code == 303, answer.text
        assert (await browser.service.schedules.get(f"copy{number}")).action == action


async def test_it_does_not_follow_an_address_that_somebody_changes(browser: Browser) -> None:
    action = await make(browser, {"headers": {"Authorization": "Bearer tok-en-in-plain"}})
    typed = await form_of(browser, "/schedules/one/edit")
    elsewhere = typed | {"url": "https://evil.example/hook"}
    answer = await browser.post("/schedules/one/edit", **elsewhere)
    assert answer.status_code == 422
    assert "does not go to another host" in answer.text
    tried = await browser.post("/schedules/test", script=True, **elsewhere)
    assert "does not go to another host" in tried.text
    assert (await browser.service.schedules.get("one")).action == action
    typed["headers"] = "Authorization: Bearer another-token"
    await browser.done("/schedules/one/edit", **(typed | {"url": "https://evil.example/hook"}))
    changed = (await browser.service.schedules.get("one")).action
    assert changed["headers"] == {"Authorization": "Bearer another-token"}


async def test_dots_that_stand_for_nothing_are_refused(browser: Browser) -> None:
    typed: dict[str, Any] = {
        "when": "every hour",
        "kind": "http",
        "method": "GET",
        "url": URL,
        "headers": f"Cookie: {KEPT}",
    }
    answer = await browser.post("/schedules/new", **typed)
    assert answer.status_code == 422
    assert 'id="headers-error"' in answer.text
    assert (await browser.service.schedules.list()).items == []


async def test_it_becomes_a_secret(browser: Browser) -> None:
    await make(browser, {"headers": {"Authorization": "Bearer tok-en-in-plain"}})
    page = await browser.read("/schedules/one/edit")
    assert "Move to a secret" in page
    assert 'name="named" value="API_TOKEN"' in page
    page = await browser.done("/schedules/one/move-credential", place="header:Authorization", named="API_TOKEN")
    assert "is the secret API_TOKEN now" in page
    assert "Move to a secret" not in page
    assert "Bearer ${secrets.API_TOKEN}" in page
    after = await browser.service.schedules.get("one")
    assert after.action["headers"] == {"Authorization": "Bearer ${secrets.API_TOKEN}"}
    assert await browser.service.secrets.resolve("default", ["API_TOKEN"]) == {"API_TOKEN": "tok-en-in-plain"}
    again = await browser.done("/schedules/one/move-credential", place="header:Authorization", named="OTHER")
    assert "nothing was changed" in again


async def test_a_secret_that_is_there_is_not_overwritten_and_a_bad_name_changes_nothing(browser: Browser) -> None:
    action = await make(browser, {"auth": {"bearer": "tok-en-in-plain"}})
    await browser.service.secrets.put("default", "TAKEN", "another value")
    assert "choose another name" in await browser.done("/schedules/one/move-credential", place="bearer", named="TAKEN")
    page = await browser.done("/schedules/one/move-credential", place="bearer", named="no name")
    assert "Bearer token was not moved" in Parsed(page).text
    assert (await browser.service.schedules.get("one")).action == action
    assert await browser.service.secrets.resolve("default", ["TAKEN"]) == {"TAKEN": "another value"}


@pytest.mark.parametrize(
    ("text", "plain"),
    [("${secrets.A}", False), ("Bearer ${secrets.A}", False), ("${secrets.A}${secrets.B}", False), ("abc", True),
     ("Bearer abc", True), ("${secrets.A}abc${secrets.B}", True), ("", False)],
)  # fmt: skip
def test_what_only_names_secrets_is_none(text: str, plain: bool) -> None:
    assert credentials.is_plain(text) is plain


def test_a_plan_does_not_show_them_either() -> None:
    assert credentials.shown_value("action.headers.Authorization", "Bearer abc") == "***"
    assert credentials.shown_value("action.headers.Accept", "text/plain") == "text/plain"
    assert credentials.shown_value("action.auth.basic", {"user": "u", "password": "p"}) == {
        "user": "u",
        "password": "***",
    }
    assert credentials.shown_value("action.auth.bearer", "${secrets.A}") == "${secrets.A}"
    assert credentials.shown_value("action", {"auth": {"bearer": "b"}}) == {"auth": {"bearer": "***"}}


def test_nothing_is_kept_for_what_is_new() -> None:
    with pytest.raises(ScheduleInvalidError, match="no value is stored"):
        credentials.unveiled({"url": URL, "auth": {"bearer": KEPT}}, None)

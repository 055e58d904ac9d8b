"""People and teams: added with a link that works once, given more or fewer rights, removed; each in his own team."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from tests.web.conftest import ACTION, PASSWORD, Browser, token


async def link_of(answer: httpx2.Response) -> str:
    """The path of the link on the page."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    (path,) = re.findall(r"/welcome/[a-z0-9.-]+/[A-Za-z0-9_-]{32}", answer.text)
    return str(path)


async def choose(browser: Browser, path: str, password: str = PASSWORD, again: str | None = None) -> httpx2.Response:
    """Open a link in a browser of one's own, and choose a password."""
    client = httpx2.AsyncClient(base_url="http://service", transport=browser.client._transport)
    page = await client.get(path)
    if page.status_code != 200:
        return page
    form = {"csrf": token(page.text), "password": password, "again": password if again is None else again}
    return await client.post(path, data=form)


async def as_(browser: Browser, name: str) -> Browser:
    client = httpx2.AsyncClient(base_url="http://service", transport=browser.client._transport)
    other = Browser(browser.service, client)
    await other.log_in(name)
    return other


async def test_somebody_is_added_by_a_link_that_works_once(browser: Browser) -> None:
    path = await link_of(await browser.post("/team/people", name="Ben", scope="read"))
    assert path.split("/")[2] == "ben"
    assert path not in await browser.read("/team")
    assert (await choose(browser, path, again="differs from it")).status_code == 422
    assert (await choose(browser, path, "short")).status_code == 422
    chosen = await choose(browser, path)
    assert (chosen.status_code, chosen.headers["location"]) == (303, "/")
    assert (await choose(browser, path)).status_code == 404
    assert (await browser.get("/welcome/ann/x")).status_code == 404
    ben = await as_(browser, "ben")
    assert (await ben.get("/schedules/new")).status_code == 403
    menu = await ben.read("/")
    assert [path for path in ("/plan", "/keys", "/settings") if f'href="{path}"' in menu] == [], "nowhere he cannot go"
    assert "ben" in await ben.read("/team")
    new = "another horse battery"
    answer = await ben.post("/team/password", current=PASSWORD, new=new, again=new)
    assert answer.headers["location"] == "/login", "everybody may change his own"
    await browser.service.access.set_password("ben", PASSWORD)
    ben = await as_(browser, "ben")
    assert (await ben.post("/team/people", name="eve", scope="read")).status_code == 403
    told = (await browser.service.schedules.audit(subject="ben")).items
    assert [(one.event, one.actor) for one in told][:3] == [
        ("user.created", "user:ann"), ("user.link_made", "user:ann"), ("user.password_changed", "user:ben"),
    ]  # fmt: skip


async def test_only_the_latest_link_works_and_it_ends_the_sessions(browser: Browser) -> None:
    first = await link_of(await browser.post("/team/people", name="ben", scope="write"))
    await choose(browser, first)
    ben = await as_(browser, "ben")
    old = await link_of(await browser.post("/team/people/ben/link"))
    new = await link_of(await browser.post("/team/people/ben/link"))
    assert (await choose(browser, old)).status_code == 404
    assert (await ben.get("/")).status_code == 200, "until it is used all stays as it was"
    assert (await choose(browser, new, "another horse battery")).status_code == 303
    assert (await ben.get("/")).status_code == 303
    assert (await browser.service.access.verify_password("ben", "another horse battery", "127.0.0.1")).name == "ben"


async def test_what_somebody_may_do_is_changed_at_once_and_never_ones_own(browser: Browser) -> None:
    await choose(browser, await link_of(await browser.post("/team/people", name="ben", scope="read")))
    ben = await as_(browser, "ben")
    assert (await ben.get("/schedules/new")).status_code == 403
    assert "ben may look and change" in await browser.done("/team/people/ben/scope", scope="write")
    assert (await ben.get("/schedules/new")).status_code == 200
    assert (await browser.post("/team/people/ben/scope", scope="everything")).status_code == 422
    for verb in ("scope", "remove"):
        assert (await browser.post(f"/team/people/ann/{verb}", scope="read")).status_code == 409
    assert "is removed" in await browser.done("/team/people/ben/remove")
    assert (await ben.get("/")).status_code == 303
    assert (await browser.post("/team/people/ben/remove")).status_code == 404


async def test_another_team_has_people_of_its_own(browser: Browser) -> None:
    await browser.done("/team/teams", team="blue", title="Blue")
    await choose(browser, await link_of(await browser.post("/team/people", name="bob", scope="admin", of="blue")))
    await browser.service.schedules.create(schedule_id="mine", type="interval", spec="60", action=ACTION)
    bob = await as_(browser, "bob")
    assert "mine" not in await bob.read("/schedules")
    page = await bob.read("/team")
    assert "Team blue" in page
    assert "ann" not in re.sub(r"<[^>]+>", " ", page).split()
    for verb in ("link", "scope", "remove"):
        assert (await bob.post(f"/team/people/ann/{verb}", scope="read")).status_code == 404
    assert (await bob.post("/team/people", name="eve", scope="read", of="default")).status_code == 403
    assert (await bob.post("/team/teams", team="green")).status_code == 403
    await choose(browser, await link_of(await bob.post("/team/people", name="sue", scope="write")))
    assert (await browser.service.access.get_user("sue")).team == "blue"
    assert "sue" in await browser.read("/team"), "who looks after teams sees the people of all"
    assert "is removed" in await browser.done("/team/people/sue/remove")


async def test_somebody_who_cannot_be_is_refused_at_the_field(browser: Browser) -> None:
    wrong: list[dict[str, Any]] = [
        {"name": "no name", "scope": "read"}, {"name": "x", "scope": "all"},
        {"name": "x", "scope": "read", "of": "nowhere"},
    ]  # fmt: skip
    for typed in wrong:
        answer = await browser.post("/team/people", **typed)
        assert answer.status_code == 422, typed
        assert "field-error" in answer.text
        assert "/welcome/" not in answer.text


async def test_nobody_gets_in_before_a_password_was_chosen(browser: Browser) -> None:
    await browser.post("/team/people", name="ben", scope="admin")
    with pytest.raises(Exception, match="is wrong"):
        await browser.service.access.verify_password("ben", "", "127.0.0.1")


async def test_a_list_of_people_has_pages(browser: Browser) -> None:
    for number in range(105):
        await browser.service.access.create_user(f"u{number:03}", "default", "read")
    first = await browser.read("/team")
    (on,) = re.findall(r'href="(/team\?after=[^"]+)"', first)
    assert "u104" not in first
    assert "u104" in await browser.read(on)

"""The pages for the first admin, login and logout."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import argon2
import httpx2
import pytest

from noonbell.access.logins import FREE
from noonbell.access.passwords import Passwords
from noonbell.api.app import PUBLIC, create_app
from noonbell.ports import AuditFilter
from noonbell.web.forms import FORM_COOKIE, SESSION_COOKIE
from tests.api.conftest import Client, serving, settings_for

GOOD = "correct horse battery"
EVIL = "<script>alert(1)</script>\"'"


@pytest.fixture(autouse=True)
def quick_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(Passwords, "_hasher", lambda self: quick)


def csrf(page: httpx2.Response) -> str:
    found: list[str] = re.findall(r'name="csrf" value="([^"]+)"', page.text)
    return found[0]


async def logged_in(client: Client) -> httpx2.AsyncClient:
    browser = client.anonymous
    await client.service.access.create_admin("ann", GOOD)
    form = {"csrf": csrf(await browser.get("/login")), "name": "ann", "password": GOOD}
    assert (await browser.post("/login", data=form)).status_code == 303
    return browser


async def test_the_first_admin(inside: Client) -> None:
    browser = inside.anonymous
    assert "No admin exists yet" in (await browser.get("/login")).text
    token = await inside.service.access.new_first_admin_token()
    page = await browser.get(f"/setup/{token}")
    assert page.status_code == 200
    form = {"csrf": csrf(page), "name": "ann", "password": GOOD, "again": GOOD}
    assert "differ" in (await browser.post(f"/setup/{token}", data={**form, "again": "x"})).text
    short = await browser.post(f"/setup/{token}", data={**form, "password": "short", "again": "short"})
    assert short.status_code == 422
    assert "10 to 1000 characters" in short.text
    made = await browser.post(f"/setup/{token}", data=form)
    assert (made.status_code, made.headers["location"]) == (303, "/")
    assert "logged in as <strong>ann</strong>" in (await browser.get("/")).text
    browser.cookies.clear()
    used = await browser.get(f"/setup/{token}")
    assert used.status_code == 404
    page = await browser.get("/login")
    again = await browser.post(f"/setup/{token}", data={**form, "csrf": csrf(page), "name": "eve"})
    assert again.status_code == 404
    assert [user.name for user in await inside.service.access.list_users()] == ["ann"]


async def test_login_and_logout(inside: Client) -> None:
    browser = await logged_in(inside)
    home = await browser.get("/")
    assert "ann" in home.text
    assert (await browser.get("/login")).status_code == 303
    token = browser.cookies[SESSION_COOKIE]
    out = await browser.post("/logout", data={"csrf": csrf(home)})
    assert out.status_code == 303
    assert SESSION_COOKIE not in browser.cookies
    stolen = await browser.get("/", headers={"Cookie": f"{SESSION_COOKIE}={token}"})
    assert stolen.status_code == 303, "the session has ended, whoever kept its cookie"


async def test_a_cookie_that_scripts_and_other_sites_do_not_get(inside: Client) -> None:
    await inside.service.access.create_admin("ann", GOOD)
    page = await inside.anonymous.get("/login")
    assert "HttpOnly" in page.headers["set-cookie"]
    form = {"csrf": csrf(page), "name": "ann", "password": GOOD}
    answer = await inside.anonymous.post("/login", data=form)
    cookies = answer.headers.get_list("set-cookie")
    (session,) = [one for one in cookies if one.startswith(SESSION_COOKIE)]
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(session.split("; "))
    assert "Secure" not in session, "by plain http a Secure cookie would not come back"
    assert [one for one in cookies if one.startswith(FORM_COOKIE) and "Max-Age=0" in one]


async def test_a_new_login_gets_a_new_session(inside: Client) -> None:
    browser = await logged_in(inside)
    first = browser.cookies[SESSION_COOKIE]
    browser.cookies.delete(SESSION_COOKIE)
    form = {"csrf": csrf(await browser.get("/login")), "name": "ann", "password": GOOD}
    cookies = {"Cookie": f"{SESSION_COOKIE}={first}; {FORM_COOKIE}={browser.cookies[FORM_COOKIE]}"}
    browser.cookies.clear()
    assert (await browser.post("/login", data=form, headers=cookies)).status_code == 303
    assert browser.cookies[SESSION_COOKIE] != first
    assert await inside.service.access.session(first) is None, "the one before is ended"


async def test_secure_cookies_where_the_service_is_reached_by_https(inside: Client) -> None:
    import msgspec

    service = inside.service
    service.settings = msgspec.structs.replace(service.settings, public_url="https://bell.example.org")
    await service.access.create_admin("ann", GOOD)
    transport = httpx2.ASGITransport(app=create_app(service))
    async with httpx2.AsyncClient(base_url="https://bell.example.org", transport=transport) as browser:
        assert "Secure" in (await browser.get("/login")).headers["set-cookie"]


@pytest.mark.parametrize("spoil", ["no token", "another token", "no cookie", "another site", "another origin"])
async def test_forms_from_elsewhere_are_refused(inside: Client, spoil: str) -> None:
    await inside.service.access.create_admin("ann", GOOD)
    browser = inside.anonymous
    form = {"csrf": csrf(await browser.get("/login")), "name": "ann", "password": GOOD}
    headers = {}
    if spoil == "no token":
        del form["csrf"]
    elif spoil == "another token":
        form["csrf"] = "0" * 64
    elif spoil == "no cookie":
        browser.cookies.clear()
    elif spoil == "another site":
        headers = {"Sec-Fetch-Site": "cross-site"}
    else:
        headers = {"Origin": "https://evil.example.org"}
    answer = await browser.post("/login", data=form, headers=headers)
    assert answer.status_code == 403
    assert SESSION_COOKIE not in browser.cookies


async def test_a_logout_from_elsewhere_is_refused(inside: Client) -> None:
    browser = await logged_in(inside)
    assert (await browser.post("/logout", data={"csrf": "x"})).status_code == 403
    assert (await browser.get("/logout")).status_code == 405
    assert (await browser.get("/")).status_code == 200


async def test_wrong_passwords_and_then_a_pause(inside: Client) -> None:
    await inside.service.access.create_admin("ann", GOOD)
    browser = inside.anonymous
    form = {"csrf": csrf(await browser.get("/login")), "name": "ann", "password": "wrong"}
    for _ in range(FREE["account"]):
        answer = await browser.post("/login", data=form)
        assert answer.status_code == 401
        assert "The name or the password is wrong" in answer.text
        assert "wrong" not in re.findall(r'value="([^"]*)"', answer.text)
    paused = await browser.post("/login", data={**form, "password": GOOD})
    assert paused.status_code == 429
    assert int(paused.headers["retry-after"]) >= 1
    assert SESSION_COOKIE not in browser.cookies


async def test_what_people_type_is_escaped(inside: Client) -> None:
    await inside.service.access.create_admin("ann", GOOD)
    browser = inside.anonymous
    form = {"csrf": csrf(await browser.get("/login")), "name": EVIL, "password": EVIL}
    answer = await browser.post("/login", data=form)
    assert answer.status_code == 401
    assert "<script>" not in answer.text
    assert "alert(1)</" not in answer.text
    assert "&lt;script&gt;" in answer.text


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"name=ann", "text/plain", 415),
        (b"{}", "application/json", 415),
        (b"name=%ff", "application/x-www-form-urlencoded", 400),
        (b"\xff", "application/x-www-form-urlencoded", 400),
        (b"a=1&" * 60, "application/x-www-form-urlencoded", 400),
        (b"a=" + b"x" * 30_000, "application/x-www-form-urlencoded", 413),
    ],
)
async def test_what_is_no_form(inside: Client, content: bytes, kind: str, status: int) -> None:
    answer = await inside.anonymous.post("/login", content=content, headers={"Content-Type": kind})
    assert answer.status_code == status


async def test_no_key_is_a_session_and_no_session_is_a_key(inside: Client) -> None:
    browser = await logged_in(inside)
    assert (await browser.get("/api/v1/caller")).status_code == 401
    token = browser.cookies[SESSION_COOKIE]
    assert (await browser.get("/api/v1/caller", headers={"Authorization": f"Bearer {token}"})).status_code == 401
    key = inside.keys["default/admin"]
    browser.cookies.clear()
    assert (await browser.get("/", headers={"Cookie": f"{SESSION_COOKIE}={key}"})).status_code == 303


async def test_pages_load_nothing_from_elsewhere(inside: Client) -> None:
    await inside.service.access.create_admin("ann", GOOD)
    page = (await inside.anonymous.get("/login")).text
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert [address.rpartition("/")[2] for address in loaded] == ["theme.js", "bell.svg", "app.css"]
    assert all(address.startswith("/static/") for address in loaded)
    assert "style=" not in page
    style = await inside.anonymous.get(loaded[-1])
    assert style.headers["content-type"].startswith("text/css")
    assert "immutable" in style.headers["cache-control"]
    folder = loaded[-1].rpartition("/")[0]
    for name in ("none.css", "..%2flogin.py", "%2e%2e%2flogin.py", "theme.js"):
        assert (await inside.anonymous.get(f"{folder}/{name}")).status_code == 404


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The log lines of requests, with all that programs read of them; the client of the tests has lines of its own."""
    return [vars(record) for record in caplog.records if record.name == "noonbell.api"]


async def test_the_tokens_of_links_are_not_in_the_log(inside: Client, caplog: pytest.LogCaptureFixture) -> None:
    access = inside.service.access
    first = await access.new_first_admin_token()
    assert first is not None
    with caplog.at_level("DEBUG"):
        await inside.anonymous.get(f"/setup/{first}")
        await access.create_admin("ann", GOOD)
        link = await access.new_password_link("ann")
        assert (await inside.anonymous.get(f"/welcome/ann/{link}")).status_code == 200
    assert [line["noonbell"]["path"] for line in told(caplog)] == ["/setup/***", "/welcome/ann/***"]
    assert first not in repr(told(caplog))
    assert link not in repr(told(caplog))


async def test_no_address_with_a_token_tells_it(inside: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Every route that is opened by a part of its address, also as a proxy or a slip of the pen may write it."""
    routes = [path for path in PUBLIC if re.search(r"\{(token|rest:path)\}", path)]
    assert len(routes) >= 3
    token = "a-token-that-nobody-may-see"  # noqa: S105 - it is to be looked for
    addresses = [re.sub(r"\{(token|rest:path)\}", token, path).replace("{name}", "ann") for path in routes]
    for address in addresses:
        first, _, rest = address[1:].partition("/")
        written = (
            address, f"{address}/", f"{address}/start", f"/{address}", address.replace("/", "//"),
            f"/{first.upper()}/{rest}", address.replace("/", "%2f").replace("%2f", "/", 1),
        )  # fmt: skip
        for path in written:
            for method in ("GET", "POST", "HEAD", "PUT"):
                with caplog.at_level("DEBUG"):
                    answer = await inside.anonymous.request(method, f"{inside.base_url}{path}")
                assert token not in str(answer.headers)
                if answer.headers.get("content-type", "").endswith("json"):
                    assert token not in answer.text
    assert len(told(caplog)) == len(addresses) * 7 * 4
    assert token not in repr(told(caplog))
    assert token not in (await inside.read.get("/metrics")).text


async def test_a_logout_stands_in_the_audit(inside: Client) -> None:
    browser = await logged_in(inside)
    await browser.post("/logout", data={"csrf": csrf(await browser.get("/"))})
    told = await inside.service.store.audit.page(AuditFilter(event="logout"), 0, 10)
    assert [(one.actor, one.subject) for _, one in told] == [("user:ann", "ann")]


async def test_by_https_cookies_belong_to_this_host_alone_and_browsers_stay_there(tmp_path: Path) -> None:
    async with serving(settings_for(tmp_path, public_url="https://bell.example.org")) as client:
        await client.service.access.create_admin("ann", GOOD)
        page = await client.anonymous.get("/login")
        assert page.headers["strict-transport-security"] == "max-age=31536000"
        (form_cookie,) = page.headers.get_list("set-cookie")
        assert re.match(rf"__Host-{FORM_COOKIE}=.*; Path=/; .*Secure$", form_cookie)
        assert "domain" not in form_cookie.lower()
        form = {"csrf": csrf(page), "name": "ann", "password": GOOD}
        entered = await client.anonymous.post("/login", data=form, headers={"Cookie": form_cookie.partition(";")[0]})
        assert entered.status_code == 303
        (session,) = [one for one in entered.headers.get_list("set-cookie") if SESSION_COOKIE in one]
        token = session.partition(";")[0]
        assert token.startswith(f"__Host-{SESSION_COOKIE}=")
        client.anonymous.cookies.clear()
        assert (await client.anonymous.get("/", headers={"Cookie": token})).status_code == 200
        planted = token.removeprefix("__Host-")
        assert (await client.anonymous.get("/", headers={"Cookie": planted})).status_code == 303


async def test_without_https_browsers_are_told_nothing_about_it(inside: Client) -> None:
    assert "strict-transport-security" not in (await inside.anonymous.get("/login")).headers


@pytest.mark.parametrize("limit", ["key_requests_per_minute", "address_requests_per_minute"])
async def test_pages_are_counted_by_person_and_by_address(tmp_path: Path, limit: str) -> None:
    async with serving(settings_for(tmp_path, **{limit: 60})) as client:
        browser = await logged_in(client)
        assert (await browser.get("/")).status_code == 200
        # At the same time: one after the other, a slow machine earns as many new requests as it sends.
        answers = await asyncio.gather(*(browser.get("/") for _ in range(40)))
        assert 429 in {answer.status_code for answer in answers}


async def test_the_login_page_is_counted_by_address(tmp_path: Path) -> None:
    async with serving(settings_for(tmp_path, address_requests_per_minute=6)) as client:
        assert [(await client.anonymous.get("/login")).status_code for _ in range(2)] == [200, 429]

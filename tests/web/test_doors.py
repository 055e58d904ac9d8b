"""Who gets in, and what a form needs: driven by the application's own table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from noonbell.access import Scope
from noonbell.api.app import create_app
from noonbell.bootstrap import build
from noonbell.config import Settings
from noonbell.web.app import PUBLIC
from noonbell.web.routing import PageRoute
from noonbell.web.session import REQUIRES
from tests.web.conftest import Browser


class Rule(NamedTuple):
    method: str
    path: str
    scopes: tuple[Scope, ...]


def required(dependant: Any) -> Iterator[Scope]:
    for one in dependant.dependencies:
        if one.call in REQUIRES:
            yield REQUIRES[one.call]
        yield from required(one)


def table(app: FastAPI) -> list[Rule]:
    """Every page."""
    rules = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, PageRoute) or (isinstance(route, APIRoute) and tuple(required(context.dependant))):
            methods = sorted(context.methods or {"GET"})
            rules += [Rule(method, context.path or "", tuple(required(context.dependant))) for method in methods]
    return rules


RULES = table(create_app(build(Settings(store="memory://"), environ={})))


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", "x", path)


def test_every_page_asks_for_exactly_one_right() -> None:
    assert len(RULES) > 15
    assert [rule for rule in RULES if len(rule.scopes) != 1] == []
    assert [rule for rule in RULES if rule.path in PUBLIC] == []


def test_pages_read_by_get_and_change_by_post_alone() -> None:
    assert {rule.method for rule in RULES} <= {"GET", "POST"}
    own = {"/team/password"}  # everybody may change his own
    assert {rule.path for rule in RULES if rule.method == "POST" and rule.scopes == ("read",)} == own


async def test_nobody_gets_in_without_a_session(browser: Browser) -> None:
    browser.client.cookies.clear()
    for rule in RULES:
        answer = await browser.client.request(rule.method, filled(rule.path))
        assert answer.status_code == 303, rule
        assert answer.headers["location"].startswith("/login"), rule
        by_script = await browser.client.request(rule.method, filled(rule.path), headers={"HX-Request": "true"})
        assert (by_script.status_code, by_script.headers["hx-redirect"]) == (401, "/login"), rule


@pytest.mark.parametrize("spoil", ["no token", "another token", "another site", "another origin", "no form"])
async def test_every_change_needs_the_token_of_the_session(browser: Browser, spoil: str) -> None:
    headers = {
        "another site": {"Sec-Fetch-Site": "cross-site"},
        "another origin": {"Origin": "https://evil.example"},
        "no form": {"Content-Type": "application/json"},
    }.get(spoil, {})
    form = {"csrf": {"no token": "", "another token": "x" * 32}.get(spoil, browser.csrf), "sure": "yes"}
    body = {"json": form} if spoil == "no form" else {"data": form}
    for rule in RULES:
        if rule.method == "POST":
            answer = await browser.client.post(filled(rule.path), headers=headers, **body)  # type: ignore[arg-type]  # one of the two ways
            assert answer.status_code == (415 if spoil == "no form" else 403), (rule, answer.text)
            assert "text/html" in answer.headers["content-type"]


async def test_a_script_sends_the_token_in_a_header(browser: Browser) -> None:
    sent = {"X-CSRF-Token": browser.csrf, "HX-Request": "true"}
    answer = await browser.client.post("/schedules/preview", data={"when": "every hour"}, headers=sent)
    assert answer.status_code == 200
    assert "At minute 0 of every hour" in answer.text


async def test_after_the_login_one_is_where_one_wanted_to_go(browser: Browser) -> None:
    browser.client.cookies.clear()
    wanted = await browser.get("/schedules?q=report&state=on")
    page = (await browser.client.get(wanted.headers["location"])).text
    assert 'name="next" value="/schedules?q=report&amp;state=on"' in page


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "/a b", "evil", ""])
async def test_the_login_leads_to_no_other_site(browser: Browser, wanted: str) -> None:
    answer = await browser.client.get("/login", params={"next": wanted})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def test_what_a_page_says_about_itself(browser: Browser) -> None:
    page = await browser.get("/")
    assert page.headers["cache-control"] == "no-store"
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


async def test_an_unknown_thing_is_a_page_that_says_so(browser: Browser) -> None:
    for path in ("/schedules/nothing", "/runs/nothing", "/schedules/nothing/edit", "/schedules/nothing/why"):
        answer = await browser.get(path)
        assert answer.status_code == 404, path
        assert "text/html" in answer.headers["content-type"]
        assert "another team" in answer.text


async def test_what_a_cookie_tells_is_text_and_is_told_once(browser: Browser) -> None:
    await browser.service.schedules.create(
        schedule_id="one", type="interval", spec="3600", action={"kind": "callback", "name": "none"}
    )
    page = await browser.done("/schedules/one/pause")
    assert "Paused: it has no occurrences" in page
    assert "Paused: it has no occurrences" not in await browser.read("/schedules/one")
    for forged in ("no base64 !", "WzEsMl0=", "eyJ9", "WyJiYWQiLCB7fV0="):
        browser.client.cookies.set("noonbell_notice", forged, domain="service.local")
        assert "</html>" in await browser.read("/")


async def test_files_are_kept_for_ever_and_packed(browser: Browser) -> None:
    page = await browser.read("/schedules/new")
    files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert len(files) >= 8
    total = 0
    for file in files:
        answer = await browser.client.get(file, headers={"Accept-Encoding": "gzip"})
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        total += int(answer.headers["content-length"])
    assert total < 150_000, "what a page loads stays small"


def test_scripts_and_styles_are_never_inline() -> None:
    from noonbell.web.rendering import environment

    names = [name for name in environment().list_templates() if name.endswith(".html")]
    assert len(names) > 10
    for name in names:
        source, _, _ = environment().loader.get_source(environment(), name)  # type: ignore[union-attr]  # it has one
        assert not re.search(r"\son\w+\s*=|\sstyle\s*=|<style|javascript:|\|\s*safe", source), name
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", source)), name

"""Addresses at which there is nothing, for people and for programs."""

from __future__ import annotations

from noonbell.api.problems import MEDIA_TYPE
from tests.web.conftest import Browser, Parsed

AS_BROWSERS = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def test_an_unknown_address_is_a_page_of_the_dashboard(browser: Browser) -> None:
    answer = await browser.get("/no/such/page", Accept=AS_BROWSERS)
    assert answer.status_code == 404
    assert "text/html" in answer.headers["content-type"]
    page = Parsed(answer.text)
    assert "Page not found" in page.text
    assert "logged in as ann" in page.text
    assert any(attrs.get("aria-label") == "Main" for attrs in page.all("nav"))


async def test_who_is_not_logged_in_sees_a_page_without_the_menu(browser: Browser) -> None:
    browser.client.cookies.clear()
    answer = await browser.get("/no/such/page", Accept=AS_BROWSERS)
    assert answer.status_code == 404
    assert "Page not found" in answer.text
    assert "<nav" not in answer.text


async def test_a_way_that_is_not_open_is_a_page_that_says_which_is(browser: Browser) -> None:
    answer = await browser.client.delete("/schedules", headers={"Accept": AS_BROWSERS})
    assert answer.status_code == 405
    assert "text/html" in answer.headers["content-type"]
    assert answer.headers["allow"] == "GET"


async def test_programs_are_told_by_a_problem(browser: Browser) -> None:
    asked = [
        ("/api/v1/nowhere", AS_BROWSERS), ("/api/nowhere", AS_BROWSERS), ("/no/such/page", "application/json"),
        ("/no/such/page", "*/*"),
    ]  # fmt: skip
    for path, accept in asked:
        answer = await browser.get(path, Accept=accept)
        assert answer.status_code in (401, 404)
        assert answer.headers["content-type"] == MEDIA_TYPE, (path, accept)

"""Every page with something on it: axe finds nothing, the console is silent, the content policy is strict, and at the
width of a phone nothing sticks out. In light and in dark; what differs between them is colours, so in the dark axe
looks at those.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Browser, Page, ViewportSize

from noonbell.web.app import PAGES as ROUTERS
from tests.browser.axe import COLOURS, violations
from tests.browser.conftest import NewPage, Watched
from tests.browser.filled import PAGES, fill
from tests.browser.site import Site
from tests.patience import PATIENCE_MS

PHONE: Final = ViewportSize(width=390, height=844)
DESK: Final = ViewportSize(width=1280, height=900)
# The width of the document once the page has the width of its window and has been drawn twice in a row at one width.
_SETTLED_WIDTH: Final = """async (width) => {
  const frame = () => new Promise(requestAnimationFrame);
  let last = -1;
  for (;;) {
    await frame();
    const now = document.documentElement.scrollWidth;
    if (innerWidth === width && now === last) return now;
    last = now;
  }
}"""


def width_on_a_phone(page: Page) -> int:
    """The width of the document in the window of a phone, after the layout has settled."""
    page.set_viewport_size(PHONE)
    found: int = page.evaluate(_SETTLED_WIDTH, PHONE["width"])
    return found


@pytest.fixture(scope="module")
def paths(site: Site) -> dict[str, str]:
    return fill(site)


@pytest.fixture(scope="module")
def reader(browser: Browser, site: Site, paths: dict[str, str]) -> Iterator[Page]:
    """One page for all of them, which is quicker than a new one each."""
    context = browser.new_context(base_url=site.url, locale="en-GB", timezone_id="Europe/Kyiv", reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies([{"name": "noonbell_session", "value": site.session().token, "url": site.url}])
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody(reader: Page, watched: Watched, paths: dict[str, str], name: str) -> None:
    watched.watch(reader)
    reader.set_viewport_size(DESK)
    reader.emulate_media(color_scheme="light")
    answer = reader.goto(paths[name])
    assert answer is not None
    assert answer.status == (404 if name in ("missing", "unknown") else 200)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert violations(reader) == []
    reader.emulate_media(color_scheme="dark")
    assert violations(reader, *COLOURS) == []
    assert width_on_a_phone(reader) <= PHONE["width"]


def test_no_page_is_left_out(paths: dict[str, str]) -> None:
    """Whoever adds a page adds it to `filled`, or this fails."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    pages = [route for route in routes if "GET" in (route.methods or ())]
    shown = {path.partition("?")[0] for path in paths.values()}
    assert len(pages) > 20
    assert [page.path for page in pages if not any(page.path_regex.match(path) for path in shown)] == []


def test_the_doors_are_for_everybody(new_page: NewPage, site: Site, paths: dict[str, str]) -> None:
    page = new_page(anonymous=True)
    for path in ("/login", "/setup/no-such-token"):
        page.goto(path)
        page.emulate_media(color_scheme="light")
        assert violations(page) == []
        page.emulate_media(color_scheme="dark")
        assert violations(page, *COLOURS) == []


def test_the_theme_that_one_chooses_stays(new_page: NewPage, paths: dict[str, str]) -> None:
    page = new_page()
    page.goto("/secrets")
    page.get_by_role("button", name="Dark theme").click()
    page.goto("/keys")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert violations(page, *COLOURS) == []
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_the_menu_of_a_phone_opens_and_closes(new_page: NewPage, paths: dict[str, str]) -> None:
    page = new_page(width=390)
    page.goto("/")
    page.get_by_role("button", name="Menu").click()
    link = page.get_by_role("link", name="Forecast")
    link.wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    link.wait_for(state="hidden")


def test_a_chart_that_has_not_heard_of_its_new_width_sticks_out_nowhere(
    new_page: NewPage, paths: dict[str, str]
) -> None:
    page = new_page()
    page.add_init_script("addEventListener('resize', (event) => event.stopImmediatePropagation(), true)")
    page.goto(paths["schedule"])
    page.locator(".uplot").first.wait_for()
    assert width_on_a_phone(page) <= PHONE["width"]


def test_hours_without_a_start_do_not_widen_the_forecast(browser: Browser, tmp_path: Path) -> None:
    """Their text is for screen readers: out of sight, and positioned inside a table that scrolls."""
    with Site(tmp_path) as quiet:
        action = {"kind": "http", "url": quiet.at("/bell")}
        quiet.call(quiet.service.schedules.create(name="daily", type="cron", spec="0 0 * * *", action=action))
        context = browser.new_context(base_url=quiet.url)
        context.set_default_timeout(PATIENCE_MS)
        context.add_cookies([{"name": "noonbell_session", "value": quiet.session().token, "url": quiet.url}])
        page = context.new_page()
        page.goto("/forecast")
        assert page.locator(".heat .sr").count() > 100
        assert width_on_a_phone(page) <= PHONE["width"]
        context.close()

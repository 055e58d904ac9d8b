"""The browser of the tests, and a site for it.

Both live as long as a module: Playwright keeps an event loop open in the thread that it is driven from, which tests of
other folders must not find there. Every page is watched while a test uses it: an error in its console, a script that
failed, a dialog that opened, or something that the content policy had to refuse makes the test fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, expect, sync_playwright

from tests.browser.chromium import find_chromium
from tests.browser.site import Site
from tests.patience import PATIENCE_MS

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = find_chromium()
    # a page lives too briefly for its scripts to be worth optimising
    arguments = ["--js-flags=--no-opt,--no-maglev,--no-sparkplug"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # root has no sandbox to go into
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=chromium.path, args=arguments, env={**os.environ, **chromium.environment}
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as opened:
        yield opened


class Watched:
    """Notes what a page should not do."""

    def __init__(self) -> None:
        self._heard: list[tuple[str, str]] = []
        self._visited: set[str] = set()

    @property
    def complaints(self) -> list[str]:
        # that a page itself came with an error, such as a form that was refused, is told on it and is no fault of it
        return [
            f"{where}: {what}"
            for where, what in self._heard
            if not (where in self._visited and what.startswith("Failed to load resource"))
        ]

    def watch(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self._heard.append((page.url, str(error))))
        page.on("dialog", self._asked)
        page.on("request", lambda request: self._visited.add(request.url) if request.is_navigation_request() else None)
        page.on("requestfailed", lambda request: self._lost(request.url, request.failure or ""))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._heard.append((message.location.get("url", ""), message.text))

    def _asked(self, dialog: Dialog) -> None:
        self._heard.append(("a dialog opened", dialog.message))
        dialog.dismiss()

    def _lost(self, url: str, failure: str) -> None:
        # leaving a page ends its stream of events
        if "ERR_ABORTED" not in failure:
            self._heard.append((url, failure))


NewPage = Callable[..., Page]


@pytest.fixture
def watched() -> Iterator[Watched]:
    watching = Watched()
    yield watching
    assert watching.complaints == []


@pytest.fixture
def new_page(browser: Browser, site: Site, watched: Watched) -> Iterator[NewPage]:
    """Opens pages of the site: as its admin, or with `anonymous` as nobody."""
    contexts: list[BrowserContext] = []

    def opened(*, anonymous: bool = False, scheme: str = "light", width: int = 1280) -> Page:
        context = browser.new_context(
            base_url=site.url, color_scheme="dark" if scheme == "dark" else "light", locale="en-GB",
            timezone_id="Europe/Kyiv", viewport={"width": width, "height": 900}, reduced_motion="reduce",
        )  # fmt: skip
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        if not anonymous:
            context.add_cookies([{"name": "noonbell_session", "value": site.session().token, "url": site.url}])
        page = context.new_page()
        watched.watch(page)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def page(new_page: NewPage) -> Page:
    return new_page()

"""Pictures of every page, light, dark and as wide as a phone: `python -m tests.browser.shots FOLDER [PAGE ...]`.

The site behind them has lived through a year (`year`) and has something on every page (`filled`). With "readme" as the
page it takes those of the README.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import BrowserContext, ViewportSize, sync_playwright

from tests.browser.chromium import find_chromium
from tests.browser.filled import fill
from tests.browser.site import Site
from tests.browser.year import live_through, today

_DESK: Final = ViewportSize(width=1280, height=800)
_PHONE: Final = ViewportSize(width=390, height=844)
_LOOKS: Final[tuple[tuple[str, ViewportSize, Literal["light", "dark"]], ...]] = (
    ("light", _DESK, "light"), ("dark", _DESK, "dark"), ("phone", _PHONE, "light"),
)  # fmt: skip
_DOORS: Final = {"login": "/login", "setup": "/setup/no-such-token"}
_SETTLED_MS: Final = 700


def shoot(folder: Path, wanted: list[str]) -> int:
    """Take the pictures; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(live_through(Path(scratch) / "service.db", today()))
        with Site(Path(scratch)) as site:
            paths = fill(site)
            if wanted == ["readme"]:
                return _for_the_readme(site, folder)
            return _each(site, folder, {name: paths[name] for name in wanted or paths}, doors=not wanted)


def _for_the_readme(site: Site, folder: Path) -> int:
    """As much as fits on a screen, each with something going on."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium().path, args=["--no-sandbox"])
        context = browser.new_context(base_url=site.url, viewport=_DESK, locale="en-GB", timezone_id="Europe/Kyiv")
        context.add_cookies([{"name": "noonbell_session", "value": site.session().token, "url": site.url}])
        page = context.new_page()
        for name, path in {"overview": "/", "schedule": "/schedules/invoices", "new": "/schedules/new"}.items():
            page.goto(path)
            if name == "new":
                page.get_by_label("Run it").fill("every weekday at 2:30 in New York")
                page.get_by_text("The next 10").wait_for()
            page.wait_for_timeout(_SETTLED_MS)
            page.screenshot(path=folder / f"{name}.png")
        browser.close()
    return 3


def _each(site: Site, folder: Path, paths: dict[str, str], *, doors: bool) -> int:
    taken = 0
    chromium = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.path, args=["--no-sandbox"])
        for look, size, scheme in _LOOKS:
            context = browser.new_context(
                base_url=site.url, viewport=size, color_scheme=scheme, locale="en-GB", timezone_id="Europe/Kyiv"
            )
            if doors:
                taken += _taken(context, folder, look, _DOORS)
            context.add_cookies([{"name": "noonbell_session", "value": site.session().token, "url": site.url}])
            taken += _taken(context, folder, look, paths)
            context.close()
        browser.close()
    return taken


def _taken(context: BrowserContext, folder: Path, look: str, paths: dict[str, str]) -> int:
    page = context.new_page()
    for name, path in paths.items():
        page.goto(path)
        page.wait_for_timeout(_SETTLED_MS)  # charts are drawn when they come into view
        page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
    page.close()
    return len(paths)


if __name__ == "__main__":
    print(shoot(Path(sys.argv[1]), sys.argv[2:]), "pictures")

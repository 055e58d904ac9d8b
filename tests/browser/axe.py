"""axe-core on a page: what it finds wrong for those who do not see, hear or point as its makers do."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

_SOURCE: Final = Path(__file__).parent / "vendor" / "axe.min.js"
_RUN: Final = """async (rules) => {
  const found = await axe.run(document, {
    resultTypes: ["violations"], preload: false, iframes: false,
    ...(rules ? {runOnly: {type: "rule", values: rules}} : {}),
  });
  return found.violations.map((one) => ({
    rule: one.id, help: one.help,
    where: one.nodes.slice(0, 5).map((node) => node.html.slice(0, 200) + " :: " + node.failureSummary.slice(0, 300)),
  }));
}"""


@cache
def _source() -> str:
    return _SOURCE.read_text()


# What depends on the theme alone.
COLOURS: Final = ("color-contrast", "link-in-text-block")


def violations(page: Page, *rules: str) -> list[dict[str, Any]]:
    """What axe finds on the page by all its rules, or by these."""
    if not page.evaluate("typeof window.axe !== 'undefined'"):
        page.evaluate(_source())  # by the debugger: the content policy of the page lets nothing else in
    found: list[dict[str, Any]] = page.evaluate(_RUN, list(rules) or None)
    return found

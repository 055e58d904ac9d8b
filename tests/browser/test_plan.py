"""Plan and apply with a file from the disk, people who are given a link, credentials that become secrets: with axe."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.conftest import NewPage
from tests.browser.site import PASSWORD, Site

FILE = """\
[schedules.planned]
cron = "0 9 * * 1-5"
timezone = "Europe/Kyiv"
action = { kind = "http", method = "POST", url = "https://example.com/report" }
"""


def test_a_file_from_the_disk_is_planned_mended_and_applied(page: Page, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "from-disk.toml"
    file.write_text(FILE.replace("0 9", "99 9"))
    page.goto("/plan")
    page.get_by_label("Take it from a file").set_input_files(file)
    text = page.get_by_label("The file", exact=True)
    expect(text).to_have_value(re.compile("99 9"))
    expect(page.get_by_label("Owner")).to_have_value("from-disk")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_text("Line 2", exact=True)).to_be_visible()
    assert violations(page) == []
    text.fill(FILE)
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("main")).to_contain_text("1 to create")
    assert violations(page) == []
    page.get_by_role("button", name="Apply exactly this").click()
    expect(page.locator("main")).to_contain_text("Applied: 1 created")
    expect(page.get_by_role("link", name="planned")).to_be_visible()


def test_somebody_is_given_a_link_and_comes_in(page: Page, new_page: NewPage, site: Site) -> None:
    page.goto("/team")
    page.get_by_label("Name", exact=True).fill("grace")
    page.get_by_role("button", name="Add, and make a link").click()
    link = page.locator("#link").inner_text()
    assert violations(page) == []
    guest = new_page(anonymous=True)
    guest.goto(link[link.index("/welcome/") :])
    assert violations(guest) == []
    guest.get_by_label("Password", exact=True).fill(PASSWORD)
    guest.get_by_label("Once more").fill(PASSWORD)
    guest.get_by_role("button", name="Choose it, and log in").click()
    expect(guest.locator(".me")).to_contain_text("grace")


def test_a_credential_becomes_a_secret_and_a_signing_key_is_shown_once(page: Page, site: Site) -> None:
    action = {"kind": "http", "url": site.at("/bell"), "headers": {"Authorization": "Bearer tok-en-in-plain"}}
    site.call(site.schedules.create(schedule_id="plain", name="plain", type="cron", spec="0 0 29 2 *", action=action))
    page.goto("/schedules/plain/edit")
    assert "tok-en-in-plain" not in page.content()
    assert violations(page) == []
    page.get_by_label("Make a secret of Authorization, named").fill("BELL_TOKEN")
    page.get_by_role("button", name="Move it").click()
    expect(page.get_by_label("Headers")).to_have_value("Authorization: Bearer ${secrets.BELL_TOKEN}")
    page.goto("/schedules/plain/signing-keys")
    page.get_by_role("button", name="Show the keys").click()
    expect(page.locator("#key-1")).to_contain_text("whsec_")
    assert violations(page) == []

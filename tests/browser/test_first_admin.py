"""The first minutes: the link that the service printed, the first admin, out and in again."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.axe import violations
from tests.browser.conftest import NewPage
from tests.browser.site import Site


def test_from_the_link_to_the_overview_and_back(new_page: NewPage, site: Site) -> None:
    page = new_page(anonymous=True)
    page.goto("/")
    expect(page).to_have_url(f"{site.url}/login")  # nobody can log in yet, and the page says what to do
    assert violations(page) == []

    link = site.call(site.service.access.new_first_admin_token())
    page.goto(f"/setup/{link}")
    assert violations(page) == []
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_label("Once more").fill("correct horse batteries")
    page.get_by_role("button", name="Make the admin").click()
    expect(page.get_by_role("alert")).to_contain_text("differ")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_label("Once more").fill("correct horse battery")
    page.get_by_role("button", name="Make the admin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.get_by_text("Nothing is scheduled yet")).to_be_visible()

    page.get_by_role("button", name="Log out").click()
    page.goto("/audit?event=login.succeeded")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{site.url}/audit?event=login.succeeded")  # where he wanted to go
    expect(page.get_by_role("table")).to_contain_text("ada")

    page.goto(f"/setup/{link}")
    expect(page.get_by_role("heading", level=1)).not_to_have_text("The first admin")  # it works once

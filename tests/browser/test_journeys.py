"""What people come for, click by click."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.site import Site
from tests.patience import PATIENCE_MS


def make(site: Site, schedule_id: str, path: str, **fields: Any) -> None:
    """A schedule that waits for somebody to start it."""
    usual = {
        "schedule_id": schedule_id, "name": schedule_id, "type": "cron", "spec": "0 0 29 2 *",
        "action": {"kind": "http", "url": site.at(path)},
    }  # fmt: skip
    site.call(site.schedules.create(**(usual | fields)))


def test_create_in_english_watch_it_fire_and_ask_why(page: Page, site: Site) -> None:
    page.goto("/")
    page.get_by_role("link", name="New schedule").first.click()
    page.get_by_label("Run it").fill("every 2 secunds")
    preview = page.locator("#preview")
    expect(preview).to_contain_text("Not understood")
    page.get_by_label("Run it").fill("every 2 seconds")
    expect(preview).to_contain_text("Every 2 seconds", ignore_case=True)
    expect(preview.get_by_role("listitem")).to_have_count(10)
    page.get_by_label("Name", exact=True).fill("Often")
    page.get_by_label("URL").fill(site.at("/bell"))
    page.get_by_role("button", name="Test now").click()
    expect(page.locator("#trial")).to_contain_text("dong")
    page.get_by_role("button", name="Make the schedule").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Often")

    # it fires, and its history grows without a reload
    page.evaluate("window.sameDocument = true")
    ledger = page.locator("#ledger")
    expect(ledger.get_by_text("succeeded").first).to_be_visible()
    assert page.evaluate("window.sameDocument") is True
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    row = ledger.get_by_role("row").filter(has_text="succeeded").first
    row.get_by_role("link", name="Why?").click()
    expect(row.locator(".why")).to_contain_text("Often ran for")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()

    page.locator("#ledger").get_by_role("link", name="succeeded").first.click()
    expect(page.get_by_role("heading", name="Request", exact=True)).to_be_visible()
    expect(page.locator("main")).to_contain_text('"said": "dong"')
    events = page.request.get("/audit").text()
    assert "schedule.paused" in events
    assert "schedule.resumed" in events


def test_quiet_hours_are_drawn_while_one_types_and_shown_before_they_silence(page: Page, site: Site) -> None:
    make(site, "nightly", "/bell", spec="0 3 * * *", timezone="Europe/Kyiv")
    page.goto("/quiet-hours")
    page.get_by_role("link", name="New quiet hours").first.click()
    page.get_by_label("Name").fill("nights")
    page.get_by_label("From").first.fill("10:00")
    page.get_by_label("To", exact=True).fill("09:99")
    page.get_by_role("button", name="Make them").click()
    expect(page.locator(".field-error")).to_contain_text("must be")  # what is wrong stands where it is wrong
    for day in ("Saturday", "Sunday"):
        page.get_by_label(day).check()
    page.get_by_label("From").first.fill("00:00")
    page.get_by_label("To", exact=True).fill("12:00")
    page.get_by_label("Time zone").fill("Europe/Kyiv")
    expect(page.get_by_role("img", name="Quiet for 3 d 12 h")).to_be_visible()
    page.get_by_role("button", name="Make them").click()
    expect(page.locator("main")).to_contain_text("every day, 00:00 to 12:00 in Europe/Kyiv")

    page.goto("/schedules/nightly/edit")
    page.get_by_label("Quiet hours").select_option(label="nights")
    expect(page.locator("#preview")).to_contain_text("fall into the quiet hours")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".fires .badge").first).to_contain_text("quiet")
    page.goto("/quiet-hours")
    expect(page.locator("main")).to_contain_text("Silences nightly")
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("alert")).to_contain_text("are used by 1 schedule")  # refused, and why


def test_a_failing_job_and_its_alert(page: Page, site: Site) -> None:
    make(site, "backup", "/fail", name="Nightly backup", tags=["nightly"])
    page.goto("/channels")
    page.get_by_role("link", name="New channel").first.click()
    page.get_by_role("link", name="Webhook").click()
    page.get_by_label("Name", exact=True).fill("on-call")
    page.get_by_label("Address").fill(site.at("/hook"))
    page.get_by_role("button", name="Make the channel").click()
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("was delivered")
    assert "test" in site.call(site.target.wait_for("/hook")).lower()

    page.get_by_role("link", name="New rule").first.click()
    page.get_by_label("Name").fill("nights to on-call")
    page.get_by_label("on-call").check()
    page.get_by_label("Everything tagged").fill("nightly")
    page.get_by_role("button", name="Make the rule").click()
    expect(page.get_by_role("status")).to_contain_text("counts from now on")

    page.goto("/schedules/backup")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("failed").first).to_be_visible()
    assert "Nightly backup" in site.call(site.target.wait_for("/hook", "Nightly backup"))
    page.goto("/runs?outcome=failed")
    page.get_by_role("link", name="Nightly backup").first.click()
    expect(page.locator("main")).to_contain_text("the disk is full")
    page.goto("/")
    expect(page.locator("main")).to_contain_text("Nightly backup")


def test_secrets_are_never_shown(page: Page, site: Site) -> None:
    value = "tr0ub4dor-and-three"
    page.goto("/secrets")
    page.get_by_label("Name").fill("9lives")
    page.get_by_label("Value").fill(value)
    page.get_by_role("button", name="Keep it").click()
    expect(page.locator(".field-error")).to_be_visible()
    assert value not in page.content()  # nor where it was refused
    page.get_by_label("Name").fill("PAYROLL")
    page.get_by_label("Value").fill(value)
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("status")).to_contain_text("${secrets.PAYROLL}")
    action = {
        "kind": "http", "url": site.at("/echo?token=${secrets.PAYROLL}"),
        "headers": {"X-Token": "${secrets.PAYROLL}"}, "body": {"json": {"token": "${secrets.PAYROLL}"}},
    }  # fmt: skip
    make(site, "payroll", "/echo", action=action)
    run_id = site.call(site.ran("payroll"))
    assert any(value in body for _, body in site.target.heard)  # it was sent, and the answer said it back
    for path in (
        "/secrets", "/audit", "/schedules/payroll", "/schedules/payroll/edit", "/schedules/payroll/why", "/schedules",
        "/runs", f"/runs/{run_id.replace(':', '%3A')}", "/settings", "/",
    ):  # fmt: skip
        page.goto(path)
        assert value not in page.content(), path
    page.goto(f"/runs/{run_id.replace(':', '%3A')}")
    expect(page.locator("main")).to_contain_text("***")


def test_a_key_is_shown_once_and_works_until_it_is_revoked(page: Page, site: Site) -> None:
    page.goto("/keys")
    page.get_by_label("Name").fill("pipeline")
    page.get_by_label("It may").select_option("read")
    page.get_by_role("button", name="Make the key").click()
    key = page.locator("#the-key").inner_text()
    assert re.fullmatch(r"nbk_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", key)
    asked = page.request.get("/api/v1/schedules", headers={"Authorization": f"Bearer {key}", "Cookie": ""})
    assert asked.status == 200
    page.goto("/keys")
    assert key not in page.content()
    row = page.get_by_role("row").filter(has_text="pipeline")
    row.get_by_text("Revoke", exact=True).click()
    row.get_by_role("button", name="Revoke it").click()
    expect(page.get_by_role("status")).to_contain_text("revoked")
    asked = page.request.get("/api/v1/schedules", headers={"Authorization": f"Bearer {key}", "Cookie": ""})
    assert asked.status == 401


def test_a_monitor_hears_its_job(page: Page, site: Site) -> None:
    page.goto("/monitors/new")
    page.get_by_label("Name").fill("backup of the shop")
    page.get_by_label("It comes").select_option("interval")
    page.get_by_label("When").fill("3600")
    page.get_by_role("button", name="Make the monitor").click()
    path = re.sub("^http://[^/]+", "", page.locator("#ping-url").inner_text())
    site.looked_on()
    page.evaluate("window.sameDocument = true")
    assert page.request.post(f"{path}/1", data="no space left").status == 200
    expect(page.locator("main")).to_contain_text("exit code 1")  # by itself
    assert page.evaluate("window.sameDocument") is True
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()


def test_a_message_that_was_given_up_is_found_and_dropped(page: Page, site: Site) -> None:
    make(site, "teller", "/bell")
    site.call(site.bury("teller", {"type": "told"}, "The queue refused it"))
    page.goto("/channels")
    page.get_by_role("link", name="Look at them").click()
    expect(page.get_by_role("table")).to_contain_text("The queue refused it")
    page.get_by_label("All on this page").check()
    expect(page.get_by_text("1 chosen")).to_be_visible()
    page.get_by_role("button", name="Drop").click()
    expect(page.get_by_text("Everything was delivered")).to_be_visible()


def test_what_one_types_survives_what_happens_meanwhile(page: Page, site: Site) -> None:
    make(site, "busy", "/bell", name="Busy bee")
    make(site, "idle", "/bell", name="Idle")
    page.goto("/schedules")
    site.looked_on()
    under_way: list[Route] = []
    page.route(f"{site.url}/schedules", lambda route: under_way.append(route))  # noqa: PLW0108 - a built-in is not taken
    with page.expect_request(f"{site.url}/schedules"):  # something has changed: the whole list is asked for again
        site.call(site.schedules.pause("idle"))
    search = page.get_by_label("Search by name")
    with page.expect_request(re.compile(r"q=bee")):
        search.press_sequentially("bee")
        for late in under_way:  # its answer comes when the search is typed already, and must not undo it
            late.continue_()
        page.unroute(f"{site.url}/schedules")
    rows = page.locator("#list").get_by_role("row")
    expect(rows).to_have_count(2)
    site.call(site.ran("busy"))
    expect(page.locator("#list")).to_contain_text("succeeded")
    expect(rows).to_have_count(2)
    expect(search).to_have_value("bee")
    expect(search).to_be_focused()


def test_what_one_has_opened_stays_open_while_more_comes(page: Page, site: Site) -> None:
    make(site, "opened", "/bell")
    page.goto("/audit?subject=opened")
    site.looked_on()
    page.locator("summary", has_text="opened").click()
    expect(page.locator("details[open] pre")).to_be_visible()
    site.call(site.schedules.pause("opened"))
    expect(page.locator("#audit")).to_contain_text("schedule.paused")  # by itself
    expect(page.locator("details[open] pre")).to_be_visible()


def test_a_lost_connection_is_told_and_so_is_its_return(browser: Browser, site: Site) -> None:
    context = browser.new_context(base_url=site.url)  # not watched: the console tells of what is lost, too
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies([{"name": "noonbell_session", "value": site.session().token, "url": site.url}])
    page = context.new_page()
    page.clock.install()
    page.route("**/events", lambda route: route.abort())
    page.goto("/runs")
    bar = page.locator("#connection")
    page.clock.run_for(2_000)
    expect(bar).to_contain_text("is lost")
    page.unroute("**/events")
    page.clock.run_for(6_000)
    expect(bar).to_contain_text("Connected again")
    context.close()

"""Whatever people, jobs and addresses say is text. A payload stands in every field that takes one, in what jobs answer
and print, and in the address; every page is opened, and none of them runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Watched
from tests.browser.site import HOSTILE, Site
from tests.patience import PATIENCE_MS


@pytest.fixture(scope="module")
def paths(site: Site) -> dict[str, str]:
    site.session()
    return site.call(_poisoned(site))


async def _poisoned(site: Site) -> dict[str, str]:
    schedules = site.schedules
    word: Final = HOSTILE.format
    window = {"weekdays": [1, 2, 3], "from": "22:00", "to": "06:00", "timezone": "UTC"}
    quiet = await schedules.create_quiet_hours(word("quiet"), [window], policy_id=word("policy"))
    headers = {"X-Said": word("sent").replace("\n", "")}
    common: dict[str, Any] = {
        "type": "cron", "spec": "0 0 29 2 *", "tags": [word("tag")], "quiet_hours_policy_id": quiet.policy_id,
    }  # fmt: skip
    ids = {}
    actions: dict[str, dict[str, Any]] = {
        "json": {"kind": "http", "url": site.at("/hostile"), "body": {"json": {word("key"): word("value")}},
                 "headers": headers},
        "html": {"kind": "http", "url": site.at("/hostile.html?said=" + quote(word("query"))),
                 "body": {"text": word("text")}},
        "command": {"kind": "command", "argv": ["/bin/echo", word("output")]},
    }  # fmt: skip
    for name, action in actions.items():
        made = await schedules.create(schedule_id=word(name), name=word(f"name of {name}"), action=action, **common)
        ids[name] = await site.ran(made.schedule_id)
    await schedules.update(word("command"), payload={"said": word("payload")})
    await site.bury(word("json"), {"said": word("letter")}, word("error of a letter"))
    channel = await schedules.channels.create(
        name=word("channel"), kind="webhook", config={"url": site.at("/hook?" + quote(word("url")))}
    )
    rule = await schedules.rules.create(
        name=word("rule"), on=["failed"], channels=[channel.channel_id], tag=word("tag"), title=word("title"),
        text=word("body of the notice"),
    )  # fmt: skip
    monitors = site.service.monitors
    monitor = await monitors.create(name=word("monitor"), type="interval", spec="3600", tags=[word("tag")])
    await monitors.ping(monitor.token, "fail", body=word("ping"), run=word("r")[:60])
    await site.service.access.create_key("default", ["read"], name=word("api key"))
    await site.service.access.create_team("hostile", word("team"))
    bad = quote(word("address"), safe="")
    schedule = quote(word("html"), safe="")
    return {
        "overview": "/",
        "schedules": "/schedules",
        "schedules_asked": f"/schedules?q={bad}&tag={bad}&state={bad}",
        "schedule_json": f"/schedules/{quote(word('json'), safe='')}",
        "schedule_html": f"/schedules/{schedule}",
        "schedule_command": f"/schedules/{quote(word('command'), safe='')}",
        "schedule_edit": f"/schedules/{schedule}/edit",
        "schedule_why": f"/schedules/{schedule}/why",
        "schedule_like": f"/schedules/new?like={schedule}&when={bad}",
        **{f"run_{name}": f"/runs/{quote(run_id, safe='')}" for name, run_id in ids.items()},
        "runs": "/runs",
        "runs_asked": f"/runs?outcome={bad}&cursor={bad}",
        "forecast": "/forecast",
        "forecast_asked": f"/forecast?zone={bad}&hour={bad}",
        "monitors": "/monitors",
        "monitor": f"/monitors/{monitor.monitor_id}",
        "monitor_edit": f"/monitors/{monitor.monitor_id}/edit",
        "quiet_hours": "/quiet-hours",
        "quiet_hours_edit": f"/quiet-hours/{quote(quiet.policy_id, safe='')}",
        "channels": "/channels",
        "dead_letters": "/dead-letters",
        "channel": f"/channels/{channel.channel_id}",
        "rule": f"/rules/{rule.rule_id}",
        "secrets_asked": f"/secrets?name={bad}",
        "audit": "/audit",
        "audit_asked": f"/audit?event={bad}&subject={bad}&actor={bad}&from={bad}",
        "keys": "/keys",
        "team": "/team",
        "missing": f"/schedules/{bad}",
    }


@pytest.fixture(scope="module")
def reader(browser: Browser, site: Site, paths: dict[str, str]) -> Iterator[Page]:
    context = browser.new_context(base_url=site.url, locale="en-GB", timezone_id="Europe/Kyiv")
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies([{"name": "noonbell_session", "value": site.session().token, "url": site.url}])
    yield context.new_page()
    context.close()


def _is_only_text(page: Page) -> None:
    assert page.evaluate("window.ran ?? null") is None
    assert page.locator("img[src=x], svg[onload], script:not([src])").count() == 0


def test_no_page_runs_what_it_shows(reader: Page, watched: Watched, paths: dict[str, str]) -> None:
    watched.watch(reader)
    for name, path in paths.items():
        answer = reader.goto(path)
        assert answer is not None
        assert answer.status == (404 if name == "missing" else 200), (name, answer.status)
        reader.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        _is_only_text(reader)
        if name.startswith(("schedule_", "run_")) or name in ("monitor", "quiet_hours", "channels", "keys", "team"):
            assert "<script>" in reader.locator("main").inner_text() + reader.locator("main").inner_html(), name


def test_a_path_that_leads_nowhere_is_not_read_as_a_page(reader: Page, paths: dict[str, str]) -> None:
    answer = reader.request.get("/" + quote(HOSTILE.format("nowhere"), safe=""), headers={"Accept": "text/html"})
    assert answer.status == 404
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "json" in answer.headers["content-type"] or "<script>window" not in answer.text()


def test_what_jobs_say_is_shown_as_they_said_it(reader: Page, paths: dict[str, str]) -> None:
    for name, said in (("run_json", "body"), ("run_html", "page"), ("run_command", "output")):
        reader.goto(paths[name])
        expect(reader.locator("main")).to_contain_text(f"window.ran='{said}'")
        _is_only_text(reader)


def test_what_is_typed_is_shown_as_it_was_typed(reader: Page, watched: Watched, paths: dict[str, str]) -> None:
    watched.watch(reader)
    word = HOSTILE.format("typed")
    reader.goto("/schedules/new")
    reader.get_by_label("Run it").fill(word)
    expect(reader.locator("#preview")).to_contain_text("window.ran='typed'")
    _is_only_text(reader)
    reader.get_by_label("URL").fill(word)
    reader.get_by_role("button", name="Make the schedule").click()
    expect(reader.get_by_label("Run it")).to_have_value(word)
    _is_only_text(reader)
    for path, label, button in (
        ("/quiet-hours/new", "From", "Make them"),
        ("/monitors/new", "When", "Make the monitor"),
        ("/secrets", "Name", "Keep it"),
        ("/channels/new?kind=webhook", "Address", "Make the channel"),
    ):
        reader.goto(path)
        for required in reader.locator("main [required]").all():
            required.fill("something long enough")
        field = reader.get_by_label(label).first
        field.evaluate("(field) => field.removeAttribute('maxlength')")
        field.fill(word)
        reader.get_by_role("button", name=button).click()
        expect(reader.get_by_label(label).first).to_have_value(word)
        _is_only_text(reader)

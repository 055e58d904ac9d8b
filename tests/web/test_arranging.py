"""The pages on which things are arranged: secrets, keys, people, channels, rules, monitors, quiet hours, and the audit
of it all. Without a script: forms and what they answer.
"""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from noonbell.errors import NoonbellError
from tests.web.conftest import ACTION, PASSWORD, Browser, Parsed

WINDOW: dict[str, Any] = {
    "count": "1",
    "w0_weekdays": ["1", "2"],
    "w0_from": "22:00",
    "w0_to": "06:00",
    "w0_timezone": "Europe/Kyiv",
}


def field(page: str, name: str) -> str:
    """What an input of the page holds."""
    found = [attrs for attrs in Parsed(page).all("input") if attrs.get("name") == name]
    return found[0].get("value") or ""


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_secret_goes_in_and_does_not_come_out(browser: Browser) -> None:
    page = await browser.done("/secrets", name="TOKEN", value="line one\r\nline two")
    assert "${secrets.TOKEN}" in page
    assert "line one" not in page
    assert (await browser.service.secrets.resolve("default", ["TOKEN"])) == {"TOKEN": "line one\nline two"}
    assert "version 2" in await browser.done("/secrets", name="TOKEN", value="another value")
    assert "is deleted" in await browser.done("/secrets/TOKEN/delete")
    assert (await browser.post("/secrets/TOKEN/delete")).status_code == 404


@pytest.mark.parametrize(("name", "value"), [("no name", "a good value"), ("SHORT", "abc")])
async def test_a_secret_that_is_refused_is_not_sent_back(browser: Browser, name: str, value: str) -> None:
    answer = await browser.post("/secrets", name=name, value=value)
    assert answer.status_code == 422
    assert 'class="field-error"' in answer.text
    assert value not in re.sub('name="csrf".*?>', "", answer.text)
    assert field(answer.text, "name") == name


async def test_what_channels_have_sealed_is_not_offered_for_deletion(browser: Browser) -> None:
    await browser.service.channels.create(name="c", kind="slack", config={"url": "https://hooks.example/secret-part"})
    await browser.service.secrets.put("default", "OWN", "some value")
    page = await browser.read("/secrets")
    assert "1 more is sealed" in page
    assert "CHANNEL_" not in page


# --- keys and people --------------------------------------------------------------------------------------------------


async def test_a_key_is_in_one_answer_alone(browser: Browser) -> None:
    answer = await browser.post("/keys", name="ci", scope="write", lasts="30")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    (key,) = re.findall(r"nbk_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", answer.text)
    caller = await browser.service.access.authenticate(key)
    assert caller is not None
    assert caller.scopes == {"read", "write"}
    assert key not in await browser.read("/keys")
    key_id = key.split("_")[1]
    assert "is revoked" in await browser.done(f"/keys/{key_id}/revoke")
    assert await browser.service.access.authenticate(key) is None


@pytest.mark.parametrize(
    "typed",
    [{"name": "", "scope": "read", "lasts": ""}, {"name": "x", "scope": "all", "lasts": ""},
     {"name": "x", "scope": "read", "lasts": "7000"}, {"name": "x", "scope": "read", "lasts": "", "team": "nowhere"}],
)  # fmt: skip
async def test_a_key_that_cannot_be_is_refused_at_its_field(browser: Browser, typed: dict[str, Any]) -> None:
    answer = await browser.post("/keys", **typed)
    assert answer.status_code == 422
    assert "field-error" in answer.text
    assert "nbk_" not in answer.text


async def test_people_are_added_and_removed_and_nobody_removes_himself(browser: Browser) -> None:
    assert "/welcome/ben/" in (await browser.post("/team/people", name="Ben", scope="write")).text
    refused = await browser.post("/team/people", name="ben", scope="write")
    assert refused.status_code == 422
    assert "is taken" in refused.text
    assert (await browser.post("/team/people/ann/remove")).status_code == 409
    assert "is removed" in await browser.done("/team/people/ben/remove")
    assert "payroll" in await browser.done("/team/teams", team="payroll", title="Pay")
    assert (await browser.post("/team/teams", team="payroll")).status_code == 422


async def test_a_new_password_takes_the_old_one_and_ends_the_session(browser: Browser) -> None:
    new = "another horse battery"
    tries: list[dict[str, Any]] = [
        {"current": "wrong password", "new": new, "again": new},
        {"current": PASSWORD, "new": new, "again": "differs"},
        {"current": PASSWORD, "new": "short", "again": "short"},
    ]
    for typed in tries:
        answer = await browser.post("/team/password", **typed)
        assert answer.status_code == 422
        assert new not in answer.text
    answer = await browser.post("/team/password", current=PASSWORD, new=new, again=new)
    assert answer.headers["location"] == "/login"
    assert (await browser.get("/team")).status_code == 303
    assert (await browser.service.access.verify_password("ann", new, "127.0.0.1")).name == "ann"


# --- channels and rules -----------------------------------------------------------------------------------------------


async def channel(browser: Browser) -> str:
    await browser.done(
        "/channels/new", kind="webhook", name="hook", url="https://example.org/hook",
        headers="X-Token: very-secret-token", sign="on", most_per_minute="5", enabled="on",
    )  # fmt: skip
    (made,) = (await browser.service.channels.list(team="default")).items
    return made.channel_id


async def test_a_channel_keeps_its_secrets_while_other_things_change(browser: Browser) -> None:
    channel_id = await channel(browser)
    page = await browser.read(f"/channels/{channel_id}")
    assert "very-secret-token" not in page
    assert "X-Token" in page
    await browser.done(
        f"/channels/{channel_id}", name="renamed", url="https://example.org/hook", sign="on", most_per_minute=""
    )
    made = await browser.service.channels.get(channel_id)
    assert (made.name, made.most_per_minute, made.enabled) == ("renamed", None, False)
    assert made.config["headers"] == {"X-Token": "***"}
    moved = await browser.post(f"/channels/{channel_id}", name="renamed", url="https://example.org/other", sign="on")
    assert moved.status_code == 422  # a secret does not go along to another address
    assert "enter it again" in moved.text
    assert "on" in await browser.done(f"/channels/{channel_id}/turn")
    keys = await browser.post(f"/channels/{channel_id}/signing-keys")
    assert "whsec_" in keys.text
    assert "whsec_" not in await browser.read(f"/channels/{channel_id}")


async def test_a_test_that_does_not_arrive_says_why(browser: Browser) -> None:
    await browser.done("/channels/new", kind="webhook", name="inside", url="http://127.0.0.1:9/", enabled="on")
    (made,) = (await browser.service.channels.list(team="default")).items
    page = await browser.done(f"/channels/{made.channel_id}/test")
    assert "was not delivered" in page
    assert 'class="notice bad"' in page


@pytest.mark.parametrize("kind", ["email", "slack", "discord", "telegram", "webhook"])
async def test_every_kind_has_a_form_and_refuses_an_empty_one_at_a_field(browser: Browser, kind: str) -> None:
    assert "Make the channel" in await browser.read(f"/channels/new?kind={kind}")
    answer = await browser.post("/channels/new", kind=kind, name="x", security="starttls")
    assert answer.status_code == 422
    assert "field-error" in answer.text


async def test_a_rule_is_made_changed_turned_and_deleted(browser: Browser) -> None:
    channel_id = await channel(browser)
    typed: dict[str, Any] = {
        "name": "nights", "on": ["failed", "late"], "channels": [channel_id], "tag": "nightly", "late_seconds": "300",
        "window_minutes": "30", "enabled": "on",
    }  # fmt: skip
    assert "counts from now on" in await browser.done("/rules/new", **typed)
    (rule,) = (await browser.service.rules.list(team="default")).items
    assert (rule.on, rule.tag, rule.late_seconds, rule.window_seconds) == (("failed", "late"), "nightly", 300, 1800)
    refused = await browser.post(f"/rules/{rule.rule_id}", **{**typed, "on": ["failed"]})
    assert refused.status_code == 422  # "late from" without the event
    assert 'id="late_seconds-error"' in refused.text
    await browser.done(f"/rules/{rule.rule_id}", **{**typed, "on": ["failed"], "late_seconds": "", "tag": ""})
    changed = await browser.service.rules.get(rule.rule_id)
    assert (changed.on, changed.tag) == (("failed",), None)
    assert "is off" in await browser.done(f"/rules/{rule.rule_id}/turn")
    assert (await browser.post(f"/channels/{channel_id}/delete")).status_code == 409  # a rule names it
    assert "is deleted" in await browser.done(f"/rules/{rule.rule_id}/delete")
    assert "is deleted" in await browser.done(f"/channels/{channel_id}/delete")


# --- monitors ---------------------------------------------------------------------------------------------------------


async def test_a_monitor_from_its_making_to_its_end(browser: Browser) -> None:
    typed: dict[str, Any] = {
        "name": "backup", "type": "cron", "spec": "@daily", "timezone": "Europe/Kyiv", "grace_seconds": "600",
        "max_run_seconds": "", "tags": "a, b", "monitor_id": "bk",
    }  # fmt: skip
    page = await browser.done("/monitors/new", **typed)
    assert "Understood as 0 0 * * *" in page
    made = await browser.service.monitors.get("bk")
    assert f"/ping/{made.token}" in page
    assert made.tags == ("a", "b")
    bad = await browser.post("/monitors/bk/edit", **{**typed, "spec": "99 * * * *"})
    assert bad.status_code == 422
    assert 'id="spec-error"' in bad.text
    await browser.done("/monitors/bk/edit", **{**typed, "grace_seconds": "60"})
    assert (await browser.service.monitors.get("bk")).grace_seconds == 60
    assert "Paused" in await browser.done("/monitors/bk/pause")
    assert "Resumed" in await browser.done("/monitors/bk/resume")
    page = await browser.done("/monitors/bk/renew-token")
    assert f"/ping/{made.token}" not in page
    assert "is deleted" in await browser.done("/monitors/bk/delete")
    assert (await browser.get("/monitors/bk")).status_code == 404


# --- quiet hours ------------------------------------------------------------------------------------------------------


async def test_quiet_hours_are_made_widened_and_deleted(browser: Browser) -> None:
    page = await browser.done("/quiet-hours/new", name="nights", **WINDOW)
    assert "Monday, Tuesday, 22:00 to 06:00 in Europe/Kyiv" in page
    (made,) = await browser.service.schedules.list_quiet_hours()
    base = f"/quiet-hours/{made.policy_id}"
    more = await browser.post(base, name="nights", add="on", **WINDOW)
    assert field(more.text, "count") == "2"
    second: dict[str, Any] = {"count": "2", "w1_dates": "2026-12-25, 2026-12-26", "w1_from": "00:00", "w1_to": "24:00",
              "w1_timezone": "UTC", "w1_valid_from": "2026-01-01"}  # fmt: skip
    await browser.done(base, name="nights", **(WINDOW | second))
    (changed,) = await browser.service.schedules.list_quiet_hours()
    assert changed.windows[1] == {
        "dates": ["2026-12-25", "2026-12-26"], "from": "00:00", "to": "00:00", "timezone": "UTC",
        "valid_from": "2026-01-01",
    }  # fmt: skip
    # a window without times is taken out
    await browser.done(base, name="nights", **(WINDOW | second | {"w0_from": "", "w0_to": ""}))
    (changed,) = await browser.service.schedules.list_quiet_hours()
    assert len(changed.windows) == 1
    assert "is deleted" in await browser.done(f"{base}/delete")


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [({"w0_from": "25:00"}, "w0_from"), ({"w0_to": "soon"}, "w0_to"), ({"w0_timezone": "Kyiv"}, "w0_timezone"),
     ({"w0_weekdays": []}, "w0_weekdays"), ({"w0_dates": "tomorrow"}, "w0_dates")],
)  # fmt: skip
async def test_a_window_is_refused_where_it_is_wrong(browser: Browser, typed: dict[str, Any], wrong: str) -> None:
    answer = await browser.post("/quiet-hours/new", name="nights", **(WINDOW | typed))
    assert answer.status_code == 422
    assert f'id="{wrong}-error"' in answer.text
    assert await browser.service.schedules.list_quiet_hours() == []


async def test_the_grid_is_drawn_while_one_types_and_left_alone_while_it_cannot_be(browser: Browser) -> None:
    drawn = await browser.post("/quiet-hours/preview", script=True, name="", **WINDOW)
    assert drawn.status_code == 200
    assert drawn.text.count('class="still"') == 4
    typing = await browser.post("/quiet-hours/preview", script=True, name="", **(WINDOW | {"w0_to": "0"}))
    assert typing.status_code == 204


# --- looking ----------------------------------------------------------------------------------------------------------


async def test_the_audit_is_newest_first_and_filtered(browser: Browser) -> None:
    schedules = browser.service.schedules.acting("user:ann", "default")
    await schedules.create(schedule_id="one", name="one", type="cron", spec="0 9 * * *", action=ACTION)
    await schedules.pause("one")
    page = Parsed(await browser.read("/audit")).text
    assert page.index("schedule.paused") < page.index("schedule.created")
    filtered = await browser.read("/audit?event=schedule.paused")
    assert "schedule.created" not in re.sub("<datalist.*?</datalist>", "", filtered)
    assert "Nothing fits" in await browser.read("/audit?subject=nowhere")
    assert "must be a day" in await browser.read("/audit?from=yesterday")
    assert "one" in await browser.read("/audit?actor=user:ann&from=2020-01-01&to=2099-01-01")
    with pytest.raises(NoonbellError):
        await schedules.get("two")


async def test_the_audit_goes_on_over_pages(browser: Browser) -> None:
    for number in range(60):
        await browser.service.schedules.create(name=f"n{number}", type="cron", spec="0 9 * * *", action=ACTION)
    page = await browser.read("/audit?event=schedule.created")
    (older,) = re.findall(r'href="(/audit\?[^"]*cursor=\d+)"', page)
    rest = await browser.read(older.replace("&amp;", "&"))
    assert page.count("spec 0 9 * * *") == 50
    assert rest.count("spec 0 9 * * *") == 10


async def test_another_team_is_not_seen(browser: Browser) -> None:
    service = browser.service
    await service.access.create_team("blue")
    blue = service.schedules.acting("somebody", "blue")
    await blue.create(schedule_id="veiled-one", name="veiled-one", type="cron", spec="* * * * *", action=ACTION)
    await blue.create_quiet_hours("veiled-nights", [{"weekdays": [1], "from": "1:00".zfill(5), "to": "02:00",
                                                     "timezone": "UTC"}], policy_id="hp")  # fmt: skip
    made = await service.channels.create(
        name="veiled-channel", kind="webhook", config={"url": "https://example.org"}, team="blue"
    )
    rule = await service.rules.create(name="veiled-rule", on=["failed"], channels=[made.channel_id], team="blue")
    await service.monitors.create(name="veiled-monitor", type="interval", spec="60", monitor_id="hm", team="blue")
    await service.secrets.put("blue", "VEILED", "some value")
    _, key = await service.access.create_key("blue", ["read"], name="veiled-key")
    for path in ("/", "/audit", "/channels", "/monitors", "/quiet-hours", "/secrets", "/keys", "/runs", "/forecast"):
        page = await browser.read(path)
        assert "veiled-" not in page, path
        assert "VEILED" not in page, path
    for path in ("/monitors/hm", "/quiet-hours/hp", f"/channels/{made.channel_id}", f"/rules/{rule.rule_id}"):
        assert (await browser.get(path)).status_code == 404, path
        assert (await browser.post(f"{path}/delete")).status_code == 404, path
    assert (await browser.post(f"/keys/{key.split('_')[1]}/revoke")).status_code == 404


async def test_who_looks_after_teams_takes_back_a_key_by_its_id(browser: Browser) -> None:
    await browser.service.access.create_team("blue")
    _, key = await browser.service.access.create_key("blue", ["read"], name="theirs")
    assert "is revoked" in await browser.done("/keys/take-back", key_id=key.split("_")[1])
    assert await browser.service.access.authenticate(key) is None
    refused = await browser.post("/keys/take-back", key_id="nothing")
    assert refused.status_code == 422
    assert 'id="key_id-error"' in refused.text


async def test_settings_are_for_the_operator_alone(browser: Browser) -> None:
    assert 'href="/settings"' in await browser.read("/")
    await browser.service.access.create_team("billing")
    await browser.service.access.create_user("ben", "billing", "admin", PASSWORD)
    client = httpx2.AsyncClient(base_url="http://service", transport=browser.client._transport)
    ben = Browser(browser.service, client)
    await ben.log_in("ben")
    assert 'href="/settings"' not in await ben.read("/")
    assert 'href="/keys"' in await ben.read("/")
    refused = await ben.get("/settings")
    assert refused.status_code == 403
    assert "team default" in refused.text
    assert browser.service.settings.store not in refused.text
    assert (await ben.post("/settings/rotate-master-key")).status_code == 403


async def test_settings_say_where_they_came_from_and_hide_passwords(browser: Browser) -> None:
    page = await browser.read("/settings")
    assert "master_keys_file" in page
    assert "default" in page
    assert "rewrapped" in await browser.done("/settings/rotate-master-key")
    assert "this process" in await browser.read("/instances")


async def test_runs_can_be_filtered_and_a_strange_filter_is_none(browser: Browser) -> None:
    assert "Nothing has run yet" in await browser.read("/runs")
    assert "No run has failed" in await browser.read("/runs?outcome=failed")
    assert "Nothing has run yet" in await browser.read("/runs?outcome=odd&cursor=x")

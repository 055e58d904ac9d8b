"""Making and changing schedules by the form, with and without a script."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from noonbell.errors import ScheduleInvalidError
from noonbell.web.schedule_fields import action_of, fields_of, place_of
from noonbell.web.session import Form
from tests.web.conftest import ACTION, NIGHT, Browser, Parsed

FILLED: dict[str, Any] = {"when": "every weekday at 9am in Kyiv", "timezone": "UTC", "kind": "http", "method": "GET",
          "url": "https://example.org/", "enabled": "on"}  # fmt: skip


def inputs(page: str) -> dict[str, Any]:
    """What a browser would send of the form of a schedule."""
    fields: dict[str, Any] = {}
    form = page[page.index('id="editor"') :]
    for tag in re.findall(r"<input [^>]+>", form):
        attrs = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if attrs.get("type") != "checkbox" or " checked" in tag:
            fields[attrs["name"]] = html.unescape(attrs.get("value", ""))
    for name, text in re.findall(r'<textarea id="\w+" name="(\w+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL):
        fields[name] = html.unescape(text)
    for name, options in re.findall(r'<select id="\w+" name="(\w+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        fields[name] = (re.findall(r'value="([^"]*)" selected', options) or re.findall(r'value="([^"]*)"', options))[0]
    return fields


# --- what was understood ----------------------------------------------------------------------------------------------


async def test_english_is_understood_as_one_types(browser: Browser) -> None:
    answer = await browser.post("/schedules/preview", script=True, when="every day at 3:30 in Kyiv", timezone="UTC")
    text = Parsed(answer.text).text
    assert "At 03:30 every day" in text
    assert "30 3 * * *" in text
    assert answer.text.count("<li>") == 10
    assert "03:30 does not exist in Europe/Kyiv" in text, "the surprises of clock changes"
    assert "</html>" not in answer.text


async def test_the_policy_for_clock_changes_is_seen(browser: Browser) -> None:
    said = {"when": "every day at 3:30 in Kyiv", "dst": "once"}
    text = Parsed((await browser.post("/schedules/preview", script=True, **said)).text).text
    assert "fires at 04:00" in text
    assert "fires twice" not in text


async def test_what_is_not_understood_is_shown_with_its_place(browser: Browser) -> None:
    page = (await browser.post("/schedules/preview", script=True, when="every blursday at nine")).text
    assert "<mark>blursday</mark>" in page
    assert 'data-suggest="every thursday at nine"' in page
    for wrong in ("61 * * * *", "yesterday at noon", "2020-01-01T00:00"):
        answer = await browser.post("/schedules/preview", script=True, when=wrong)
        assert answer.status_code == 200
        assert 'role="alert"' in answer.text, wrong
    assert "Enter when the schedule runs" in (await browser.post("/schedules/preview", script=True, when=" ")).text


async def test_collisions_with_quiet_hours_and_with_a_busy_minute(browser: Browser) -> None:
    schedules = browser.service.schedules
    policy = await schedules.create_quiet_hours("always", [NIGHT])
    many: list[Any] = [
        {"schedule_id": f"n{number}", "type": "cron", "spec": "30 4 * * *", "action": ACTION} for number in range(7)
    ]
    await schedules.create_many(many)
    said = {"when": "every day at 4:30", "timezone": "UTC"}
    text = Parsed((await browser.post("/schedules/preview", script=True, **said)).text).text
    assert "at least 7 other schedules" in text
    assert "quiet hours" not in text
    said["quiet_hours_policy_id"] = policy.policy_id
    text = Parsed((await browser.post("/schedules/preview", script=True, **said)).text).text
    assert "10 of the next 10 fall into the quiet hours" in text
    said["editing"] = "n3"
    assert "at least 6 other" in Parsed((await browser.post("/schedules/preview", script=True, **said)).text).text


async def test_without_a_script_a_preview_is_the_form_again(browser: Browser) -> None:
    answer = await browser.post("/schedules/preview", **FILLED, name="Mine")
    assert answer.status_code == 200
    assert "At 09:00, Monday to Friday" in answer.text
    assert inputs(answer.text)["name"] == "Mine"


# --- saving -----------------------------------------------------------------------------------------------------------


async def test_a_schedule_in_english_is_made(browser: Browser) -> None:
    page = await browser.done("/schedules/new", **FILLED, headers="Accept: text/plain\r\nX-Team: a", tags="a, b,,a")
    assert "Created. At 09:00, Monday to Friday." in page
    (made,) = (await browser.service.schedules.list()).items
    assert (made.type, made.spec, made.timezone) == ("cron", "0 9 * * 1-5", "Europe/Kyiv")
    assert made.name == "every weekday at 9am in Kyiv"
    assert made.tags == ("a", "b")
    assert made.action == {
        "kind": "http", "method": "GET", "url": "https://example.org/",
        "headers": {"Accept": "text/plain", "X-Team": "a"},
    }  # fmt: skip
    audit = await browser.service.schedules.audit(event="schedule.created")
    assert [one.actor for one in audit.items] == ["user:ann"]


@pytest.mark.parametrize(
    ("wrong", "place", "reason"),
    [
        ({"when": "every blursday"}, "when", "not known"),
        ({"url": "ftp://x"}, "url", "http"),
        ({"headers": "no colon"}, "headers", "must be lines"),
        ({"body_kind": "json", "body": "{"}, "body", "is not JSON"),
        ({"more": "[]"}, "more", "JSON object"),
        ({"more": '{"timeout": {"total": -1}}'}, "more", "seconds above 0"),
        ({"attempts": "many"}, "attempts", "whole number"),
        ({"attempts": "0"}, "attempts", "1"),
        ({"jitter_seconds": "x"}, "jitter_seconds", "must be a number"),
        ({"timezone": "Mars/Base", "when": "every hour"}, "timezone", ""),
        ({"end_at": "2020-01-01T00:00"}, "end_at", "past"),
        ({"kind": "nonsense"}, "kind", "one of"),
    ],
)
async def test_what_is_wrong_is_said_at_its_input_and_nothing_is_lost(
    browser: Browser, wrong: dict[str, Any], place: str, reason: str
) -> None:
    answer = await browser.post("/schedules/new", **(FILLED | {"name": "Kept as typed"} | wrong))
    assert answer.status_code == 422
    (said,) = re.findall(rf'id="{place}-error">([^<]*)<', answer.text)
    assert reason in html.unescape(said)
    assert inputs(answer.text)["name"] == "Kept as typed"
    assert (await browser.service.schedules.list()).items == []


ACTIONS: list[dict[str, Any]] = [
    {"kind": "http", "method": "GET", "url": "https://example.org/"},
    {
        "kind": "http", "method": "POST", "url": "https://example.org/${secrets.PATH}", "headers": {"Accept": "a: b"},
        "query": {"page": 1}, "body": {"json": {"deep": [1, {"x": None}]}}, "auth": {"bearer": "${secrets.TOKEN}"},
        "timeout": {"total": 60}, "expect_status": ["204"], "sign": True,
    },
    {"kind": "http", "method": "PUT", "url": "https://e.org/", "body": {"form": {"a": "1=2", "b": ""}},
     "auth": {"basic": {"user": "u", "password": " p "}}},
    {"kind": "http", "method": "PUT", "url": "https://e.org/", "body": {"form": {"a": [1, 2]}}},
    {"kind": "http", "method": "POST", "url": "https://e.org/", "body": {"text": "two\nlines"}},
    {"kind": "command", "argv": ["backup", "--full", "a b"], "cwd": "/srv", "env": {"LEVEL": "9"},
     "timeout_seconds": 5},
    {"kind": "command", "shell": True, "command": "a | b"},
    {"kind": "message", "to": "bot", "type": "hello"},
    {"kind": "callback", "name": "report"},
]  # fmt: skip


@pytest.mark.parametrize("action", ACTIONS, ids="-".join)
async def test_an_edit_that_changes_nothing_changes_nothing(browser: Browser, action: dict[str, Any]) -> None:
    """Everything that the API can say survives the form."""
    schedules = browser.service.schedules
    schedules._actions._commands._all = True  # the operator allows them
    payload = {"text": "hi"} if action["kind"] == "message" else None
    await schedules.create(
        schedule_id="one", name="one", type="interval", spec="900", timezone="Europe/Kyiv", action=action,
        payload=payload, tags=["x"], retry={"attempts": 2, "delay_seconds": 1.5, "max_delay_seconds": 9, "jitter": 0.2},
        start_at="2026-01-01T00:00", end_at="2999-01-01T00:00:00+02:00", jitter_seconds=3, overlap="skip",
        catch_up_policy="run_all_capped", catch_up_cap=3, retry_vs_new="preempt",
    )  # fmt: skip
    before = await schedules.get("one")
    typed = inputs(await browser.read("/schedules/one/edit"))
    del typed["csrf"]
    assert "Saved" in await browser.done("/schedules/one/edit", **typed)
    after = await schedules.get("one")
    assert after.action == before.action
    assert (after.epoch, after.updated_at) == (before.epoch, before.updated_at)
    typed["name"] = "renamed"
    typed["seen"] = inputs(await browser.read("/schedules/one/edit"))["seen"]
    await browser.done("/schedules/one/edit", **typed)
    renamed = await schedules.get("one")
    assert (renamed.name, renamed.action, renamed.retry) == ("renamed", before.action, before.retry)


async def test_an_edit_does_not_undo_what_somebody_else_has_changed(browser: Browser) -> None:
    schedules = browser.service.schedules
    await schedules.create(schedule_id="one", name="one", type="cron", spec="0 9 * * *", action=ACTION)
    typed = inputs(await browser.read("/schedules/one/edit"))
    del typed["csrf"]
    await schedules.update("one", name="by another")
    answer = await browser.post("/schedules/one/edit", **(typed | {"name": "mine"}))
    assert answer.status_code == 422
    assert "This schedule was changed after you loaded the form" in answer.text
    assert (await schedules.get("one")).name == "by another"


async def test_another_kind_of_rhythm_is_refused_at_its_input(browser: Browser) -> None:
    await browser.service.schedules.create(schedule_id="one", type="cron", spec="0 9 * * *", action=ACTION)
    typed = inputs(await browser.read("/schedules/one/edit"))
    del typed["csrf"]
    answer = await browser.post("/schedules/one/edit", **(typed | {"when": "every 90 seconds"}))
    assert answer.status_code == 422
    assert "create another schedule" in answer.text


async def test_a_copy_is_another_schedule(browser: Browser) -> None:
    await browser.service.schedules.create(schedule_id="one", name="one", type="cron", spec="0 9 * * *", action=ACTION)
    typed = inputs(await browser.read("/schedules/new?like=one"))
    assert (typed["name"], typed["when"], typed["url"]) == ("one (copy)", "0 9 * * *", ACTION["url"])
    del typed["csrf"]
    await browser.done("/schedules/new", **typed)
    assert len((await browser.service.schedules.list()).items) == 2


# --- test now ---------------------------------------------------------------------------------------------------------


async def test_a_trial_shows_the_request_and_is_told_in_the_audit(browser: Browser) -> None:
    await browser.service.secrets.put("default", "TOKEN", "hush hush hush")
    said = FILLED | {"url": "http://127.0.0.1:9/x", "headers": "X-Token: ${secrets.TOKEN}"}
    page = (await browser.post("/schedules/test", script=True, **said)).text
    text = Parsed(page).text
    assert "GET http://127.0.0.1:9/x" in text
    assert "As a run it would have failed" in text
    assert "hush" not in page
    told = (await browser.service.schedules.audit(event="schedule.tested")).items
    assert [(one.actor, one.detail["succeeded"]) for one in told] == [("user:ann", False)]
    assert (await browser.service.schedules.list()).items == []
    whole = await browser.post("/schedules/test", **said)
    assert "As a run it would have failed" in whole.text
    assert inputs(whole.text)["url"] == said["url"]


@pytest.mark.parametrize("said", [{"kind": "callback", "callback": "x"}, {"url": "nonsense"}, {"more": "{"}])
async def test_a_trial_that_cannot_be(browser: Browser, said: dict[str, Any]) -> None:
    answer = await browser.post("/schedules/test", script=True, **(FILLED | said))
    assert answer.status_code == 200
    assert 'role="alert"' in answer.text


# --- fields -----------------------------------------------------------------------------------------------------------


def test_every_field_of_the_library_has_its_input() -> None:
    assert place_of("action.headers.Accept") == "headers"
    assert place_of("action.argv[0]") == "argv"
    assert place_of("action.timeout.total") == "more"
    assert place_of("retry.jitter") == "retry_jitter"
    assert place_of("jitter_seconds") == "jitter_seconds"


def test_a_form_that_says_nothing_is_no_schedule() -> None:
    assert fields_of(Form({}))["retry"] == {
        "attempts": 1,
        "delay_seconds": 5.0,
        "strategy": "exponential",
        "jitter": 0.0,
    }
    with pytest.raises(ScheduleInvalidError):
        action_of(Form({"kind": ["http"], "headers": ["nonsense"]}))


async def test_a_warning_is_shown_with_what_was_made_and_saved(browser: Browser) -> None:
    said = {**FILLED, "schedule_id": "m", "kind": "message", "to": "nowhere", "payload": "{}"}
    page = Parsed(await browser.done("/schedules/new", **said)).text
    assert 'Warning: No target named "nowhere" is declared in the lane "default" (declared: none)' in page
    typed = inputs(await browser.read("/schedules/m/edit"))
    page = Parsed(await browser.done("/schedules/m/edit", **{**typed, "to": "nobody"})).text
    assert 'Warning: No target named "nobody" is declared' in page


async def test_a_warning_is_shown_with_quiet_hours_that_cover_a_one_shot(browser: Browser) -> None:
    schedules = browser.service.schedules
    await schedules.create_quiet_hours("never", [{**NIGHT, "valid_to": "2020-01-01"}], policy_id="never")
    await schedules.create(
        name="once", type="one_shot", spec="2099-01-01T12:00Z", action=ACTION, quiet_hours_policy_id="never"
    )
    whole = {f"w0_{part}": NIGHT[part] for part in ("from", "to", "timezone", "weekdays")}
    page = Parsed(await browser.done("/quiet-hours/never", name="never", count="1", **whole)).text
    assert 'Warning: "once" is for 2099-01-01T12:00:00+00:00, inside its quiet hours "never"' in page


async def test_the_forms_state_the_limits_that_hold(browser: Browser) -> None:
    schedule = await browser.read("/schedules/new")
    assert "empty: an hour, or the delay if that is longer" in schedule
    monitor = await browser.read("/monitors/new")
    assert "empty: as long as the grace, and at least 60 seconds" in monitor


async def test_commands_that_are_off_cannot_be_chosen_and_the_form_says_how_to_allow_them(browser: Browser) -> None:
    page = await browser.read("/schedules/new")
    assert '<option value="command" disabled>Command (off)</option>' in page
    assert "noonbell serve --command /usr/bin/PROGRAM" in page
    assert "commands = [&#34;/usr/bin/PROGRAM&#34;]" in page or 'commands = ["/usr/bin/PROGRAM"]' in page


async def test_a_new_schedule_without_an_engine_is_warned_of(browser: Browser) -> None:
    await browser.service.schedules.stop()
    page = await browser.done(
        "/schedules/new", when="every hour", kind="http", method="GET", url="https://example.com/"
    )
    assert "No engine of the lane" in page

"""Plan and apply by clicking: what is shown is what is done, and what is wrong is told at its line."""

from __future__ import annotations

import html
import re
from typing import Any

from noonbell.errors import ScheduleNotFoundError
from tests.web.conftest import Browser, Parsed

TOML = """\
name = "billing"

[quiet_hours.nights]
windows = [{ weekdays = [1, 2, 3, 4, 5], from = "22:00", to = "06:00", timezone = "UTC" }]

[schedules.report]
cron = "0 9 * * 1-5"
timezone = "Europe/Kyiv"
quiet_hours_policy_id = "nights"
action = { kind = "http", method = "POST", url = "https://example.com/report", headers = { Authorization = "%s" } }

[schedules.sweep]
every = "15m"
action = { kind = "callback", name = "sweep" }
"""
FILE = TOML % "first-token-value"


def hidden(page: str) -> dict[str, str]:
    """What the form of a plan carries along."""
    found = re.findall(r'<input type="hidden" name="(digest|seen|file|owner)" value="([^"]*)">', page)
    return {name: html.unescape(value) for name, value in found}


async def planned(browser: Browser, text: str, **more: Any) -> dict[str, Any]:
    answer = await browser.post("/plan", text=text, format="toml", **more)
    assert answer.status_code == 200, answer.text
    return {"text": text, "format": "toml", **more, **hidden(answer.text)}


async def applied(browser: Browser, text: str, **more: Any) -> str:
    return await browser.done("/plan/apply", **await planned(browser, text), **more)


async def test_a_plan_says_in_words_what_it_would_do_and_does_nothing(browser: Browser) -> None:
    answer = await browser.post("/plan", text=FILE.replace("\n", "\r\n"), format="toml")
    text = Parsed(answer.text).text
    assert "2 to create, 0 to change, 0 to delete, 0 unchanged; 1 of quiet hours" in text
    assert "create report" in text
    assert "Monday, Tuesday, Wednesday, Thursday, Friday, 22:00 to 06:00" in text or "Monday to Friday, 22:00" in text
    assert "09:00" in text, "what that means for the coming weeks"
    assert (await browser.service.schedules.list()).items == []


async def test_what_was_shown_is_applied_in_the_name_of_who_did_it(browser: Browser) -> None:
    page = await applied(browser, FILE)
    assert "Applied: 2 created, 0 changed, 0 deleted" in page
    assert 'href="/schedules/report"' in page
    made = await browser.service.schedules.get("report")
    assert (made.managed_by, made.timezone) == ("file:billing", "Europe/Kyiv")
    told = (await browser.service.schedules.audit(event="schedule.created")).items
    assert {one.actor for one in told} == {"user:ann"}
    again = await browser.post("/plan", text=FILE, format="toml")
    assert "Nothing to change" in again.text


async def test_a_change_is_told_field_by_field_without_credentials(browser: Browser) -> None:
    await applied(browser, FILE)
    after = (TOML % "second-token-value").replace("0 9 * * 1-5", "30 9 * * 1-5")
    answer = await browser.post("/plan", text=after, format="toml")
    shown = Parsed(answer.text[answer.text.index('id="found"') :]).text
    assert "0 9 * * 1-5 → becomes 30 9 * * 1-5" in shown
    assert "09:30" in shown.split("becomes ***")[-1], "what that means for the coming weeks"
    assert "action.headers.Authorization *** → becomes ***" in shown
    assert "token-value" not in shown


async def test_a_deletion_has_to_be_meant(browser: Browser) -> None:
    await applied(browser, FILE)
    less = FILE[: FILE.index("[schedules.sweep]")]
    form = await planned(browser, less)
    refused = await browser.post("/plan/apply", **form)
    assert refused.status_code == 422
    assert "the plan deletes 1" in refused.text
    assert (await browser.service.schedules.get("sweep")).enabled
    assert "1 deleted" in await browser.done("/plan/apply", **form, allow_delete="on")


async def test_a_plan_that_does_not_fit_any_more_is_refused_with_what_changed(browser: Browser) -> None:
    await applied(browser, FILE)
    schedules = browser.service.schedules
    form = await planned(browser, FILE.replace("15m", "30m"))
    await schedules.pause("report")
    answer = await browser.post("/plan/apply", **form)
    assert answer.status_code == 409
    assert "The schedule &#34;report&#34; was changed since then" in answer.text
    assert "The current plan is below" in answer.text
    assert (await schedules.get("sweep")).spec == "900"
    form |= hidden(answer.text)
    assert "Applied: 0 created, 2 changed" in await browser.done("/plan/apply", **form)
    assert (await schedules.get("report")).enabled


async def test_another_text_than_the_planned_one_is_not_applied(browser: Browser) -> None:
    form = await planned(browser, FILE)
    answer = await browser.post("/plan/apply", **(form | {"text": FILE.replace("15m", "1m")}))
    assert answer.status_code == 409
    assert "The text has changed since the plan was made" in answer.text
    assert (await browser.service.schedules.list()).items == []
    without = await browser.post("/plan/apply", text=FILE, format="toml")
    assert without.status_code == 409


async def test_quiet_hours_that_changed_make_another_plan(browser: Browser) -> None:
    await applied(browser, FILE)
    form = await planned(browser, FILE.replace('to = "06:00"', 'to = "07:00"'))
    (policy,) = await browser.service.schedules.list_quiet_hours()
    window = {"weekdays": [1], "from": "22:00", "to": "05:00", "timezone": "UTC"}
    await browser.service.schedules.update_quiet_hours(policy.policy_id, windows=[window])
    assert (await browser.post("/plan/apply", **form)).status_code == 409
    (now,) = await browser.service.schedules.list_quiet_hours()
    assert now.windows[0]["to"] == "05:00"


async def test_every_problem_has_its_line_beside_the_text(browser: Browser) -> None:
    text = FILE.replace("0 9 * * 1-5", "61 9 * * 1-5").replace("15m", "soon").replace('kind = "callback", ', "")
    answer = await browser.post("/plan", text=text, format="toml")
    assert answer.status_code == 422
    page = Parsed(answer.text).text
    assert "Line 7" in page
    assert "Line 13" in page
    assert '<span class="line here"><span class="line-number">7</span>' in answer.text
    assert "61 9 * * 1-5" in html.unescape(answer.text[answer.text.index("<textarea") :]), "what was typed is there"
    broken = await browser.post("/plan", text="name = \n", format="toml")
    assert broken.status_code == 422
    assert "Line 1" in broken.text
    assert (await browser.post("/plan", text=" ", format="toml")).status_code == 422
    assert (await browser.post("/plan", text="x" * 300_000, format="toml")).status_code == 422


async def test_yaml_and_a_name_from_beside_the_text(browser: Browser) -> None:
    text = "schedules:\n  one:\n    every: 15m\n    action: {kind: callback, name: one}\n"
    nameless = await browser.post("/plan", text=text, format="yaml", name="")
    assert nameless.status_code == 422
    answer = await browser.post("/plan", text=text, format="yaml", name="mine")
    assert "file:mine" in answer.text
    form = {"text": text, "format": "yaml", "name": "mine", **hidden(answer.text)}
    await browser.done("/plan/apply", **form)
    assert (await browser.service.schedules.get("one")).managed_by == "file:mine"


async def test_what_the_operator_does_not_allow_is_refused_whole(browser: Browser) -> None:
    text = 'name = "x"\n[schedules.run]\nevery = "1h"\naction = { kind = "command", argv = ["backup"] }\n'
    answer = await browser.post("/plan/apply", **await planned(browser, text))
    assert answer.status_code == 422
    assert "Nothing was applied" in answer.text
    try:
        found = await browser.service.schedules.get("run")
    except ScheduleNotFoundError:
        found = None
    assert found is None


async def test_what_is_in_a_file_is_text(browser: Browser) -> None:
    hostile = "<script>alert(1)</script>"
    wrong = f'name = "x"\n[schedules."{hostile}"]\ncron = "{hostile}"\n'
    right = (
        f'name = "x"\n[schedules.one]\nname = "{hostile}"\ncron = "0 9 * * *"\n'
        f'action = {{ kind = "callback", name = "{hostile}" }}\n'
    )
    for text in (wrong, right):
        answer = await browser.post("/plan", text=text, format="toml")
        assert hostile not in answer.text
        assert html.escape(hostile) in answer.text


async def test_an_applied_plan_is_shown_with_the_warnings_of_a_creation(browser: Browser) -> None:
    await browser.service.schedules.stop()
    text = Parsed(await applied(browser, FILE)).text
    assert 'Warning: No engine of the lane "default" is up' in text
    assert 'Warning: No callback "sweep" is registered here' in text

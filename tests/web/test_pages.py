"""What pages show, without a script, and what their forms do."""

from __future__ import annotations

import re
from datetime import timedelta

from noonbell.core.instants import moment
from noonbell.core.records import Delivery, OutboxMessage
from tests.web.conftest import ACTION, NIGHT, Browser, Parsed


async def make(browser: Browser, schedule_id: str, **fields: object) -> None:
    usual = {"schedule_id": schedule_id, "name": schedule_id, "type": "cron", "spec": "0 9 * * 1-5", "action": ACTION}
    await browser.service.schedules.create(**(usual | fields))  # type: ignore[arg-type]  # checked there


async def ran(browser: Browser, schedule_id: str) -> str:
    """Ask for a run and wait for its end; returns its id."""
    run_id = await browser.service.schedules.trigger(schedule_id)
    events = browser.service.events.follow(None, idle_seconds=0.05)
    try:
        async for _ in events:
            if (await browser.service.schedules.run(run_id)).ended_at is not None:
                break
    finally:
        await events.aclose()  # type: ignore[attr-defined]  # a generator
    return run_id


# --- overview ---------------------------------------------------------------------------------------------------------


async def test_an_empty_service_teaches(browser: Browser) -> None:
    page = await browser.read("/")
    assert "Nothing is scheduled yet" in page
    assert 'href="/schedules/new"' in page


async def test_the_overview_shows_messages_that_were_not_delivered(browser: Browser) -> None:
    assert "not delivered" not in await browser.read("/")
    store, now = browser.service.store, browser.service.clock.now()
    hour = 3_600_000_000
    await store.outbox.post([OutboxMessage(n, "other", f"m:scheduled:{n}", "x", "{}", now - hour) for n in (5, 6)], now)
    (stream,) = (await store.outbox.claim("other", "me", now, 1)).streams
    await store.outbox.settle([Delivery(stream.sid, "me", now, None, dead=stream.messages[0][0], error="no")])
    page = Parsed(await browser.read("/")).text
    assert "1 message was not delivered. See Dead letters" in page
    assert "1 message waits to be delivered, the oldest for 1 h" in page


async def test_the_overview_shows_what_comes_and_what_failed(browser: Browser) -> None:
    await make(browser, "often", type="interval", spec="600")
    await make(browser, "second", type="interval", spec="20")
    await make(browser, "far", spec="0 0 29 2 *")
    run_id = await ran(browser, "far")
    page = Parsed(await browser.read("/"))
    assert "in the coming hour" in page.text
    assert 'href="/schedules/often"' in await browser.read("/")
    assert any(attrs.get("class") == "timeline" for attrs in page.all("svg"))
    assert any(attrs.get("href", "").endswith(run_id.replace(":", "%3A")) for attrs in page.all("a"))  # type: ignore[union-attr]  # all have one


async def test_every_time_says_its_zone_without_a_script(browser: Browser) -> None:
    await make(browser, "kyiv", timezone="Europe/Kyiv")
    page = await browser.read("/schedules/kyiv")
    shown = re.findall(r"<time[^>]*data-form=\"(?:short|full|clock)\"[^>]*>([^<]+)</time>", page)
    assert shown
    assert all(text.endswith(" UTC") for text in shown)
    assert 'data-zone="Europe/Kyiv">09:00 Kyiv' in page


# --- the list ---------------------------------------------------------------------------------------------------------


async def test_the_list_is_searched_and_filtered(browser: Browser) -> None:
    await make(browser, "report", tags=["billing"])
    await make(browser, "backup", enabled=False)
    await make(browser, "sync", type="interval", spec="900")

    async def found(query: str) -> set[str]:
        return set(re.findall(r'name="ids" value="([^"]+)"', await browser.read(f"/schedules?{query}")))

    assert await found("") == {"report", "backup", "sync"}
    assert await found("q=REP") == {"report"}
    assert await found("state=paused") == {"backup"}
    assert await found("type=interval") == {"sync"}
    assert await found("tag=billing") == {"report"}
    assert await found("type=nonsense&cursor=nonsense") == {"report", "backup", "sync"}
    assert "No matching schedules" in await browser.read("/schedules?q=nothing+like+it")


async def test_pages_of_fifty(browser: Browser) -> None:
    many = [
        {"schedule_id": f"n{number:03}", "name": f"n{number:03}", "type": "interval", "spec": "3600", "action": ACTION}
        for number in range(60)
    ]
    await browser.service.schedules.create_many(many)  # type: ignore[arg-type]  # checked there
    first = await browser.read("/schedules")
    assert first.count('name="ids"') == 50
    (following,) = re.findall(r'href="(/schedules\?cursor=\d+)"', first)
    second = await browser.read(following)
    assert second.count('name="ids"') == 10
    assert 'rel="next"' not in second


async def test_many_at_once(browser: Browser) -> None:
    schedules = browser.service.schedules
    for name in ("a", "b", "c"):
        await make(browser, name)
    policy = await schedules.create_quiet_hours("night", [NIGHT])
    back = "/schedules?q=a"
    page = await browser.done("/schedules/bulk", ids=["a", "b"], do="pause", back=back)
    assert "2 of 2 paused" in page
    assert [(await schedules.get(name)).enabled for name in "abc"] == [False, False, True]
    await browser.done("/schedules/bulk", ids=["a", "b"], do="resume")
    await browser.done("/schedules/bulk", ids=["a", "b"], do="tag", value="mine")
    assert (await schedules.get("b")).tags == ("mine",)
    await browser.done("/schedules/bulk", ids=["b"], do="untag", value="mine")
    assert (await schedules.get("b")).tags == ()
    await browser.done("/schedules/bulk", ids=["c"], do="quiet", policy=policy.policy_id)
    assert (await schedules.get("c")).quiet_hours_policy_id == policy.policy_id
    page = await browser.done("/schedules/bulk", ids=["a", "gone"], do="delete")
    assert "1 of 2 deleted. Not done: gone" in page
    assert "Select the schedules first" in await browser.done("/schedules/bulk", do="delete")
    assert (await browser.post("/schedules/bulk", ids=["b"], do="")).status_code == 422
    assert (await browser.post("/schedules/bulk", ids=["b"], do="pause", back="//evil")).headers[
        "location"
    ] == "/schedules"


# --- one schedule -----------------------------------------------------------------------------------------------------


async def test_a_schedule_accounts_for_itself(browser: Browser) -> None:
    await make(browser, "one", type="interval", spec="3600", retry={"attempts": 3, "delay_seconds": 7})
    run_id = await ran_quickly(browser)
    page = await browser.read("/schedules/one")
    text = Parsed(page).text
    assert "Every hour, counted from the last run" in text
    assert "A year of verdicts" in text
    assert "3 attempts, exponential from 7.00 s" in text
    assert "No occurrences yet" in text, "a run that was asked for is no occurrence"
    assert page.count('class="c-') >= 366
    assert run_id.startswith("one:manual:")


async def ran_quickly(browser: Browser) -> str:
    await browser.service.schedules.update("one", action={"kind": "callback", "name": "absent"}, retry={"attempts": 1})
    run_id = await ran(browser, "one")
    await browser.service.schedules.update("one", action=ACTION, retry={"attempts": 3, "delay_seconds": 7})
    return run_id


async def test_why(browser: Browser) -> None:
    await make(browser, "one")
    at = (moment(browser.service.clock.now()) - timedelta(days=400)).strftime("%Y-%m-%dT%H:%M")
    part = await browser.part(f"/schedules/one/why?at={at}")
    assert part.startswith('<p class="why">')
    whole = await browser.read("/schedules/one/why")
    assert "</html>" in whole
    assert (await browser.get("/schedules/one/why?at=nonsense")).status_code == 422


async def test_pause_resume_run_and_delete(browser: Browser) -> None:
    schedules = browser.service.schedules
    await make(browser, "one/with slash")
    path = "/schedules/one%2Fwith%20slash"
    assert "paused" in await browser.done(f"{path}/pause")
    assert not (await schedules.get("one/with slash")).enabled
    await browser.done(f"{path}/resume")
    assert (await schedules.get("one/with slash")).enabled
    answer = await browser.post(f"{path}/run")
    assert answer.headers["location"].startswith("/runs/one%2Fwith%20slash%3Amanual%3A")
    assert "one/with slash" in await browser.read(answer.headers["location"])
    assert (await browser.post(f"{path}/delete")).status_code == 422, "without being sure"
    assert "deleted; its history stays" in await browser.done(f"{path}/delete", sure="yes")
    gone = await browser.read(path)
    assert "This schedule was deleted" in gone
    assert f'action="{path}/run"' not in gone


async def test_other_teams_do_not_exist(browser: Browser) -> None:
    await browser.service.access.create_team("other")
    theirs = browser.service.schedules.acting("test", "other")
    await theirs.create(schedule_id="theirs", name="theirs", type="interval", spec="60", action=ACTION)
    run_id = await theirs.trigger("theirs")
    for path in ("/", "/schedules"):
        assert "theirs" not in await browser.read(path)
    for path in ("/schedules/theirs", "/schedules/theirs/edit", "/schedules/theirs/why", f"/runs/{run_id}"):
        assert (await browser.get(path)).status_code == 404, path
    for path in ("pause", "run", "delete", "edit"):
        answer = await browser.post(f"/schedules/theirs/{path}", sure="yes", when="every hour")
        assert answer.status_code == 404, path
    assert "0 of 1 paused" in await browser.done("/schedules/bulk", ids=["theirs"], do="pause")
    assert (await browser.post("/schedules/test", editing="theirs", kind="http", url="http://x")).status_code == 404
    assert (await theirs.get("theirs")).enabled


# --- one run ----------------------------------------------------------------------------------------------------------


async def test_a_run_shows_what_went_wrong_and_can_be_asked_for_again(browser: Browser) -> None:
    await make(browser, "local", action={"kind": "http", "url": "http://127.0.0.1:9/x", "body": {"json": {"a": [1]}}})
    run_id = await ran(browser, "local")
    page = await browser.read(f"/runs/{run_id}")
    text = Parsed(page).text
    assert "failed" in text
    assert "http://127.0.0.1:9/x" in text
    assert "None came." in text
    again = await browser.post(f"/runs/{run_id}/again")
    assert again.status_code == 303
    assert again.headers["location"] != f"/runs/{run_id}"
